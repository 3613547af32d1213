//! A place where some wait for each other.

use lockfast_core::error::quote;
use lockfast_core::{
    Error, ErrorKind, Expected, Fence, LockName, Mode, Query, Result, Version, VersionedValue,
    WriteOutcome,
};

use super::any_lock::{AnyLock, run_until_lost};
use super::events::Events;
use super::shared_value::SharedValue;
use crate::lease::handle::Guard;

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
/// assert_eq!(one?, other?); // the same round
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
            return Ok(Self { value, place, name, parties });
        }
        let message =
            format!("{parties} cannot wait for each other; use 1 to {}", Self::PARTIES_MAX);
        Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&name))
    }

    /// The name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits until all have come; which round it was, counted from 0.
    ///
    /// # Cancel safety
    /// Safe: when dropped, it leaves, and the others wait for one more.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a barrier that others use for another number; what the store meets.
    pub async fn wait(&self) -> Result<u64> {
        let mut events = Events::open(self.value.store(), self.value.name().clone()).await?;
        loop {
            let there = self.value.read().await?;
            let round = self.parse(there.as_ref())?.number;
            let place = self.place_of(round)?;
            let guard = place.acquire().await?;
            let went_on = match self.count(&place).await? {
                present if present.len() >= self.parties as usize => {
                    let expected = there.map(|value| value.version);
                    self.finish(expected, round, &present, guard.fence()).await?
                }
                _ => self.wait_for_others(&mut events, &guard, round).await?,
            };
            guard.release().await?;
            if went_on {
                return Ok(round);
            }
        }
    }

    /// The fences of those who are there. Whoever comes last sees all others.
    async fn count(&self, place: &AnyLock) -> Result<Vec<Fence>> {
        let query = Query::Name(place.name().clone());
        let views = self.value.store().backend.inspect(query).await?;
        let holders = views.into_iter().flat_map(|view| view.holders);
        Ok(holders.filter_map(|holder| holder.fence).collect())
    }

    /// Waits until the round is over; whether we went on with it. We did not if our place was lost
    /// before, or taken just after those who went on were counted.
    async fn wait_for_others(
        &self,
        events: &mut Events,
        guard: &Guard,
        round: u64,
    ) -> Result<bool> {
        let waiting = async {
            loop {
                events.resume().await?;
                let there = self.read().await?;
                if there.number != round {
                    return Ok(there.has_taken_along(round, guard.fence()));
                }
                events.next().await;
            }
        };
        match run_until_lost(guard.lease(), waiting).await {
            Ok(over) => over,
            Err(_) => Ok(self.read().await?.has_taken_along(round, guard.fence())),
        }
    }

    /// Ends the round, unless somebody else has; whether we went on with it.
    async fn finish(
        &self,
        expected: Option<Version>,
        round: u64,
        present: &[Fence],
        own: Fence,
    ) -> Result<bool> {
        let next = Round { parties: self.parties, number: round + 1, last: present.to_vec() };
        let expected = expected.map_or(Expected::Nothing, Expected::Version);
        match self.value.write_known(expected, next.to_text().into_bytes()).await? {
            WriteOutcome::Written(_) => Ok(true),
            WriteOutcome::Conflict(now) => {
                Ok(self.parse(now.as_ref())?.has_taken_along(round, own))
            }
        }
    }

    async fn read(&self) -> Result<Round> {
        let there = self.value.read().await?;
        self.parse(there.as_ref())
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

impl Round {
    /// Whether one that had this place in that round went on with it. A round that is over for longer
    /// was ended by others than it is made for, and who waits for nobody goes on.
    fn has_taken_along(&self, round: u64, fence: Fence) -> bool {
        self.number > round + 1 || self.number == round + 1 && self.last.contains(&fence)
    }

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

    #[test]
    fn who_was_counted_goes_on() {
        let round = Round { parties: 2, number: 4, last: vec![fence(5)] };
        let table = [(3, 5, true), (3, 6, false), (4, 5, false), (2, 6, true)];
        for (number, own, expected) in table {
            assert_eq!(round.has_taken_along(number, fence(own)), expected, "{number} {own}");
        }
    }
}
