//! The claims that are under way.

use std::collections::{HashMap, VecDeque};

use super::finding::Party;
use crate::history::Mode;

/// Claims that have ended and whose lock is still known, for what is recorded about them later.
const CLOSED_MAX: usize = 200_000;

/// One acquisition.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) id: u64,
    pub(super) lock: usize,
    pub(super) worker: Option<u32>,
    pub(super) mode: Mode,
    pub(super) asked: u64,
    /// The highest fence that had arrived by then, and whose: this one's is granted later.
    pub(super) floor: Option<(u64, u64)>,
    pub(super) held: Option<Held>,
    /// When another had it after a revocation that may have been of this one.
    pub(super) replaced: Option<u64>,
    /// Whether a process of its own has it, which outlives the worker.
    pub(super) runs: bool,
    /// Whether its holder has given it back or lost it, and only an answer is missing.
    pub(super) ended: bool,
}

/// What is known of a hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) granted: u64,
    pub(super) fence: u64,
    pub(super) deadline: u64,
    pub(super) proof: u64,
}

impl Claim {
    pub(super) fn party(&self) -> Party {
        Party {
            claim: self.id,
            worker: self.worker,
            mode: self.mode,
            fence: self.held.map(|held| held.fence),
            asked: self.asked,
            granted: self.held.map(|held| held.granted),
            proof: self.held.map(|held| held.proof),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some() && !self.ended
    }
}

/// Claims by their number, and the last that have ended.
#[derive(Debug, Default)]
pub(super) struct Claims {
    open: HashMap<u64, Claim>,
    closed: HashMap<u64, Claim>,
    order: VecDeque<u64>,
}

impl Claims {
    pub(super) fn ask(&mut self, claim: Claim) {
        self.open.insert(claim.id, claim);
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Claim> {
        self.open.get_mut(&id)
    }

    /// Open, or closed not too long ago.
    pub(super) fn find(&self, id: u64) -> Option<&Claim> {
        self.open.get(&id).or_else(|| self.closed.get(&id))
    }

    pub(super) fn close(&mut self, id: u64) -> Option<Claim> {
        let claim = self.open.remove(&id)?;
        self.closed.insert(id, claim.clone());
        self.order.push_back(id);
        if self.order.len() > CLOSED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.closed.remove(&oldest);
        }
        Some(claim)
    }

    /// A claim goes on of which nobody was expected to hear again.
    pub(super) fn reopen(&mut self, id: u64) -> Option<&mut Claim> {
        if let Some(claim) = self.closed.get(&id).filter(|claim| claim.held.is_none()) {
            self.open.insert(id, claim.clone());
            self.closed.remove(&id);
        }
        self.open.get_mut(&id)
    }

    /// The claims whose deadline was before this moment, by number.
    pub(super) fn overdue(&self, before: u64) -> Vec<u64> {
        let is_overdue = |claim: &&Claim| claim.held.is_some_and(|held| held.deadline < before);
        let overdue = self.open.values().filter(is_overdue);
        let mut ids: Vec<u64> = overdue.map(|claim| claim.id).collect();
        ids.sort_unstable();
        ids
    }

    /// The claims of a worker that were made before this moment, by number.
    pub(super) fn of_worker(&self, worker: u32, before: u64) -> Vec<u64> {
        let its =
            |claim: &&Claim| claim.worker == Some(worker) && claim.asked < before && !claim.runs;
        let mut ids: Vec<u64> = self.open.values().filter(its).map(|claim| claim.id).collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn held(&self) -> u64 {
        self.open.values().filter(|claim| claim.is_held()).count() as u64
    }

    pub(super) fn waiting(&self) -> u64 {
        self.open.values().filter(|claim| claim.held.is_none()).count() as u64
    }
}
