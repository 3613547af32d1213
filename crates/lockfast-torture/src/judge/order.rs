//! Whether waiters are served in order of arrival, where that is promised.

use std::iter::empty;

use super::Judge;
use super::claim::Claim;
use crate::history::Mode;

impl Judge {
    /// Notes whom the claim that is granted now has overtaken, and whether it was overtaken itself:
    /// granted later than one that came after it. Whoever gives up does not count. When requests
    /// reach the store is not recorded, so a little says nothing, and of a `run` nothing is known
    /// until its command starts.
    pub(super) fn note_order(&mut self, at: u64, claim: &Claim) {
        let is_fair = self.run.as_ref().is_some_and(|run| run.fair);
        let is_run = claim.runs || claim.worker.is_none();
        if !is_fair || is_run || claim.mode != Mode::Exclusive {
            return;
        }
        let lock = &mut self.locks[claim.lock];
        let behind = lock.queue.waiters.get(&claim.id).map_or(0, |waiter| waiter.overtaken);
        if behind > 0 {
            self.overtaken.count += 1;
        }
        if behind > self.overtaken.longest {
            self.overtaken.longest = behind;
            self.overtaken.lock = Some(lock.name.clone());
            self.overtaken.at = at;
        }
        let faults = &self.faults;
        for waiter in lock.queue.waiters.values_mut().filter(|waiter| {
            waiter.mode == Mode::Exclusive
                && waiter.asked < claim.asked
                && !faults.troubled_within(waiter.asked, at, waiter.worker)
                && faults.time_within(waiter.asked, at, |fault| fault.outage, empty()) == 0
        }) {
            waiter.overtaken = waiter.overtaken.max(claim.asked - waiter.asked);
        }
    }
}
