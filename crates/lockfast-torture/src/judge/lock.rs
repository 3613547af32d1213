//! What is known of one lock.

use lockfast_faults::history::{Fences, Holds, Use};

use super::gate::Gate;
use super::queue::Queue;
use crate::history::Mode;

/// One lock.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) holds: Holds,
    pub(super) fences: Fences,
    pub(super) queue: Queue,
    pub(super) gate: Gate,
    pub(super) crashes: Vec<Crash>,
    revocations: Vec<Revocation>,
}

/// A holder that died.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) killed: u64,
    pub(super) deadline: u64,
    /// Since when somebody has waited for what it held.
    pub(super) waited: Option<u64>,
}

/// The time in which a revocation may have taken effect.
#[derive(Clone, Copy, Debug)]
struct Revocation {
    worker: Option<u32>,
    from: u64,
    until: Option<u64>,
    /// Whether the store said that it had nothing to take away.
    is_void: bool,
}

/// Revocations that are remembered.
const REVOCATIONS_MAX: usize = 1000;

impl Lock {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(super) fn revoking(&mut self, worker: Option<u32>, at: u64) {
        if self.revocations.len() == REVOCATIONS_MAX {
            self.revocations.remove(0);
        }
        self.revocations.push(Revocation { worker, from: at, until: None, is_void: false });
    }

    /// The answer to a revocation, which had its effect before this moment if it had any.
    pub(super) fn revoked(&mut self, worker: Option<u32>, until: u64, is_void: bool) {
        let mut its = self.revocations.iter_mut().rev();
        if let Some(its) = its.find(|r| r.until.is_none() && r.worker == worker) {
            its.until = Some(until);
            its.is_void = is_void;
        }
    }

    /// Whether a worker waited for the answer to a revocation at some time between: the holder that
    /// asked for it does nothing else meanwhile.
    pub(super) fn is_revoking(&self, worker: Option<u32>, from: u64, to: u64) -> bool {
        let mut its = self.revocations.iter().filter(|r| r.worker == worker);
        its.any(|r| r.from <= to && r.until.is_none_or(|until| until >= from))
    }

    /// Nobody will hear whether the revocations of this worker took effect.
    pub(super) fn abandon_revocations(&mut self, worker: u32, until: u64) {
        let its = self.revocations.iter_mut().filter(|r| r.worker == Some(worker));
        its.filter(|r| r.until.is_none()).for_each(|r| r.until = Some(until));
    }

    /// Whether a holder since `granted` may have been revoked before `at`, not longer ago than a
    /// lease can live after that.
    pub(super) fn may_be_revoked(&self, granted: u64, at: u64, ttl: u64) -> bool {
        self.revocations.iter().any(|revocation| {
            let until = revocation.until.unwrap_or(at);
            !revocation.is_void
                && revocation.from <= at
                && granted <= until
                && at <= until.saturating_add(ttl)
        })
    }
}

pub(super) fn usage(mode: Mode) -> Use {
    match mode {
        Mode::Exclusive => Use::Exclusive,
        Mode::Shared => Use::Shared,
        Mode::Permits(permits) => Use::Permit(permits),
    }
}
