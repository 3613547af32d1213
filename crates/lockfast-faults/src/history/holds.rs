//! The overlap checker: fed with grants and proofs in order of time, it tells of two that held
//! what only one may hold. What it keeps is bounded by what a later proof could still meet.

use std::collections::{BTreeMap, VecDeque};

/// Grants that a later proof could meet are kept up to this number: as many follow each other
/// while one holder is paused for minutes.
const STARTS_MAX: usize = 200_000;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Beside nobody.
    Exclusive,
    /// Beside others who share it.
    Shared,
    /// As one of so many.
    Permit(u32),
}

impl Use {
    /// Whether two must not hold at the same time, however many others do.
    pub fn excludes(self, other: Self) -> bool {
        !matches!((self, other), (Self::Shared, Self::Shared) | (Self::Permit(_), Self::Permit(_)))
    }
}

/// Two holds at once, one of which should not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Who held it already.
    pub earlier: u64,
    /// Who was granted it besides.
    pub later: u64,
    /// When that grant had arrived.
    pub at: u64,
    /// How many held it then, when permits were exceeded; none when they excluded each other.
    pub at_once: Option<usize>,
}

/// Holds of one lock. A hold begins when the grant had arrived and lasts until it was last proved.
#[derive(Debug, Default)]
pub struct Holds {
    open: BTreeMap<u64, Open>,
    /// By time. Those before the last proof of all that are open can be met no more.
    starts: VecDeque<Start>,
    most: usize,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    usage: Use,
    proof: u64,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    id: u64,
    usage: Use,
    at: u64,
    /// How many others are known to have held it at that moment.
    beside: usize,
}

impl Holds {
    /// A grant had arrived. The id is new.
    pub fn begin(&mut self, id: u64, usage: Use, at: u64) {
        self.open.insert(id, Open { usage, proof: at });
        let place = self.starts.partition_point(|start| start.at <= at);
        self.starts.insert(place, Start { id, usage, at, beside: 0 });
        self.most = self.most.max(1);
        if self.starts.len() > STARTS_MAX {
            self.starts.pop_front();
            self.forgotten += 1;
        }
    }

    /// Its holder still had it at this moment. Returns the grants that it met.
    pub fn prove(&mut self, id: u64, at: u64) -> Vec<Clash> {
        let Some(holder) = self.open.get_mut(&id) else { return Vec::new() };
        if at <= holder.proof {
            return Vec::new();
        }
        let (from, usage) = (holder.proof, holder.usage);
        holder.proof = at;
        let first = self.starts.partition_point(|start| start.at < from);
        let met = self.starts.iter_mut().skip(first).take_while(|start| start.at < at);
        let mut clashes = Vec::new();
        for start in met.filter(|start| start.id != id) {
            start.beside += 1;
            self.most = self.most.max(start.beside + 1);
            let exceeded = match start.usage {
                // Told once: when the first is too many.
                Use::Permit(permits) => start.beside == permits as usize,
                _ => false,
            };
            let excluded = usage.excludes(start.usage);
            if excluded || exceeded {
                let at_once = (!excluded).then_some(start.beside + 1);
                clashes.push(Clash { earlier: id, later: start.id, at: start.at, at_once });
            }
        }
        self.forget();
        clashes
    }

    /// There will be no further proof of it.
    pub fn end(&mut self, id: u64) {
        if self.open.remove(&id).is_some() {
            self.forget();
        }
    }

    /// When its holder last had it, if it may still have it.
    pub fn proof(&self, id: u64) -> Option<u64> {
        self.open.get(&id).map(|open| open.proof)
    }

    /// How many held it at once, at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many grants were forgotten though a later proof could have met them.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget(&mut self) {
        let oldest = self.open.values().map(|open| open.proof).min().unwrap_or(u64::MAX);
        while self.starts.front().is_some_and(|start| start.at < oldest) {
            self.starts.pop_front();
        }
    }
}

/// The fences of one lock, in the order in which their grants arrived.
#[derive(Debug, Default)]
pub struct Fences {
    seen: BTreeMap<u64, u64>,
    highest: Option<(u64, u64)>,
    highest_exclusive: Option<(u64, u64)>,
}

/// Fences that are compared one by one; all lower ones only with the highest.
const FENCES_MAX: usize = 100_000;

impl Fences {
    /// The highest that has arrived, and whose it is.
    pub fn highest(&self) -> Option<(u64, u64)> {
        self.highest
    }

    /// A grant had arrived. Returns whose fence should have been lower and is not: one with the
    /// same fence, or an earlier one that excludes this one. Of two that do not, the one that was
    /// granted first may be the last to hear of it.
    pub fn arrive(&mut self, id: u64, usage: Use, fence: u64) -> Option<u64> {
        let twin = self.seen.insert(fence, id);
        if self.seen.len() > FENCES_MAX {
            self.seen.pop_first();
        }
        let exclusive = usage == Use::Exclusive;
        let rival = if exclusive { self.highest } else { self.highest_exclusive };
        let above = rival.filter(|(highest, _)| *highest > fence).map(|(_, id)| id);
        self.highest = self.highest.max(Some((fence, id)));
        if exclusive {
            self.highest_exclusive = self.highest_exclusive.max(Some((fence, id)));
        }
        twin.or(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_meets_the_grants_before_it() {
        let mut holds = Holds::default();
        holds.begin(1, Use::Exclusive, 10);
        assert_eq!(holds.prove(1, 20), []);
        holds.begin(2, Use::Exclusive, 30);
        holds.begin(3, Use::Exclusive, 40);
        let clash = |earlier, later, at| Clash { earlier, later, at, at_once: None };
        assert_eq!(holds.prove(2, 41), [clash(2, 3, 40)]);
        assert_eq!(holds.prove(1, 50), [clash(1, 2, 30), clash(1, 3, 40)]);
        assert_eq!(holds.prove(1, 60), [], "each is told once");
        assert_eq!(holds.most(), 3);
    }

    #[test]
    fn nothing_is_kept_that_cannot_be_met() {
        let mut holds = Holds::default();
        for id in 0..1000 {
            holds.begin(id, Use::Exclusive, 10 * id);
            assert_eq!(holds.prove(id, 10 * id + 9), []);
            holds.end(id);
        }
        assert!(holds.starts.is_empty() && holds.open.is_empty());
        holds.begin(5000, Use::Exclusive, 20_000);
        for id in 6000..7000 {
            holds.begin(id, Use::Exclusive, 10 * id);
            holds.end(id);
        }
        assert_eq!(holds.starts.len(), 1001, "a paused holder could meet all of them");
        assert_eq!(holds.prove(5000, 69_000).len(), 900);
        assert_eq!(holds.starts.len(), 100);
        assert_eq!(holds.forgotten(), 0);
    }

    #[test]
    fn permits_are_counted() {
        let mut holds = Holds::default();
        for id in 1..=3 {
            holds.begin(id, Use::Permit(2), id);
        }
        assert_eq!(holds.prove(1, 10), []);
        let clash = Clash { earlier: 2, later: 3, at: 3, at_once: Some(3) };
        assert_eq!(holds.prove(2, 10), [clash]);
        assert_eq!(holds.prove(3, 10), []);
    }
}
