//! Who waits for a lock while nobody can have it.

use std::collections::{HashMap, VecDeque};

use crate::history::Mode;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) worker: Option<u32>,
    pub(super) mode: Mode,
    pub(super) asked: u64,
    /// By how much somebody came later who was granted it first, at most.
    pub(super) overtaken: u64,
}

/// A time for which somebody waited though nobody can have had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeWait {
    pub(super) claim: u64,
    pub(super) worker: Option<u32>,
    pub(super) asked: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl FreeWait {
    pub(super) fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// What became of a claim in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has nothing there.
    Gone,
    /// It was granted, and its lease may live until then.
    Lingers(u64),
    /// It may have been granted, and then its lease may live until then.
    Perhaps(u64),
}

/// A claim of which nobody knows whether it was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perhaps {
    pub(super) worker: Option<u32>,
    pub(super) asked: u64,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Whether it died, so that the store may offer it the lock in vain.
    pub(super) is_dead: bool,
}

/// The holders and waiters of one lock, with those who may have it without anybody's knowing: a
/// holder that died or that nobody can reach, a claim that was cancelled.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiters: HashMap<u64, Waiter>,
    holders: HashMap<u64, Mode>,
    /// Until when leases may live of which nobody will hear again.
    lingering: Vec<Lingering>,
    /// Claims that may have been granted, as far back as they are remembered.
    pub(super) perhaps: VecDeque<Perhaps>,
    /// Since when it has been free for those who want it exclusively or as a permit, and for
    /// those who share it.
    free: [Option<u64>; 2],
    /// Free waits that are not longer are not reported.
    pub(super) worth: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lingering {
    claim: u64,
    mode: Mode,
    until: u64,
}

/// Claims that may have been granted and are remembered.
const PERHAPS_MAX: usize = 10_000;

impl Queue {
    pub(super) fn ask(&mut self, claim: u64, waiter: Waiter) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(waiter.asked, &mut waits);
        self.waiters.insert(claim, waiter);
        self.settle(waiter.asked, &mut waits);
        waits
    }

    /// A grant has arrived. Where its end may not be heard of, it is given until when it may live.
    pub(super) fn grant(
        &mut self,
        claim: u64,
        mode: Mode,
        at: u64,
        until: Option<u64>,
    ) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(at, &mut waits);
        self.close(0, at, &mut waits);
        self.close(1, at, &mut waits);
        self.waiters.remove(&claim);
        match until {
            Some(until) => self.lingering.push(Lingering { claim, mode, until }),
            None => drop(self.holders.insert(claim, mode)),
        }
        self.settle(at, &mut waits);
        waits
    }

    /// The lease of which nobody may hear again lives longer.
    pub(super) fn prolong(&mut self, claim: u64, until: u64) {
        for lease in self.lingering.iter_mut().filter(|lease| lease.claim == claim) {
            lease.until = until;
        }
    }

    /// A waiter or holder is gone.
    pub(super) fn leave(&mut self, claim: u64, mode: Mode, at: u64, fate: Fate) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(at, &mut waits);
        if let Some(waiter) = self.waiters.remove(&claim)
            && let Some(since) = self.free[class(waiter.mode)]
        {
            self.report(claim, &waiter, since, at, &mut waits);
        }
        self.holders.remove(&claim);
        self.lingering.retain(|lease| lease.claim != claim);
        if let Fate::Lingers(until) = fate {
            self.lingering.push(Lingering { claim, mode, until });
        }
        self.settle(at, &mut waits);
        waits
    }

    /// Nobody will know whether a claim was granted.
    pub(super) fn doubt(&mut self, perhaps: Perhaps) {
        if self.perhaps.len() == PERHAPS_MAX {
            self.perhaps.pop_front();
        }
        self.perhaps.push_back(perhaps);
    }

    /// All who still wait have waited until now.
    pub(super) fn finish(&mut self, at: u64) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(at, &mut waits);
        self.close(0, at, &mut waits);
        self.close(1, at, &mut waits);
        waits
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Leases that cannot live any longer make it free from their end on.
    fn expire(&mut self, at: u64, waits: &mut Vec<FreeWait>) {
        self.lingering.sort_unstable_by_key(|lease| lease.until);
        while let Some(lease) = self.lingering.first().copied().filter(|l| l.until <= at) {
            self.lingering.remove(0);
            self.settle(lease.until, waits);
        }
    }

    fn settle(&mut self, at: u64, waits: &mut Vec<FreeWait>) {
        for class in [0, 1] {
            match (self.free[class], self.is_free(class)) {
                (None, true) => self.free[class] = Some(at),
                (Some(_), false) => self.close(class, at, waits),
                _ => {}
            }
        }
    }

    fn close(&mut self, class_of: usize, at: u64, waits: &mut Vec<FreeWait>) {
        let Some(since) = self.free[class_of].take() else { return };
        if at.saturating_sub(since) <= self.worth {
            return;
        }
        for (claim, waiter) in &self.waiters {
            if class(waiter.mode) == class_of {
                self.report(*claim, waiter, since, at, waits);
            }
        }
    }

    fn report(&self, claim: u64, waiter: &Waiter, since: u64, at: u64, to: &mut Vec<FreeWait>) {
        let from = since.max(waiter.asked);
        let wait = FreeWait { claim, worker: waiter.worker, asked: waiter.asked, from, to: at };
        if wait.length() > self.worth {
            to.push(wait);
        }
    }

    /// Whether somebody of this class could be let in. Whoever shares a lock with readers waits
    /// behind a writer that waits for these, so that is not free for anybody.
    fn is_free(&self, class: usize) -> bool {
        let modes = || self.holders.values().chain(self.lingering.iter().map(|lease| &lease.mode));
        let waiting = || self.waiters.values().map(|waiter| waiter.mode);
        let permits = modes().copied().chain(waiting()).find_map(|mode| match mode {
            Mode::Permits(permits) => Some(permits),
            Mode::Exclusive | Mode::Shared => None,
        });
        match permits {
            Some(permits) => modes().count() < permits as usize,
            None if class == 0 || waiting().any(|mode| mode == Mode::Exclusive) => {
                modes().next().is_none()
            }
            None => modes().all(|mode| *mode == Mode::Shared),
        }
    }
}

fn class(mode: Mode) -> usize {
    usize::from(mode == Mode::Shared)
}
