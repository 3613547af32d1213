//! Whether waiters are served in order of arrival, where that is promised.

use std::iter::empty;

use super::Judge;
use super::claim::Claim;
use crate::history::Mode;

impl Judge {
    /// Notes by how much somebody was overtaken by a claim that is granted now. When requests reach
    /// the store is not recorded, so a little says nothing.
    pub(super) fn note_order(&mut self, at: u64, claim: &Claim) {
        let is_fair = self.run.as_ref().is_some_and(|run| run.fair);
        if !is_fair || claim.mode != Mode::Exclusive {
            return;
        }
        let lock = &self.locks[claim.lock];
        let overtaken = lock.queue.waiters.values().filter(|waiter| {
            waiter.mode == Mode::Exclusive
                && waiter.asked < claim.asked
                && !self.faults.troubled_within(waiter.asked, at, waiter.worker)
                && self.faults.time_within(waiter.asked, at, |fault| fault.outage, empty()) == 0
        });
        let by: Vec<u64> = overtaken.map(|waiter| claim.asked - waiter.asked).collect();
        self.overtaken.count += by.len() as u64;
        if let Some(longest) = by.into_iter().max().filter(|by| *by > self.overtaken.longest) {
            self.overtaken.longest = longest;
            self.overtaken.lock = Some(lock.name.clone());
            self.overtaken.at = at;
        }
    }
}
