//! Whether what was found breaks a promise, in words that a person can follow.

use lockfast_faults::history::Clash;

use super::claim::Claim;
use super::faults::FaultSpan;
use super::finding::{Finding, Kind, Party, Ruling};
use super::gate::Write;
use super::lock::Crash;
use super::queue::{FreeWait, Perhaps};
use super::verdict::TakeOver;
use super::{DEAD_WAITER_DELAY, FREE_WAIT_BOUND, Judge, SECOND, TOLD_TOLERANCE, count, seconds};
use crate::history::{Mode, What};

/// Losses whose times are kept for the median.
const TOLD_MAX: usize = 100_000;

/// Claims that are named in one finding of those who starved together.
const STARVED_MAX: usize = 20;

impl Judge {
    /// How long a holder may believe in its lease after the last renewal (P2, P3): the fleet extends
    /// leases to one and a half ttl at most.
    pub(super) fn belief(&self) -> u64 {
        self.ttl * 3 / 2
    }

    /// How long a lease may live in the store after the last renewal, until it is free (P9).
    pub(super) fn life(&self) -> u64 {
        self.belief() + SECOND
    }

    /// How much longer than its holder believes the store keeps a lease (P2).
    pub(super) fn margin(&self) -> u64 {
        self.belief() / 100 + 2 * SECOND / 1000
    }

    pub(super) fn since_start(&self, at: u64) -> f64 {
        seconds(at.saturating_sub(self.began.unwrap_or(at)))
    }

    pub(super) fn report(&mut self, kind: Kind, lock: Option<usize>, text: String, found: Found) {
        let Found { span: (from, until), parties, ruling, reason } = found;
        let faults = self.faults.around(from, until, self.life());
        let lock = lock.map(|lock| self.locks[lock].name.clone());
        self.findings.add(Finding {
            kind,
            ruling,
            text,
            reason,
            lock,
            from,
            until,
            parties,
            faults,
        });
    }

    fn parties(&self, claims: &[u64]) -> Vec<Party> {
        claims.iter().filter_map(|id| self.claims.find(*id)).map(Claim::party).collect()
    }

    /// Whether it may be that two are granted the same lock: one of them was revoked, or a fault
    /// goes beyond what the store promises. The one with the lower fence was granted it first, at
    /// some time after it had asked.
    fn rule_double(&self, lock: usize, asked: u64, at: u64) -> (Ruling, String) {
        if self.locks[lock].may_be_revoked(asked, at, self.belief()) {
            let reason = "the lock was revoked, and the next is let in before the holder is told";
            return (Ruling::Revoked, reason.to_owned());
        }
        self.rule_unexcused(at)
    }

    pub(super) fn rule_unexcused(&self, at: u64) -> (Ruling, String) {
        let guarantee = self.run.as_ref().map_or("nothing", |run| run.guarantee.as_str());
        match self.faults.beyond(at, self.belief()) {
            Some(fault) => {
                let reason = format!(
                    "the store promises {guarantee}, which does not cover {} of {}",
                    fault.fault, fault.target
                );
                (Ruling::Allowed, reason)
            }
            None => {
                let reason = format!(
                    "the store promises {guarantee}, and no fault before it goes beyond that"
                );
                (Ruling::Broken, reason)
            }
        }
    }

