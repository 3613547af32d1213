//! The rounds of an acquisition: a proposal to all nodes, and what their votes lead to. It goes
//! on where the deciding vote arrives, so that nobody has to be woken for it in between.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use lockfast_core::{AcquireRequest, ErrorKind, Fence, Grant, Moment, Retry, Wait, jitter};

use crate::ballot::{Ballot, Said, Verdict};
use crate::batch::{Op, Take, Tries};
use crate::claim::{Asker, Claim, Manner, Outcome, Phase, State, tell_all};
use crate::clerk::Pending;
use crate::giving::Ending;
use crate::lobby::Why;
use crate::store::Store;
use crate::wire::Failure;

/// How often one of those who wait here looks although nobody called it: whoever was called may
/// hang, and delays nobody for longer than two seconds.
const POLL: Duration = Duration::from_millis(1300);
/// The same behind a holder that is not Lockfast and calls nobody.
const POLL_FOREIGN: Duration = Duration::from_millis(500);
/// A lock is free one tick of a node's clock after its time is up.
const TICK: Duration = Duration::from_millis(1);
/// Those who wait for an expiry try one after the other.
const PLACE_STEP: Duration = Duration::from_millis(60);
/// How long a waiter that was called waits for the calls of other nodes.
const CALL_DELAY: Duration = Duration::from_millis(4);
/// When the second in line tries, in case the first does not.
const STANDBY_DELAY: Duration = Duration::from_millis(300);
/// The mean time before a try that met others who tried is repeated, and how often it is.
const RETRY_DELAY: Duration = Duration::from_millis(12);
const MISSES_MAX: u32 = 3;
const RAISES_MAX: u32 = 8;
/// How often nodes that do not answer are asked again while somebody waits, and for how long.
const OUTAGE_POLL: Duration = Duration::from_millis(300);
const OUTAGE_MAX: Duration = Duration::from_secs(30);

/// Why a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Ask,
    /// A quorum would grant a fence above this one.
    Raise(u64),
}

impl Store {
    /// Begins an acquisition.
    pub(crate) fn acquire(self: &Arc<Self>, request: AcquireRequest, asker: Asker) {
        let claim = Arc::new(Claim::new(request, self.nodes.len(), asker));
        if let Some(earlier) = self.remember(&claim) {
            self.lobby.take(claim.holder);
            claim.succeed(&earlier);
        }
        self.begin(&claim, Cause::Ask);
    }

    /// Tries again, for the last time if the wait is over.
    pub(crate) fn retry(self: &Arc<Self>, claim: &Arc<Claim>) {
        if claim.state().is_wanted() {
            self.begin(claim, Cause::Ask);
        } else {
            self.give_up(claim, Ending::Claim);
        }
    }

    fn begin(self: &Arc<Self>, claim: &Arc<Claim>, cause: Cause) {
        let (above, correction_us) = match cause {
            Cause::Ask => (0, 0),
            Cause::Raise(above) => (above, claim.state().correction_us),
        };
        let proposal = match self.propose(claim.floor, above, correction_us) {
            Ok(proposal) => proposal,
            Err(failure) => return self.fail(claim, failure),
        };
        let (round, from) = {
            let mut state = claim.state();
            if state.phase == Phase::Over {
                return;
            }
            let may_wait = claim.may_wait();
            state.is_listed |= state.manner.waits;
            state.manner = Manner {
                waits: may_wait,
                raises: cause != Cause::Ask || state.was_undone,
                is_last: !may_wait && !matches!(claim.wait, Wait::No),
            };
            state.phase = Phase::Asking;
            state.round += 1;
            state.proposal = proposal.max(state.proposal + 1);
            state.top = state.top.max(state.proposal);
            state.granted = 0;
            state.from = Moment::now();
            let ballot = std::mem::replace(&mut state.ballot, Ballot::new(self.nodes.len()));
            if state.round > 1 {
                state.record.update(&ballot);
            }
            state.called_by = 0;
            if cause == Cause::Ask {
                state.raises = 0;
                state.correction_us = 0;
            }
            (state.round, state.from)
        };
        claim.extend(Duration::from_millis(claim.lease_ms));
        let limit = self.config.node_limit(claim.ttl);
        self.clerk.watch(Pending::Round(Arc::clone(claim), round), from, limit);
        for node in &self.nodes {
            node.submit(Op::Take(Take {
                claim: Arc::clone(claim),
                round,
                tries: Tries::default(),
            }));
        }
    }

