//! A place where some wait for each other.

use lockfast_core::error::quote;
use lockfast_core::{
    Error, ErrorKind, Expected, LockName, Mode, Query, Result, VersionedValue, WriteOutcome,
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
            let round = self.parse(there.as_ref())?;
            let place = self.place_of(round)?;
            let guard = place.acquire().await?;
            // Whoever came just after the round was over belongs to the next.
            if self.round().await? != round {
                guard.release().await?;
                continue;
            }
            // Whoever comes last sees all others.
            let query = Query::Name(place.name().clone());
            let views = self.value.store().backend.inspect(query).await?;
            let present = views.first().map_or(0, |view| view.holders.len());
            if present >= self.parties as usize {
                self.finish(there, round).await?;
            } else if !self.wait_for_others(&mut events, &guard, round).await? {
                guard.release().await?;
                continue;
            }
            guard.release().await?;
            return Ok(round);
        }
    }

    /// Waits until the round is over; false when our place was lost before.
    async fn wait_for_others(
        &self,
        events: &mut Events,
        guard: &Guard,
        round: u64,
    ) -> Result<bool> {
        let waiting = async {
            loop {
                events.resume().await?;
                if self.round().await? != round {
                    return Ok(true);
                }
                events.next().await;
            }
        };
        match run_until_lost(guard.lease(), waiting).await {
            Ok(over) => over,
            Err(_) => Ok(self.round().await? != round),
        }
    }

    /// Ends the round, unless somebody else has.
    async fn finish(&self, there: Option<VersionedValue>, round: u64) -> Result<()> {
        let next = format!("lockfast-barrier {} {}\n", self.parties, round + 1);
        let expected = there.map_or(Expected::Nothing, |value| Expected::Version(value.version));
        match self.value.write_known(expected, next.into_bytes()).await? {
            WriteOutcome::Written(_) => Ok(()),
            WriteOutcome::Conflict(now) if self.parse(now.as_ref())? != round => Ok(()),
            WriteOutcome::Conflict(_) => {
                let message = "somebody has written its value without ending the round";
                Err(Error::new(ErrorKind::Conflict, message).with_lock(&self.name))
            }
        }
    }

    async fn round(&self) -> Result<u64> {
        let there = self.value.read().await?;
        self.parse(there.as_ref())
    }

    fn place_of(&self, round: u64) -> Result<AnyLock> {
        let name = LockName::new(format!("{}#{round}", self.place.name()))?;
        Ok(self.place.clone().renamed(name))
    }

    fn parse(&self, there: Option<&VersionedValue>) -> Result<u64> {
        let Some(value) = there else { return Ok(0) };
        let (parties, round) = parse(&value.bytes).ok_or_else(|| {
            let message = format!(
                "the value {} is not a barrier's; remove it, or use another name",
                quote(self.value.name().as_str())
            );
            Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.name)
        })?;
        if parties != self.parties {
            let message = format!(
                "the barrier is for {parties}, not for {}; all must say the same",
                self.parties
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_lock(&self.name));
        }
        Ok(round)
    }
}

/// For how many it is, and which round.
fn parse(bytes: &[u8]) -> Option<(u32, u64)> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let (parties, round) = text.strip_prefix("lockfast-barrier ")?.split_once(' ')?;
    Some((parties.parse().ok()?, round.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_barrier_is_not_taken_for_one() {
        assert_eq!(parse(b"lockfast-barrier 3 17\n"), Some((3, 17)));
        for other in ["", "lockfast-barrier 3", "lockfast-barrier x 1", "3 17", "\u{0}"] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
}
