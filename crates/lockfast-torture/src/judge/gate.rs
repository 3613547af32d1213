//! Writes to what a lock guards, which checks fences: none may be let through after one with a
//! higher fence.

use std::collections::BTreeMap;

/// Writes whose order can still be told apart. A writer that was paused between its write and its
/// line in the history comes late by less.
const WRITES_MAX: usize = 20_000;

/// A write that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) claim: u64,
    pub(super) fence: u64,
}

/// What one lock guards.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// By the number that the guarded thing gave them.
    admitted: BTreeMap<u64, Write>,
}

impl Gate {
    /// A write was let through. Returns one before it with a higher fence, or one after it with a
    /// lower fence: what was let through is in order only if neighbours are.
    pub(super) fn admit(&mut self, number: u64, write: Write) -> Option<Write> {
        let before = self.admitted.range(..number).next_back().map(|(_, write)| *write);
        let after = self.admitted.range(number + 1..).next().map(|(_, write)| *write);
        let higher = before.filter(|before| before.fence > write.fence);
        let lower = after.filter(|after| after.fence < write.fence);
        self.admitted.insert(number, write);
        if self.admitted.len() > WRITES_MAX {
            self.admitted.pop_first();
        }
        higher.or(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_in_order_of_their_numbers_not_of_their_lines() {
        let mut gate = Gate::default();
        let write = |fence| Write { claim: fence, fence };
        assert_eq!(gate.admit(1, write(10)), None);
        assert_eq!(gate.admit(4, write(30)), None);
        assert_eq!(gate.admit(2, write(10)), None, "the same holder once more");
        assert_eq!(gate.admit(3, write(20)), None, "recorded late");
        assert_eq!(gate.admit(5, write(20)), Some(write(30)), "a lower fence came later");
        let mut gate = Gate::default();
        assert_eq!(gate.admit(2, write(20)), None);
        assert_eq!(gate.admit(1, write(21)), Some(write(20)));
    }
}
