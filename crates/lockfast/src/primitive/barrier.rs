//! A place where some wait for each other.

use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{
    Error, ErrorKind, Expected, Fence, LockName, Mode, Query, Result, Version, VersionedValue,
    WriteOutcome,
};

use super::any_lock::AnyLock;
use super::events::Events;
use super::shared_value::SharedValue;
use crate::lease::policy::Options;

/// A barrier: each waits until so many have come, and then all go on. It can be used again at once:
/// whoever comes after that waits for the next round. Cheap to clone.
///
/// Whoever waits has a lease. One that is cancelled leaves at once, and one that dies when its lease
/// ends; the others wait on until somebody else has come. When more come at the same time than are
/// wanted, all of them may go on together.
///
/// ```
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?; // any store but redlock:
/// let ready = locker.barrier("migration/phase-1", 2)?;
/// let (one, other) = tokio::join!(ready.wait(), ready.wait());
/// let round = one?;
/// assert_eq!(round, other?);
/// println!("all have come to {}, in round {round}", ready.name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    /// Which round it is.
    value: SharedValue,
    /// Who is there: a shared lock, whose name ends with the round.
    place: AnyLock,
    name: LockName,
    parties: u32,
}

impl Barrier {
    /// The most that can wait for each other.
    pub const PARTIES_MAX: u32 = 1000;

    pub(crate) fn new(
        value: SharedValue,
        place: AnyLock,
        name: LockName,
        parties: u32,
    ) -> Result<Self> {
        debug_assert_eq!(place.mode(), Mode::Shared);
        if (1..=Self::PARTIES_MAX).contains(&parties) {
            let place = place.wait_forever();
            return Ok(Self { value, place, name, parties });
        }
        let message =
            format!("{parties} cannot wait for each other; use 1 to {}", Self::PARTIES_MAX);
        Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&name))
    }

    /// As [`Mutex::ttl`](crate::Mutex::ttl): how long one that has died counts as one who has come.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.place = self.place.ttl(ttl);
        self
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options), for the lease of whoever waits and for all
    /// requests. It waits for the others without a limit, whatever they say.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.value = self.value.with_options(options.clone());
        self.place = self.place.with_options(options).wait_forever();
        self
    }

    /// The name. See [`Barrier`] for an example.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits until all have come, also while the store cannot be reached, for up to a minute; which
    /// round it was, counted from 0. See [`Barrier`] for an example.
    ///
    /// # Cancel safety
    /// Safe: when dropped, it leaves, and the others wait for one more.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a barrier that others use for another number; what the store meets.
    pub async fn wait(&self) -> Result<u64> {
        let mut events = Events::new(self.value.store(), self.value.name().clone())?;
        let mut own = Own { round: 0, places: Vec::new() };
        loop {
            let there = self.first_look(&mut events).await?;
            let round = self.parse(there.as_ref())?;
            if own.has_gone_on(&round) {
                return Ok(own.round);
            }
            let place = self.place_of(round.number)?;
            // One that has stopped to wait, or has lost its place, and waits again must not be counted
            // twice.
            place.store().undoing.finished_of(place.name()).await;
            let guard = place.acquire().await?;
            own.take(round.number, guard.fence());
            let meeting = self.meet(&mut events, &place, &own, there);
            let met = guard.unless_lost(meeting).await;
            guard.release().await?;
            // Who has lost its place may have been counted before.
            if let Ok(met) = met
                && met?
            {
                return Ok(own.round);
            }
        }
    }

    /// What is there; what changes after that is heard.
    async fn first_look(&self, events: &mut Events) -> Result<Option<VersionedValue>> {
        let mut patience = self.value.patience();
        loop {
            let looked = match events.resume().await {
                Ok(()) => self.value.read().await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(there) => return Ok(there),
                Err(error) => patience.pause_after(error).await?,
            }
        }
    }

    /// Waits until the round is over, or ends it when all are there; whether we went on with it. We
    /// did not if our place was taken just after those who went on were counted.
    async fn meet(
        &self,
        events: &mut Events,
        place: &AnyLock,
        own: &Own,
        mut there: Option<VersionedValue>,
    ) -> Result<bool> {
        let mut patience = self.value.patience();
        loop {
            match self.try_to_finish(there.as_ref(), place, own).await {
                Ok(Some(went_on)) => return Ok(went_on),
                Ok(None) => {
                    events.next().await;
                    patience.renew();
                }
                Err(error) => patience.pause_after(error).await?,
            }
            there = self.first_look(events).await?;
        }
    }

    /// Whether we went on with the round; `None` while it lasts.
    async fn try_to_finish(
        &self,
        there: Option<&VersionedValue>,
        place: &AnyLock,
        own: &Own,
    ) -> Result<Option<bool>> {
        let now = self.parse(there)?;
        if now.number != own.round {
            return Ok(Some(own.has_gone_on(&now)));
        }
        let present = self.count(place).await?;
        if present.len() < self.parties as usize {
            return Ok(None);
        }
        self.finish(there.map(|value| value.version), present, own).await.map(Some)
    }

    /// The fences of those who are there. Whoever comes last sees all others.
    async fn count(&self, place: &AnyLock) -> Result<Vec<Fence>> {
        let store = place.store();
        let query = Query::Name(place.name().clone());
        let views = store.within(place.request_timeout(), store.backend.inspect(query)).await?;
        let holders = views.into_iter().flat_map(|view| view.holders);
        Ok(holders.filter_map(|holder| holder.fence).collect())
    }

    /// Ends the round, unless somebody else has; whether we went on with it.
    async fn finish(
        &self,
        expected: Option<Version>,
        present: Vec<Fence>,
        own: &Own,
    ) -> Result<bool> {
        let next = Round { parties: self.parties, number: own.round + 1, last: present };
        let expected = expected.map_or(Expected::Nothing, Expected::Version);
        match self.value.write_known(expected, next.to_text().into_bytes()).await? {
            WriteOutcome::Written(_) => Ok(true),
            WriteOutcome::Conflict(now) => Ok(own.has_gone_on(&self.parse(now.as_ref())?)),
        }
    }

    fn place_of(&self, round: u64) -> Result<AnyLock> {
        let name = LockName::new(format!("{}#{round}", self.place.name()))?;
        Ok(self.place.clone().renamed(name))
    }

    fn parse(&self, there: Option<&VersionedValue>) -> Result<Round> {
        let Some(value) = there else {
            return Ok(Round { parties: self.parties, number: 0, last: Vec::new() });
        };
        let round = Round::parse(&value.bytes).ok_or_else(|| {
            let message = format!(
                "the value {} is not a barrier's; remove it, or use another name",
                quote(self.value.name().as_str())
            );
            Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.name)
        })?;
        if round.parties != self.parties {
            let message = format!(
                "the barrier is for {}, not for {}; all must say the same",
                round.parties, self.parties
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_lock(&self.name));
        }
        Ok(round)
    }
}

