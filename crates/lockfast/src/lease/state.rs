//! What becomes of a lease, as a pure function: state + event + now → state + action. There is
//! no clock, no randomness and no waiting here; the tables below are the protocol.

use std::time::Duration;

use lockfast_core::{Error, ErrorKind, Grant, LossCause, Moment};

use super::deadline::{deadline, deadline_of};
use super::policy::Policy;

/// How soon a renewal is tried again at the earliest.
const RETRY_MIN: Duration = Duration::from_millis(50);

/// Renewals due within this part of their interval are sent along with those that are due.
const SLACK_PART: u32 = 32;

/// When a lock that was handed over for a moment only is renewed, so that it lasts its whole ttl.
/// Whoever gives it back sooner costs the store nothing.
const CONFIRM_AFTER: Duration = Duration::from_millis(5);

/// Where a lease stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Held,
    /// A renewal failed; the lease is still good until its deadline.
    Jeopardy {
        failure: String,
    },
    Lost(LossCause),
    Released,
}

/// What can happen to a lease.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Time passed. A renewal that is due within `slack` may as well be sent now.
    Tick { slack: Duration, jitter: f64 },
    /// Somebody asks whether it is still held.
    Look,
    /// The store prolonged it, as it was asked to.
    Renewed(Renewal),
    /// A renewal brought no answer.
    RenewalFailed { renewal: Renewal, failure: Failure, jitter: f64 },
    /// The store says that it is gone.
    Lost(LossCause),
    /// The holder wants another ttl from now on.
    Extended(Policy),
    /// The holder wants a lease of the whole ttl before it begins.
    Confirm,
    /// The holder gives it back.
    Released,
}

/// What has to be done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    None,
    /// Ask the store for more time.
    Renew,
    /// Something that watchers of the lease want to know.
    Announce,
    /// Tell everybody that it is lost.
    AnnounceLoss,
    /// Likewise, and take back the time that the store gave too late.
    AnnounceLossAndUndo,
}

/// One renewal on its way to the store. A lease never has two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Renewal {
    /// The first of a lease is 1.
    pub(crate) number: u64,
    pub(crate) sent: Moment,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
}

/// What a renewal met.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind(), message: format!("{error:#}") }
    }
}

/// One lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseState {
    pub(crate) phase: Phase,
    pub(crate) deadline: Moment,
    pub(crate) policy: Policy,
    /// Whether the store keeps it for its whole ttl: not yet when it was only handed over.
    pub(crate) is_full: bool,
    /// How many renewals were sent, the one on its way included.
    renewals: u64,
    /// The last renewal that has ended, and what it met if it failed.
    last: (u64, Option<Failure>),
    /// When the store is asked next; a lease that is not renewed by itself mostly has no such time.
    renew_at: Option<Moment>,
    renewing: bool,
    /// The shortest ttl that a renewal without an answer asked for. It may still reach the store,
    /// after any later one, so no later answer can promise more than this.
    unanswered: Option<Duration>,
}

impl LeaseState {
    /// A lease that was granted. One that was only handed over is renewed at once.
    pub(crate) fn new(grant: &Grant, now: Moment, policy: Policy, jitter: f64) -> Self {
        let deadline = deadline_of(grant, policy.ttl, policy.drift);
        let is_full = grant.lasts(policy.ttl) == policy.ttl;
        let left = deadline.remaining(now) / 3;
        let first = policy.renew_interval.min(if is_full { left } else { CONFIRM_AFTER });
        let is_asked = policy.is_renewed || !is_full;
        Self {
            phase: Phase::Held,
            deadline,
            is_full,
            renewals: 0,
            last: (0, None),
            renew_at: is_asked.then(|| now + jittered(first.min(left), jitter)),
            policy,
            renewing: false,
            unanswered: None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Lost(_) | Phase::Released)
    }

    /// When the next [`Event::Tick`] is needed.
    pub(crate) fn next_tick(&self) -> Option<Moment> {
        let next = self.renew_at.map_or(self.deadline, |at| self.deadline.earlier_of(at));
        (!self.is_over()).then_some(next)
    }

    /// How much sooner than it is due a renewal may be sent along with others.
    pub(crate) fn slack(&self) -> Duration {
        if self.is_full { self.policy.renew_interval / SLACK_PART } else { Duration::ZERO }
    }

    /// The renewal that [`Action::Renew`] asked for, at the moment at which it is sent; none when
    /// the lease was given back in the meantime.
    pub(crate) fn send(&mut self, now: Moment) -> Option<Renewal> {
        if self.is_over() {
            return None;
        }
        self.renewals += 1;
        let Policy { ttl, lock_delay, .. } = self.policy;
        Some(Renewal { number: self.renewals, sent: now, ttl, lock_delay })
    }

