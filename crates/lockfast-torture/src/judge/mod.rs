//! Judges a history: fed with its events in order of time, it counts, and finds what was promised
//! never to be.
//!
//! A hold counts from the grant's arrival to the last moment at which its holder found it to be
//! its own, before its deadline. That lies within the real hold, so what is found is real; what a
//! holder did without looking is not seen.
//!
//! What is kept is bounded, apart from the faults: claims that are under way, the last 200 000 that
//! ended, and for each lock the grants since the last proof of whoever still holds it, 100 000
//! fences and 20 000 writes.

mod claim;
mod conclusion;
mod faults;
mod finding;
mod gate;
mod lock;
mod order;
mod queue;
mod revocation;
mod rule;
mod verdict;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

pub use faults::FaultSpan;
pub use finding::{Finding, Kind, Party, Ruling, Tally};
pub use verdict::{
    Counts, FreeWaits, Losses, Outcome, Overtaken, Run, TakeOver, VERDICT_FORMAT, Verdict, Writes,
};

use crate::history::{Event, Mode, What};
use claim::{Claim, Claims, Held};
use faults::Faults;
use finding::Findings;
use lock::{Crash, Lock, usage};
use queue::{Fate, Perhaps, Waiter};

/// How long a waiter may wait while its lock is free.
const FREE_WAIT_BOUND: u64 = 10 * SECOND;
/// How long a waiter that cannot answer may delay the others, each (P9).
const DEAD_WAITER_DELAY: u64 = 2 * SECOND;
/// How much later than its deadline a loss may be recorded, beyond the time in which the machine kept
/// the process from running: P3 allows nothing, but a worker blocks all its threads for 40 ms at
/// times, and two of its tasks may do so one after the other.
const TOLD_TOLERANCE: u64 = SECOND / 10;
/// Whoever was paused or is of a `run` and is not heard of for this long after its deadline is not
/// heard of again.
const OVERDUE: u64 = 120 * SECOND;
/// How long after an error a request may still reach the store.
const LATE_REQUEST: u64 = 10 * SECOND;
/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Names under which things are counted, at most; further ones are counted as `other`.
const NAMES_MAX: usize = 40;

/// Judges a history.
#[derive(Debug, Default)]
pub struct Judge {
    run: Option<Run>,
    ttl: u64,
    began: Option<u64>,
    now: u64,
    /// Whether the present event is before one that was fed already: then its place in the order
    /// of fences is not known.
    late: bool,
    claims: Claims,
    locks: Vec<Lock>,
    names: HashMap<String, usize>,
    faults: Faults,
    findings: Findings,
    counts: Counts,
    writes: Writes,
    losses: Losses,
    told: Vec<i64>,
    take_over: Option<TakeOver>,
    free_wait: FreeWaits,
    overtaken: Overtaken,
    killed: HashSet<u32>,
    is_over: bool,
    is_searched: bool,
}

impl Judge {
    /// Takes the next event, by time.
    pub fn feed(&mut self, event: &Event) {
        let (at, worker) = (event.at, event.worker);
        self.late = at < self.now;
        self.now = self.now.max(at);
        self.began = Some(self.began.map_or(at, |began| began.min(at)));
        self.counts.events += 1;
        match &event.what {
            What::Start { .. } => self.start(&event.what),
            What::Asked { claim, lock, mode, wait } => {
                self.ask(at, worker, *claim, lock, *mode, *wait);
            }
            What::NotGranted { claim, why } => self.not_granted(at, *claim, why),
            What::Granted { claim, fence, deadline } => self.grant(at, *claim, *fence, *deadline),
            What::Still { claim, deadline } => self.still(at, *claim, *deadline),
            What::Ended { .. } => self.end(at, &event.what),
            What::Released { claim, how } => self.released(at, *claim, how),
            What::Wrote { .. } => self.write(at, &event.what),
            What::Revoking { lock } => {
                let lock = self.lock(lock);
                self.locks[lock].revoking(worker, at);
            }
            What::Revoked { lock, how } => self.revoked(at, worker, lock, how),
            other => self.feed_rest(at, other),
        }
    }