    /// Takes down what a node said in a round, and acts when that decides it.
    pub(crate) fn vote(self: &Arc<Self>, claim: &Arc<Claim>, round: u32, node: usize, said: Said) {
        let mut state = claim.state();
        if state.round == round && matches!(said, Said::Granted | Said::Own(_)) {
            state.granted |= 1 << node;
        }
        if state.round != round || matches!(state.phase, Phase::Held(_)) {
            return;
        }
        state.ballot.cast(node, said);
        if state.phase != Phase::Asking {
            return;
        }
        match state.ballot.decide(self.config.quorum) {
            Verdict::Open => {}
            Verdict::Granted => {
                let fence = state.proposal;
                self.grant(claim, state, fence);
            }
            Verdict::Own(fence) => self.grant(claim, state, fence),
            Verdict::Again { above } => self.raise(claim, state, above),
            Verdict::Refused => self.refuse(claim, state),
        }
    }

    /// An operator took away what a node had granted. Returns whether that was not a hold yet: then
    /// it does not become one with this node.
    pub(crate) fn withdraw(self: &Arc<Self>, node: usize, claim: &Arc<Claim>) -> bool {
        let failure = || Failure::new(ErrorKind::Unreachable, "an operator took it away there");
        let round = {
            let mut state = claim.state();
            if state.phase != Phase::Asking {
                return state.phase == Phase::Waiting;
            }
            state.ballot.withdraw(node, failure());
            state.granted &= !(1 << node);
            state.round
        };
        self.vote(claim, round, node, Said::Failed(failure()));
        true
    }

    fn grant(self: &Arc<Self>, claim: &Arc<Claim>, mut state: MutexGuard<'_, State>, fence: u64) {
        let Ok(fence) = Fence::new(fence) else {
            drop(state);
            let message = format!("a node's fence of {fence} is none");
            return self.fail(claim, Failure::new(ErrorKind::CorruptRecord, message));
        };
        state.phase = Phase::Held(fence);
        state.misses = 0;
        state.ballot = Ballot::default();
        let askers = std::mem::take(&mut state.askers);
        let outcome = Outcome::Granted(Grant::new(fence, state.from));
        drop(state);
        self.note_fence(fence.get());
        if claim.detached {
            self.forget_claim(claim);
        }
        if !tell_all(askers, &outcome) {
            self.give_up(claim, Ending::Hold);
        }
    }

    /// Proposes something better to all nodes.
    fn raise(self: &Arc<Self>, claim: &Arc<Claim>, mut state: MutexGuard<'_, State>, above: u64) {
        let clock = state.ballot.clock(self.config.quorum);
        let floor = claim.floor.map_or(0, Fence::get);
        if clock.is_some_and(|now_us| floor > now_us + 60_000_000) {
            drop(state);
            let message = "the floor is more than a minute ahead of the nodes' clocks, so it is \
                           not a fence that they gave";
            return self.fail(claim, Failure::new(ErrorKind::InvalidToken, message));
        }
        state.raises += 1;
        if state.raises > RAISES_MAX {
            return self.refuse(claim, state);
        }
        if let Some(now_us) = clock {
            state.correction_us = self.doubt_clock(now_us);
            // What was too far ahead is no measure for what comes next.
            state.proposal = above;
        }
        drop(state);
        self.note_fence(above);
        self.begin(claim, Cause::Raise(above));
    }

    /// No quorum can be had in this round: what was granted is undone, and then it waits, tries
    /// again or is told.
    fn refuse(self: &Arc<Self>, claim: &Arc<Claim>, mut state: MutexGuard<'_, State>) {
        let quorum = self.config.quorum;
        let votes = state.ballot.votes().iter().enumerate();
        let doubtful = votes.filter(|(_, said)| !said.is_refusal());
        let doubtful = doubtful.fold(0, |bits, (at, _)| bits | 1 << at) & state.sent;
        // Nodes that are late when the wait ends have said before that somebody has it.
        let is_taken = match state.manner.is_last {
            true => state.testimony().is_taken(quorum),
            false => state.ballot.is_taken(quorum),
        };
        let is_firm = is_taken && state.ballot.is_firm(quorum);
        let was_called = state.called_by != 0;
        state.misses = if is_firm { 0 } else { state.misses + 1 };
        if is_taken {
            state.failing_since = None;
        }
        let since = *state.failing_since.get_or_insert(Moment::now());
        let is_passing = is_taken || state.ballot.votes().iter().any(may_pass);
        let may_wait = state.manner.waits && claim.may_wait() && is_passing;
        let mut why = Why::Turn;
        let due = if is_firm && !may_wait {
            None
        } else if is_firm && !was_called {
            let (due, every) = plan(&state.ballot, quorum);
            why = Why::Look(every);
            Some(due)
        } else if state.misses <= MISSES_MAX && is_passing && !state.manner.is_last {
            Some(RETRY_DELAY.mul_f64(f64::from(state.misses.max(1)) * (0.2 + 1.6 * jitter())))
        } else if !may_wait {
            None
        } else if is_taken {
            Some(RETRY_DELAY.mul_f64(f64::from(state.misses.min(20)) * (0.2 + 1.6 * jitter())))
        } else if Moment::now().since(since) < OUTAGE_MAX {
            Some(OUTAGE_POLL.mul_f64(0.5 + jitter()))
        } else {
            None
        };
        let Some(due) = due else { return self.end(claim, state, doubtful, is_taken) };
        let due = Moment::now() + due;
        let due = match claim.wait {
            Wait::Until(until) if may_wait => due.earlier_of(until),
            _ => due,
        };
        state.phase = Phase::Waiting;
        state.was_undone |= doubtful != 0;
        let (top, asked) = (state.top, state.from);
        self.lobby.enter(claim, asked, due, why);
        drop(state);
        self.expect_calls(claim);
        if doubtful != 0 {
            self.undo_at(claim, doubtful, top);
        }
    }