/// Which round it is.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    parties: u32,
    number: u64,
    /// Who went on with the round before, by the fences of their places.
    last: Vec<Fence>,
}

/// Where one waits.
struct Own {
    round: u64,
    /// The fences of its places in that round: those that it lost, and the last.
    places: Vec<Fence>,
}

impl Own {
    fn take(&mut self, round: u64, place: Fence) {
        if self.round != round {
            *self = Self { round, places: Vec::new() };
        }
        self.places.push(place);
    }

    /// Whether it went on with its round, by what is there now. A round that is over for longer was
    /// ended by others than it is made for, and who waits for nobody goes on.
    fn has_gone_on(&self, now: &Round) -> bool {
        let is_counted = || self.places.iter().any(|place| now.last.contains(place));
        !self.places.is_empty()
            && (now.number > self.round + 1 || now.number == self.round + 1 && is_counted())
    }
}

impl Round {
    /// A line with the numbers, and one for each who went on.
    fn to_text(&self) -> String {
        let mut text = format!("lockfast-barrier {} {}\n", self.parties, self.number);
        for fence in &self.last {
            text.push_str(&fence.to_string());
            text.push('\n');
        }
        text
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        let (parties, number) = lines.next()?.strip_prefix("lockfast-barrier ")?.split_once(' ')?;
        let last = lines.map(|line| Fence::parse(line).ok()).collect::<Option<_>>()?;
        Some(Self { parties: parties.parse().ok()?, number: number.parse().ok()?, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    #[test]
    fn a_round_is_read_as_it_was_written() {
        let round = Round { parties: 3, number: 17, last: vec![fence(5), fence(9)] };
        assert_eq!(round.to_text(), "lockfast-barrier 3 17\n5\n9\n");
        assert_eq!(Round::parse(round.to_text().as_bytes()), Some(round));
        for other in ["", "lockfast-barrier 3", "lockfast-barrier x 1", "3 17", "\u{0}"] {
            assert_eq!(Round::parse(other.as_bytes()), None, "{other}");
        }
        let most = vec![fence(Fence::LIMIT - 1); Barrier::PARTIES_MAX as usize];
        let longest = Round { parties: Barrier::PARTIES_MAX, number: u64::MAX, last: most };
        assert!(VersionedValue::check(longest.to_text().as_bytes()).is_ok());
    }

    /// B175: also one that has lost the place by which it was counted, and has taken another.
    #[test]
    fn who_was_counted_goes_on() {
        let now = Round { parties: 2, number: 4, last: vec![fence(5)] };
        let table: [(u64, &[u64], bool); 6] = [
            (3, &[5], true),
            (3, &[6], false),
            (3, &[5, 6], true),
            (4, &[5], false),
            (2, &[6], true),
            (0, &[], false),
        ];
        for (round, places, expected) in table {
            let mut own = Own { round: 0, places: Vec::new() };
            places.iter().for_each(|place| own.take(round, fence(*place)));
            assert_eq!(own.has_gone_on(&now), expected, "{round} {places:?}");
        }
    }
}