    /// What the director records, and `run`.
    fn feed_rest(&mut self, at: u64, what: &What) {
        match what {
            What::WorkerStarted { worker, .. } => {
                self.counts.workers_started += 1;
                self.killed.remove(worker);
                self.bury(at, *worker, false);
            }
            What::WorkerKilled { worker } => {
                self.counts.workers_killed += 1;
                self.killed.insert(*worker);
                self.bury(at, *worker, true);
            }
            What::WorkerEnded { worker, code } => {
                self.bury(at, *worker, false);
                if *code != Some(0) && !self.killed.contains(worker) {
                    self.rule_failed(at, *worker, *code);
                }
            }
            What::Fault { number, fault, target, outage, beyond } => {
                self.forget_overdue(at);
                count(&mut self.counts.faults, fault);
                self.faults.begin(FaultSpan {
                    number: *number,
                    fault: fault.clone(),
                    target: target.clone(),
                    outage: *outage,
                    beyond: *beyond,
                    from: at,
                    until: None,
                });
            }
            What::Healed { number } => self.faults.heal(*number, at),
            What::RunStarted { claim, .. } => self.run_started(*claim),
            What::RunEnded { claim } => self.run_ended(at, *claim),
            What::Left { held, waited_for, processes } => {
                self.is_searched = true;
                self.rule_left(at, held, waited_for, processes);
            }
            What::End => self.is_over = true,
            _ => {}
        }
    }