    /// The number of the first renewal that will ask for what the policy says now.
    pub(crate) fn next_renewal(&self) -> u64 {
        self.renewals + 1
    }

    /// What came of a renewal or of a later one; none while it is on its way.
    pub(crate) fn result_of(&self, number: u64) -> Option<Result<(), Failure>> {
        let (last, failure) = &self.last;
        (*last >= number).then(|| failure.clone().map_or(Ok(()), Err))
    }

    pub(crate) fn step(&mut self, event: Event, now: Moment) -> Action {
        if self.is_over() {
            // What is lost stays lost, and what was given back is not lost.
            return Action::None;
        }
        if let Event::Released = event {
            self.phase = Phase::Released;
            return Action::Announce;
        }
        if let Event::Lost(cause) = event {
            self.phase = Phase::Lost(cause);
            return Action::AnnounceLoss;
        }
        if self.deadline.has_passed(now) {
            return self.expire(matches!(event, Event::Renewed(_)));
        }
        match event {
            Event::Tick { slack, jitter } => self.tick(slack, jitter, now),
            Event::Renewed(renewal) => self.prolong(renewal, now),
            Event::RenewalFailed { renewal, failure, jitter } => {
                self.endanger(renewal, failure, jitter, now)
            }
            Event::Extended(policy) => self.extend(policy, now),
            Event::Confirm => self.confirm(now),
            Event::Look | Event::Lost(_) | Event::Released => Action::None,
        }
    }

    fn expire(&mut self, renewed_too_late: bool) -> Action {
        let last_failure = match std::mem::replace(&mut self.phase, Phase::Released) {
            Phase::Jeopardy { failure } => Some(failure),
            _ => None,
        };
        self.phase = Phase::Lost(LossCause::Expired { last_failure });
        if renewed_too_late { Action::AnnounceLossAndUndo } else { Action::AnnounceLoss }
    }

    fn tick(&mut self, slack: Duration, jitter: f64, now: Moment) -> Action {
        let is_due = |by: Moment| self.renew_at.is_some_and(|at| at.has_passed(by));
        if self.renewing || !is_due(now + slack) {
            if self.renewing && is_due(now) {
                // The answer is overdue; its own time limit will bring it.
                self.renew_at = Some(now + self.policy.request_timeout);
            }
            return Action::None;
        }
        self.renewing = true;
        let next = now + jittered(self.interval(), jitter);
        self.renew_at = self.policy.is_renewed.then_some(next);
        Action::Renew
    }

    /// How often the lease is renewed.
    fn interval(&self) -> Duration {
        let promised = self.unanswered.unwrap_or(Duration::MAX) / 3;
        self.policy.renew_interval.min(promised)
    }

    fn prolong(&mut self, renewal: Renewal, now: Moment) -> Action {
        let Policy { ttl, drift, .. } = self.policy;
        let lasts = ttl.min(renewal.ttl).min(self.unanswered.unwrap_or(Duration::MAX));
        self.end_renewal(renewal, None, now);
        // What is promised already was promised for the shortest of all these.
        self.deadline = self.deadline.later_of(deadline(renewal.sent, lasts, drift));
        self.is_full = true;
        self.phase = Phase::Held;
        Action::Announce
    }

    fn endanger(&mut self, renewal: Renewal, failure: Failure, jitter: f64, now: Moment) -> Action {
        // Sooner when the end is near, as that of a hand-over is.
        let left = (self.deadline.remaining(now) / 3).max(RETRY_MIN);
        self.renew_at = Some(now + jittered(left.min(self.policy.renew_interval / 5), jitter));
        self.phase = Phase::Jeopardy { failure: failure.message.clone() };
        self.end_renewal(renewal, Some(failure), now);
        let unanswered = self.unanswered.unwrap_or(renewal.ttl);
        self.unanswered = Some(unanswered.min(renewal.ttl));
        Action::Announce
    }

    fn end_renewal(&mut self, renewal: Renewal, failure: Option<Failure>, now: Moment) {
        self.renewing = false;
        self.last = (renewal.number, failure);
        if renewal.ttl != self.policy.ttl {
            // It was extended meanwhile, and the store does not know yet.
            self.renew_at = Some(now);
        }
    }

    fn extend(&mut self, policy: Policy, now: Moment) -> Action {
        self.deadline = self.deadline.earlier_of(deadline(now, policy.ttl, policy.drift));
        self.policy = policy;
        self.renew_at = Some(now);
        Action::Announce
    }

    fn confirm(&mut self, now: Moment) -> Action {
        if !self.is_full && self.phase == Phase::Held {
            self.renew_at = Some(self.renew_at.map_or(now, |at| at.earlier_of(now)));
        }
        Action::None
    }
}

/// A span shortened by up to a tenth, so that leases taken together do not renew together.
fn jittered(span: Duration, jitter: f64) -> Duration {
    span.mul_f64(1.0 - 0.1 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
