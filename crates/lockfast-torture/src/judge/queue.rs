//! Who waits for a lock while nobody can have it.

use std::collections::HashMap;

use crate::history::Mode;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) worker: Option<u32>,
    pub(super) mode: Mode,
    pub(super) asked: u64,
}

/// A time for which somebody waited though nobody can have had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeWait {
    pub(super) claim: u64,
    pub(super) worker: Option<u32>,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl FreeWait {
    pub(super) fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The holders and waiters of one lock, with those who may have it without anybody's knowing: a
/// holder that died or that nobody can reach, a claim that was cancelled.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiters: HashMap<u64, Waiter>,
    holders: HashMap<u64, Mode>,
    /// Until when leases may live of which nobody will hear again.
    lingering: Vec<(u64, Mode)>,
    /// When waiters died.
    pub(super) ghosts: Vec<u64>,
    /// Since when it has been free for those who want it exclusively or as a permit, and for
    /// those who share it.
    free: [Option<u64>; 2],
    /// Free waits that are not longer are not reported.
    pub(super) worth: u64,
}

/// Ghosts that are remembered.
const GHOSTS_MAX: usize = 1000;

impl Queue {
    pub(super) fn ask(&mut self, claim: u64, waiter: Waiter) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(waiter.asked, &mut waits);
        self.waiters.insert(claim, waiter);
        self.settle(waiter.asked, &mut waits);
        waits
    }

    pub(super) fn grant(&mut self, claim: u64, mode: Mode, at: u64) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(at, &mut waits);
        self.close(0, at, &mut waits);
        self.close(1, at, &mut waits);
        self.waiters.remove(&claim);
        self.holders.insert(claim, mode);
        self.settle(at, &mut waits);
        waits
    }

    /// A waiter or holder is gone; its lease may linger in the store.
    pub(super) fn leave(
        &mut self,
        claim: u64,
        mode: Mode,
        at: u64,
        lingers: Option<u64>,
    ) -> Vec<FreeWait> {
        let mut waits = Vec::new();
        self.expire(at, &mut waits);
        if let Some(waiter) = self.waiters.remove(&claim)
            && let Some(since) = self.free[class(waiter.mode)]
        {
            self.report(claim, &waiter, since, at, &mut waits);
        }
        self.holders.remove(&claim);
        self.lingering.extend(lingers.map(|until| (until, mode)));
        self.settle(at, &mut waits);
        waits
    }

    /// A waiter died, which the store may not know.
    pub(super) fn haunt(&mut self, at: u64) {
        if self.ghosts.len() == GHOSTS_MAX {
            self.ghosts.remove(0);
        }
        self.ghosts.push(at);
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
        self.lingering.sort_unstable_by_key(|(until, _)| *until);
        while let Some((until, _)) = self.lingering.first().copied().filter(|(u, _)| *u <= at) {
            self.lingering.remove(0);
            self.settle(until, waits);
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
        let wait = FreeWait { claim, worker: waiter.worker, from, to: at };
        if wait.length() > self.worth {
            to.push(wait);
        }
    }

    /// Whether somebody of this class could be let in. Whoever shares a lock with readers waits
    /// behind a writer that waits for these, so that is not free for anybody.
    fn is_free(&self, class: usize) -> bool {
        let modes = || self.holders.values().chain(self.lingering.iter().map(|(_, mode)| mode));
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