    /// Tells that it was refused, when nothing of it is left.
    fn end(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        mut state: MutexGuard<'_, State>,
        doubtful: u32,
        is_taken: bool,
    ) {
        state.close();
        let askers = std::mem::take(&mut state.askers);
        let is_listed = state.is_listed || state.manner.waits;
        // What is said from now on is only for the record.
        let votes = state.ballot.votes().to_vec();
        drop(state);
        let outcome = match common_failure(&votes) {
            Some(failure) => Outcome::Failed(failure),
            None => Outcome::Refused { votes, is_taken },
        };
        if is_listed || doubtful != 0 {
            self.undo(claim, Ending::Claim, Some((askers, outcome)));
            self.forget_claim(claim);
        } else {
            self.forget_claim(claim);
            tell_all(askers, &outcome);
        }
    }

    fn fail(self: &Arc<Self>, claim: &Arc<Claim>, failure: Failure) {
        let mut state = claim.state();
        if !state.close() {
            return;
        }
        let askers = std::mem::take(&mut state.askers);
        drop(state);
        self.undo(claim, Ending::Claim, Some((askers, Outcome::Failed(failure))));
        self.forget_claim(claim);
    }

    /// Nobody wants it any more. It is forgotten only when the nodes have been told, so that whoever
    /// asks for the same holder in between knows that it is being undone.
    fn give_up(self: &Arc<Self>, claim: &Arc<Claim>, ending: Ending) {
        if claim.state().close() {
            self.undo(claim, ending, None);
            self.forget_claim(claim);
        }
    }

    /// A node says that a lock was released, and whether this waiter is the first to try.
    pub(crate) fn call(self: &Arc<Self>, node: usize, claim: &Arc<Claim>, is_first: bool) {
        let holder = claim.holder;
        let mut state = claim.state();
        if is_first {
            state.called_by |= 1 << node;
        }
        let calls = state.called_by.count_ones() as usize;
        if state.phase != Phase::Waiting {
            return;
        }
        drop(state);
        let now = Moment::now();
        if calls >= self.config.quorum {
            if self.lobby.take(holder).is_some() {
                self.retry(claim);
            }
        } else if is_first {
            self.lobby.hasten(holder, now + CALL_DELAY.mul_f64(0.5 + jitter()));
        } else {
            self.lobby.hasten(holder, now + STANDBY_DELAY.mul_f64(0.8 + 0.4 * jitter()));
        }
    }
}

/// When to look again behind a holder that is firmly in the way, and how often that is done.
fn plan(ballot: &Ballot, quorum: usize) -> (Duration, Duration) {
    let is_foreign = ballot.held().any(|seen| seen.claim().is_none());
    let every = if is_foreign { POLL_FOREIGN } else { POLL };
    let poll = every.mul_f64(0.8 + 0.4 * jitter());
    let place = ballot.held().filter_map(|seen| seen.place).min().unwrap_or(0);
    let step = PLACE_STEP.mul_f64(place.min(15) as f64 + 0.1 * jitter());
    let due = match ballot.free_in(quorum) {
        Some(left) => poll.min(left + TICK + step),
        None => poll,
    };
    (due, every)
}

/// Whether it may be of use to ask this node again.
fn may_pass(said: &Said) -> bool {
    !matches!(said, Said::Failed(failure) if failure.retry() == Retry::Never)
        && *said != Said::Nothing
}

/// What all nodes complain about alike, if it is not that they cannot be reached.
fn common_failure(votes: &[Said]) -> Option<Failure> {
    let failure = |said: &Said| match said {
        Said::Failed(failure) if failure.kind() != ErrorKind::Unreachable => Some(failure.clone()),
        _ => None,
    };
    let first = votes.iter().find_map(failure)?;
    let is_alike = |said: &Said| match said {
        Said::Failed(failure) => failure.kind() == first.kind(),
        Said::Nothing => true,
        _ => false,
    };
    votes.iter().all(is_alike).then_some(first)
}

#[cfg(test)]
#[path = "round_test.rs"]
mod tests;