    pub(super) fn rule_clash(&mut self, lock: usize, clash: &Clash) {
        let parties = self.parties(&[clash.earlier, clash.later]);
        let modes: Vec<Mode> = parties.iter().map(|party| party.mode).collect();
        let kind = match clash.at_once {
            Some(_) => Kind::PermitsExceeded,
            None if modes.contains(&Mode::Shared) => Kind::ReaderBesideWriter,
            None => Kind::Overlap,
        };
        let loser = parties.iter().min_by_key(|party| party.fence).cloned();
        let asked = loser.as_ref().map_or(clash.at, |loser| loser.asked);
        let ends = parties.iter().filter_map(|party| party.proof);
        let until = ends.min().unwrap_or(clash.at).max(clash.at);
        let (ruling, reason) = self.rule_double(lock, asked, clash.at);
        if let Some(loser) = loser.filter(|_| ruling == Ruling::Revoked && clash.at_once.is_none())
        {
            self.replace(loser.claim, clash.at);
        }
        let (name, at) = (&self.locks[lock].name, self.since_start(clash.at));
        let (first, second) = (who(&parties, clash.earlier), who(&parties, clash.later));
        let text = match (clash.at_once, kind) {
            (Some(count), _) => format!(
                "{count} held \"{name}\" at {at:.3} s, more than it has permits: {second} was let \
                 in while {first} had it"
            ),
            (None, Kind::ReaderBesideWriter) => {
                format!(
                    "a reader was beside a writer of \"{name}\" at {at:.3} s: {first}, {second}"
                )
            }
            _ => format!("two held \"{name}\" at {at:.3} s: {first}, {second}"),
        };
        self.report(
            kind,
            Some(lock),
            text,
            Found { span: (clash.at, until), parties, ruling, reason },
        );
    }

    /// The fence of a grant that has arrived, in time if it is a hold.
    pub(super) fn rule_fence(&mut self, claim: &Claim, in_time: bool) {
        let Some(held) = claim.held else { return };
        let lock = claim.lock;
        let earlier =
            self.locks[lock].fences.arrive(claim.id, super::usage(claim.mode), held.fence);
        let (earlier, ruling, reason) = match (claim.floor, earlier) {
            (Some((fence, id)), _) if fence >= held.fence => (
                id,
                Ruling::Broken,
                "it was asked for after the other grant had arrived".to_owned(),
            ),
            (_, Some(id)) if self.fence(id) == Some(held.fence) => {
                (id, Ruling::Broken, "no two grants of a lock may share a fence".to_owned())
            }
            (_, Some(id)) if in_time && !self.late => {
                let (ruling, reason) = self.rule_double(lock, claim.asked, held.granted);
                if ruling == Ruling::Revoked {
                    self.replace(claim.id, held.granted);
                }
                (id, ruling, format!("the grants exclude each other; {reason}"))
            }
            _ => return,
        };
        let parties = self.parties(&[earlier, claim.id]);
        let text = format!(
            "the fences of \"{}\" did not rise at {:.3} s: after {} came {}",
            self.locks[lock].name,
            self.since_start(held.granted),
            who(&parties, earlier),
            who(&parties, claim.id),
        );
        let span = (held.granted, held.granted);
        self.report(
            Kind::FenceNotRising,
            Some(lock),
            text,
            Found { span, parties, ruling, reason },
        );
    }

    fn fence(&self, id: u64) -> Option<u64> {
        self.claims.find(id)?.held.map(|held| held.fence)
    }

    pub(super) fn write(&mut self, at: u64, what: &What) {
        let What::Wrote { claim: id, fence, admitted, highest, number } = what else { return };
        self.writes.tried += 1;
        if !admitted {
            self.writes.refused += 1;
            return;
        }
        self.writes.admitted += 1;
        let Some(lock) = self.claims.find(*id).map(|claim| claim.lock) else { return };
        let other = self.locks[lock].gate.admit(*number, Write { claim: *id, fence: *fence });
        if other.is_none() && fence >= highest {
            return;
        }
        self.writes.stale_admitted += 1;
        let mut parties = self.parties(&[*id]);
        parties.extend(other.iter().flat_map(|other| self.parties(&[other.claim])));
        let found = Found {
            span: (at, at),
            parties,
            ruling: Ruling::Broken,
            reason: "what checks fences lets none through after a higher one".to_owned(),
        };
        let above = other.map_or(*highest, |other| other.fence);
        let text = format!(
            "write {number} to what \"{}\" guards was let through with fence {fence} beside one \
             with {above}, at {:.3} s",
            self.locks[lock].name,
            self.since_start(at),
        );
        self.report(Kind::StaleWrite, Some(lock), text, found);
    }

