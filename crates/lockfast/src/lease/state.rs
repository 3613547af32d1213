//! What becomes of a lease, as a pure function: state + event + now → state + action. There is
//! no clock, no randomness and no waiting here; the tables below are the protocol.

use std::time::Duration;

use lockfast_core::{Grant, LossCause, Moment};

use super::deadline::{deadline, deadline_of};
use super::policy::Policy;

/// How soon a renewal is tried again at the earliest.
const RETRY_MIN: Duration = Duration::from_millis(50);

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
    /// The store prolonged it, asked at `sent` for `ttl`.
    Renewed { sent: Moment, ttl: Duration },
    /// A renewal brought no answer.
    RenewalFailed { failure: String, jitter: f64 },
    /// The store says that it is gone.
    Lost(LossCause),
    /// The holder wants another ttl from now on.
    Extended(Policy),
    /// The holder gives it back.
    Released,
}

/// What has to be done about it.
#[derive(Clone, Debug, PartialEq)]
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

/// One lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseState {
    pub(crate) phase: Phase,
    pub(crate) deadline: Moment,
    pub(crate) policy: Policy,
    renew_at: Moment,
    renewing: bool,
}

impl LeaseState {
    /// A lease that was granted. One that has little time left, as a hand-over that must be
    /// confirmed, is renewed the sooner.
    pub(crate) fn new(grant: &Grant, now: Moment, policy: Policy, jitter: f64) -> Self {
        let deadline = deadline_of(grant, policy.ttl, policy.drift);
        let first = policy.renew_interval.min(deadline.remaining(now) / 3);
        Self {
            phase: Phase::Held,
            deadline,
            renew_at: now + jittered(first, jitter),
            policy,
            renewing: false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Lost(_) | Phase::Released)
    }

    /// When the next [`Event::Tick`] is needed.
    pub(crate) fn next_tick(&self) -> Option<Moment> {
        (!self.is_over()).then(|| self.deadline.earlier_of(self.renew_at))
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
            return self.expire(matches!(event, Event::Renewed { .. }));
        }
        match event {
            Event::Tick { slack, jitter } => self.tick(slack, jitter, now),
            Event::Renewed { sent, ttl } => self.prolong(sent, ttl),
            Event::RenewalFailed { failure, jitter } => self.endanger(failure, jitter, now),
            Event::Extended(policy) => self.extend(policy, now),
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
        if self.renewing || !self.renew_at.has_passed(now + slack) {
            if self.renewing && self.renew_at.has_passed(now) {
                // The answer is overdue; its own time limit will bring it.
                self.renew_at = now + self.policy.request_timeout;
            }
            return Action::None;
        }
        self.renewing = true;
        self.renew_at = now + jittered(self.policy.renew_interval, jitter);
        Action::Renew
    }

    fn prolong(&mut self, sent: Moment, ttl: Duration) -> Action {
        self.renewing = false;
        if ttl != self.policy.ttl {
            // An answer to a request from before the ttl was changed.
            return Action::None;
        }
        self.deadline = deadline(sent, ttl, self.policy.drift);
        self.phase = Phase::Held;
        Action::Announce
    }

    fn endanger(&mut self, failure: String, jitter: f64, now: Moment) -> Action {
        self.renewing = false;
        // Sooner when the end is near, as that of a hand-over is.
        let left = (self.deadline.remaining(now) / 3).max(RETRY_MIN);
        self.renew_at = now + jittered(left.min(self.policy.renew_interval / 5), jitter);
        self.phase = Phase::Jeopardy { failure };
        Action::Announce
    }

    fn extend(&mut self, policy: Policy, now: Moment) -> Action {
        self.deadline = self.deadline.earlier_of(deadline(now, policy.ttl, policy.drift));
        self.policy = policy;
        self.renew_at = self.renew_at.earlier_of(now + policy.renew_interval);
        Action::Announce
    }
}

/// A span shortened by up to a tenth, so that leases taken together do not renew together.
fn jittered(span: Duration, jitter: f64) -> Duration {
    span.mul_f64(1.0 - 0.1 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