    /// Whether the director has said that the run is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn start(&mut self, what: &What) {
        let What::Start { seed, store, guarantee, fair, ttl, processes, tasks, locks, .. } = what
        else {
            return;
        };
        self.ttl = *ttl;
        self.run = Some(Run {
            seed: *seed,
            store: store.clone(),
            guarantee: guarantee.clone(),
            fair: *fair,
            ttl: *ttl,
            processes: *processes,
            tasks: *tasks,
            locks: locks.clone(),
        });
    }

    fn lock(&mut self, name: &str) -> usize {
        if let Some(lock) = self.names.get(name) {
            return *lock;
        }
        self.locks.push(Lock::new(name));
        self.names.insert(name.to_owned(), self.locks.len() - 1);
        self.locks.len() - 1
    }

    fn ask(
        &mut self,
        at: u64,
        worker: Option<u32>,
        id: u64,
        lock: &str,
        mode: Mode,
        wait: Option<u64>,
    ) {
        self.counts.asked += 1;
        let number = self.lock(lock);
        let lock = &mut self.locks[number];
        let floor = lock.fences.highest().filter(|_| !self.late);
        self.claims.ask(Claim {
            id,
            lock: number,
            worker,
            mode,
            asked: at,
            floor,
            held: None,
            replaced: None,
            runs: false,
            ended: false,
        });
        if wait != Some(0) {
            let waits = lock.queue.ask(id, Waiter { worker, mode, asked: at, overtaken: 0 });
            for crash in &mut lock.crashes {
                crash.waited = crash.waited.or(Some(at));
            }
            self.weigh(number, waits);
        }
    }

    fn not_granted(&mut self, at: u64, id: u64, why: &str) {
        let Some(claim) = self.claims.close(id) else { return };
        count(&mut self.counts.not_granted, why);
        let may_be_granted = match why {
            "taken" => false,
            "cancelled" => self.faults.trouble(claim.worker),
            _ => true,
        };
        let fate = if may_be_granted { Fate::Perhaps(self.longest_life(at)) } else { Fate::Gone };
        self.leave(at, &claim, fate);
    }

    fn grant(&mut self, at: u64, id: u64, fence: u64, deadline: u64) {
        let Some(claim) = self.claims.get_mut(id).filter(|claim| claim.held.is_none()) else {
            return;
        };
        self.counts.granted += 1;
        claim.held = Some(Held { granted: at, fence, deadline, proof: at });
        let claim = claim.clone();
        self.rule_fence(&claim, at < deadline);
        self.note_order(at, &claim);
        let lock = &mut self.locks[claim.lock];
        if at < deadline {
            lock.holds.begin(id, usage(claim.mode), at);
        }
        let crashes = std::mem::take(&mut lock.crashes);
        let until = claim.runs.then(|| self.longest_life(at));
        let waits = self.locks[claim.lock].queue.grant(id, claim.mode, at, until);
        self.weigh(claim.lock, waits);
        self.take_over(at, &claim, &crashes);
    }

    fn still(&mut self, at: u64, id: u64, deadline: u64) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        let (lock, runs) = (claim.lock, claim.runs);
        let Some(held) = &mut claim.held else { return };
        held.deadline = held.deadline.max(deadline);
        if runs {
            let until = self.longest_life(at);
            self.locks[lock].queue.prolong(id, until);
        }
        self.prove(id, at, deadline);
    }

    /// The holder found it to be its own, at `at` unless that is past the deadline: then the
    /// process may have been stopped between its look and its line.
    fn prove(&mut self, id: u64, at: u64, deadline: u64) {
        let Some(claim) = self.claims.get_mut(id).filter(|claim| claim.is_held()) else { return };
        let Some(held) = claim.held.as_mut().filter(|held| at < deadline && at > held.proof) else {
            return;
        };
        held.proof = at;
        let lock = claim.lock;
        let replaced = claim.replaced;
        for clash in self.locks[lock].holds.prove(id, at) {
            self.rule_clash(lock, &clash);
        }
        if let Some(replaced) = replaced {
            self.rule_revoked(id, replaced, at);
        }
        self.findings.prolong(id, at);
    }

    fn end(&mut self, at: u64, what: &What) {
        let What::Ended { claim: id, how, cause, last, deadline, kept } = what else { return };
        let (id, deadline) = (*id, *deadline);
        let Some(claim) = self.claims.get_mut(id).filter(|claim| claim.is_held()) else { return };
        if let Some(held) = &mut claim.held {
            held.deadline = held.deadline.max(deadline);
        }
        count(&mut self.counts.ended, how);
        let is_lost = how == "lost";
        // Whoever is told of a loss has not looked since.
        if let Some(proof) = last.or((!is_lost).then_some(at)) {
            self.prove(id, proof, deadline);
        }
        let Some(claim) = self.claims.get_mut(id) else { return };
        claim.ended = true;
        let claim = claim.clone();
        self.locks[claim.lock].holds.end(id);
        self.findings.forget(id);
        if is_lost {
            let cause = cause.as_deref().unwrap_or("not told");
            self.lose(at, &claim, cause, deadline, kept.unwrap_or(0));
        }
        // The answer to a release says when it was free, and the end of a `run`.
        if how != "release" {
            self.claims.close(id);
            let unsure = is_lost || self.faults.trouble(claim.worker);
            self.leave(at, &claim, self.fate(at, &claim, unsure));
        }
    }

    fn released(&mut self, at: u64, id: u64, how: &str) {
        count(&mut self.counts.released, how);
        let Some(claim) = self.claims.close(id) else { return };
        if how == "released" && claim.replaced.is_some() {
            self.rule_unrevoked(&claim);
        }
        let is_known = ["released", "already_lost"].contains(&how);
        self.leave(at, &claim, self.fate(at, &claim, !is_known));
    }

    fn fate(&self, at: u64, claim: &Claim, unsure: bool) -> Fate {
        if unsure { Fate::Lingers(self.longest_life_of(claim, at)) } else { Fate::Gone }
    }

    fn leave(&mut self, at: u64, claim: &Claim, fate: Fate) {
        let queue = &mut self.locks[claim.lock].queue;
        let waits = queue.leave(claim.id, claim.mode, at, fate);
        if let Fate::Perhaps(until) = fate {
            let (worker, asked) = (claim.worker, claim.asked);
            queue.doubt(Perhaps { worker, asked, from: at, until, is_dead: false });
        }
        self.weigh(claim.lock, waits);
    }

    /// Until when a lease may live in the store whose holder could renew it until this moment (P9).
    fn longest_life(&self, at: u64) -> u64 {
        at.saturating_add(self.life())
    }

    /// The same of a claim that was last heard of at this moment. What is held up on its way renews
    /// it later, but not when it has ended (P8): that is at its deadline and the margin (P2).
    fn longest_life_of(&self, claim: &Claim, at: u64) -> u64 {
        let end = claim.held.map_or(0, |held| held.deadline + self.margin());
        self.longest_life(if self.faults.hold_up(claim.worker) { at.max(end) } else { at })
    }

    /// A command runs under the lock: its process has it now, which outlives the worker.
    fn run_started(&mut self, id: u64) {
        self.counts.runs += 1;
        if let Some(claim) = self.claims.reopen(id) {
            claim.runs = true;
        }
    }

    /// The command of a `run` is gone, and `run` has given the lock back.
    fn run_ended(&mut self, at: u64, id: u64) {
        if let Some(claim) = self.claims.close(id) {
            self.locks[claim.lock].holds.end(id);
            self.findings.forget(id);
            let fate = self.fate(at, &claim, self.faults.trouble(claim.worker));
            self.leave(at, &claim, fate);
        }
    }

    /// Claims of which nothing was heard for so long that nothing will be.
    fn forget_overdue(&mut self, at: u64) {
        for id in self.claims.overdue(at.saturating_sub(OVERDUE)) {
            let Some(claim) = self.claims.close(id) else { continue };
            self.locks[claim.lock].holds.end(id);
            self.findings.forget(id);
            self.leave(at, &claim, Fate::Gone);
        }
    }

    fn revoked(&mut self, at: u64, worker: Option<u32>, lock: &str, how: &str) {
        count(&mut self.counts.revoked, how);
        let lock = self.lock(lock);
        let is_known = ["revoked", "not_held", "other_fence"].contains(&how);
        let until = if is_known { at } else { at + LATE_REQUEST };
        let is_void = is_known && how != "revoked";
        self.locks[lock].revoked(worker, until, is_void);
    }

    /// A worker is no more: nothing will be heard of its claims.
    fn bury(&mut self, at: u64, worker: u32, killed: bool) {
        let claims = self.claims.of_worker(worker, at);
        let claims: Vec<Claim> = claims.iter().filter_map(|id| self.claims.close(*id)).collect();
        for claim in &claims {
            self.locks[claim.lock].holds.end(claim.id);
            self.findings.forget(claim.id);
            let until = self.longest_life_of(claim, at);
            if claim.held.is_some() {
                self.leave(at, claim, Fate::Lingers(until));
                continue;
            }
            self.leave(at, claim, Fate::Gone);
            let (worker, asked) = (claim.worker, claim.asked);
            let perhaps = Perhaps { worker, asked, from: at, until, is_dead: true };
            self.locks[claim.lock].queue.doubt(perhaps);
        }
        for claim in claims.iter().filter(|claim| killed && claim.mode == Mode::Exclusive) {
            let Some(held) = claim.held.filter(|_| !claim.ended) else { continue };
            let lock = &mut self.locks[claim.lock];
            let waited = lock.queue.is_waited_for().then_some(at);
            lock.crashes.push(Crash { killed: at, deadline: held.deadline, waited });
        }
        for lock in &mut self.locks {
            lock.abandon_revocations(worker, at + LATE_REQUEST);
        }
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    // Beyond the colon is detail, such as an address.
    let name = name.split(':').next().unwrap_or(name);
    let is_known = counts.contains_key(name) || counts.len() < NAMES_MAX;
    *counts.entry(if is_known { name } else { "other" }.to_owned()).or_default() += 1;
}

fn seconds(span: u64) -> f64 {
    span as f64 / SECOND as f64
}