    /// A holder was told of a loss. The machine may have kept it from running for a part of the time
    /// since its deadline, as a pause does.
    pub(super) fn lose(&mut self, at: u64, claim: &Claim, cause: &str, deadline: u64, kept: u64) {
        self.losses.count += 1;
        count(&mut self.losses.causes, cause);
        if at > deadline && self.locks[claim.lock].is_revoking(claim.worker, deadline, at) {
            return;
        }
        let stopped = self.faults.time_within(
            deadline,
            at,
            |fault| fault.stops(claim.worker),
            [].into_iter(),
        );
        let after = at.saturating_sub(deadline).saturating_sub(stopped.max(kept));
        let before = i64::try_from(deadline.saturating_sub(at)).unwrap_or(i64::MAX);
        if self.told.len() < TOLD_MAX {
            self.told.push(before - i64::try_from(after).unwrap_or(i64::MAX));
        }
        if after <= TOLD_TOLERANCE {
            return;
        }
        self.losses.late += 1;
        let text = format!(
            "{} was told of the loss of \"{}\" {:.3} s after its deadline, at {:.3} s",
            who(&[claim.party()], claim.id),
            self.locks[claim.lock].name,
            seconds(after),
            self.since_start(at),
        );
        let found = Found {
            span: (deadline, at),
            parties: vec![claim.party()],
            ruling: Ruling::Broken,
            reason: "a loss is told at the deadline at the latest, unless the process cannot run"
                .to_owned(),
        };
        self.report(Kind::LossToldLate, Some(claim.lock), text, found);
    }

    pub(super) fn take_over(&mut self, at: u64, next: &Claim, crashes: &[Crash]) {
        // Whoever is stopped or cut off itself takes nothing over meanwhile.
        let is_excuse = |fault: &FaultSpan| fault.outage || fault.concerns(next.worker);
        for crash in crashes {
            let Some(waited) = crash.waited else { continue };
            let from = crash.killed.max(waited);
            let took = at.saturating_sub(from);
            let outage = self.faults.time_within(from, at, is_excuse, [].into_iter());
            let after = i128::from(at) - i128::from(crash.deadline);
            let count = self.take_over.as_ref().map_or(0, |known| known.count) + 1;
            let found = TakeOver {
                lock: self.locks[next.lock].name.clone(),
                took,
                took_without_outages: took - outage.min(took),
                after_deadline: i64::try_from(after).unwrap_or_default(),
                at,
                count,
            };
            match &mut self.take_over {
                Some(known) if known.took_without_outages >= found.took_without_outages => {
                    known.count = count;
                }
                known => *known = Some(found),
            }
        }
    }

    /// How much of what somebody waited while the lock was free has no excuse.
    pub(super) fn weigh(&mut self, lock: usize, waits: Vec<FreeWait>) {
        for wait in waits {
            let (from, to) = (wait.from, wait.to);
            let is_excuse = |fault: &FaultSpan| {
                fault.outage || fault.concerns(wait.worker) || fault.is_clock_of_server()
            };
            let perhaps = self.ahead(lock, &wait).map(|other| {
                let arrival = self.faults.arrival(other.worker, other.from);
                (other.from, other.until.max(self.longest_life(arrival)))
            });
            let excused = self.faults.time_within(from, to, is_excuse, perhaps);
            let delays = DEAD_WAITER_DELAY * self.dead_waiters(lock, &wait);
            let counted = wait.length().saturating_sub(excused).saturating_sub(delays);
            self.free_wait.longest = self.free_wait.longest.max(wait.length());
            if counted > self.free_wait.longest_counted {
                self.free_wait.longest_counted = counted;
                self.free_wait.lock = Some(self.locks[lock].name.clone());
                self.free_wait.at = to;
            }
            if counted > FREE_WAIT_BOUND {
                self.rule_starved(lock, &wait, counted);
            }
        }
        let worth = self.free_wait.longest_counted.min(FREE_WAIT_BOUND);
        self.locks[lock].queue.worth = worth;
    }

    /// Whether somebody who asked then may be served before the waiter.
    fn may_be_ahead(&self, asked: u64, wait: &FreeWait) -> bool {
        asked < wait.asked || !self.run.as_ref().is_some_and(|run| run.fair)
    }

    /// Those who may have been granted it before the waiter without anybody's knowing.
    fn ahead(&self, lock: usize, wait: &FreeWait) -> impl Iterator<Item = &Perhaps> {
        let perhaps = self.locks[lock].queue.perhaps.iter();
        perhaps.filter(|other| self.may_be_ahead(other.asked, wait))
    }

    /// How many others may have been offered it first though they could not answer.
    fn dead_waiters(&self, lock: usize, wait: &FreeWait) -> u64 {
        let others = self.locks[lock].queue.waiters.iter();
        let troubled = others.filter(|(claim, other)| {
            **claim != wait.claim
                && self.may_be_ahead(other.asked, wait)
                && self.faults.troubled_within(wait.from, wait.to, other.worker)
        });
        let since = wait.from.saturating_sub(self.life());
        let dead = self.ahead(lock, wait).filter(|other| other.is_dead);
        let dead = dead.filter(|other| (since..=wait.to).contains(&other.from));
        (troubled.count() + dead.count()) as u64
    }

    fn rule_starved(&mut self, lock: usize, wait: &FreeWait, counted: u64) {
        let parties = self.parties(&[wait.claim]);
        let name = self.locks[lock].name.clone();
        // Those who waited together are one finding.
        if let Some(known) = self.findings.last_mut(Kind::Starved, &name)
            && known.until >= wait.from
        {
            known.until = known.until.max(wait.to);
            if known.parties.len() < STARVED_MAX {
                known.parties.extend(parties);
            }
            return;
        }
        let text = format!(
            "{} waited {:.3} s for \"{name}\" while it was free, until {:.3} s",
            who(&parties, wait.claim),
            seconds(counted),
            self.since_start(wait.to),
        );
        let found = Found {
            span: (wait.from, wait.to),
            parties,
            ruling: Ruling::Broken,
            reason: format!(
                "without outages, its own faults and leases that could have lived, nobody waits \
                 for more than {} s",
                FREE_WAIT_BOUND / SECOND
            ),
        };
        self.report(Kind::Starved, Some(lock), text, found);
    }

    pub(super) fn rule_left(
        &mut self,
        at: u64,
        held: &[String],
        waited_for: &[String],
        processes: &[u32],
    ) {
        let found = |reason: &str| Found {
            span: (at, at),
            parties: Vec::new(),
            ruling: Ruling::Broken,
            reason: reason.to_owned(),
        };
        for name in held {
            let lock = self.lock(name);
            let text = format!("\"{name}\" is held though all workers have ended");
            let found = found("all leases must have ended by then");
            self.report(Kind::HeldAtEnd, Some(lock), text, found);
        }
        for name in waited_for {
            let lock = self.lock(name);
            let text = format!("\"{name}\" is waited for though all workers have ended");
            let found = found("what waited must have left the store's queue by then");
            self.report(Kind::WaitedForAtEnd, Some(lock), text, found);
        }
        for pid in processes {
            let text = format!("process {pid}, started by `lockfast run`, was left running");
            let found = found("a command does not outlive the lock under which it runs");
            self.report(Kind::ProcessLeft, None, text, found);
        }
    }

    pub(super) fn rule_failed(&mut self, at: u64, worker: u32, code: Option<i32>) {
        let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
        let text = format!("worker {worker} ended {how} at {:.3} s", self.since_start(at));
        let found = Found {
            span: (at, at),
            parties: Vec::new(),
            ruling: Ruling::Broken,
            reason: "nobody had told it to end".to_owned(),
        };
        self.report(Kind::WorkerFailed, None, text, found);
    }
}

/// What there is to say about a finding.
pub(super) struct Found {
    pub(super) span: (u64, u64),
    pub(super) parties: Vec<Party>,
    pub(super) ruling: Ruling,
    pub(super) reason: String,
}

/// A claim, for people.
pub(super) fn who(parties: &[Party], claim: u64) -> String {
    let Some(party) = parties.iter().find(|party| party.claim == claim) else {
        return format!("claim {claim}");
    };
    let worker = match party.worker {
        Some(worker) => format!("worker {worker}"),
        None => "a `run`".to_owned(),
    };
    match party.fence {
        Some(fence) => format!("{worker} (claim {claim}, fence {fence})"),
        None => format!("{worker} (claim {claim})"),
    }
}
