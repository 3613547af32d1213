//! What the engine tells `tracing` and `metrics`. The handles are made when a store is
//! connected, so install a metrics recorder before that.

use std::time::Duration;

use lockfast_core::observe::metric;
use lockfast_core::{
    Error, Fence, LockName, LossCause, Refusal, ReleaseOutcome, RenewOutcome, Result,
};
use metrics::{Counter, Gauge, Histogram};

/// The metrics of one store.
pub(crate) struct Telemetry {
    backend: &'static str,
    held: Gauge,
    granted: Counter,
    taken: Counter,
    acquire_failed: Counter,
    cancelled: Counter,
    wait: Histogram,
    hold: Histogram,
    renewed: Counter,
    renewal_failed: Counter,
    renewal_lost: Counter,
    lateness: Histogram,
    losses: Counter,
    released: Counter,
    release_not_held: Counter,
    release_failed: Counter,
}

impl Telemetry {
    pub(crate) fn new(backend: &'static str) -> Self {
        let count = |name: &'static str, outcome: &'static str| metrics::counter!(name, "backend" => backend, "outcome" => outcome);
        let measure = |name: &'static str| metrics::histogram!(name, "backend" => backend);
        Self {
            backend,
            held: metrics::gauge!(metric::HELD, "backend" => backend),
            granted: count(metric::ACQUISITIONS, "granted"),
            taken: count(metric::ACQUISITIONS, "taken"),
            acquire_failed: count(metric::ACQUISITIONS, "failed"),
            cancelled: count(metric::ACQUISITIONS, "cancelled"),
            wait: measure(metric::WAIT_SECONDS),
            hold: measure(metric::HOLD_SECONDS),
            renewed: count(metric::RENEWALS, "renewed"),
            renewal_failed: count(metric::RENEWALS, "failed"),
            renewal_lost: count(metric::RENEWALS, "lost"),
            lateness: measure(metric::RENEWAL_LATENESS_SECONDS),
            losses: metrics::counter!(metric::LOSSES, "backend" => backend),
            released: count(metric::RELEASES, "released"),
            release_not_held: count(metric::RELEASES, "not_held"),
            release_failed: count(metric::RELEASES, "failed"),
        }
    }

    pub(crate) fn granted(&self, lock: &LockName, fence: Fence, waited: Duration) {
        self.granted.increment(1);
        self.wait.record(waited);
        tracing::debug!(%lock, %fence, ?waited, backend = self.backend, "granted");
    }

    pub(crate) fn taken(&self, lock: &LockName, refusal: &Refusal) {
        self.taken.increment(1);
        tracing::debug!(%lock, %refusal, backend = self.backend, "taken");
    }

    pub(crate) fn acquire_failed(&self, lock: &LockName, error: &Error) {
        self.acquire_failed.increment(1);
        tracing::warn!(
            %lock,
            error = format_args!("{error:#}"),
            backend = self.backend,
            "acquisition failed"
        );
    }

    pub(crate) fn cancelled(&self, lock: &LockName) {
        self.cancelled.increment(1);
        tracing::debug!(%lock, backend = self.backend, "acquisition cancelled");
    }

    pub(crate) fn lost(&self, lock: &LockName, fence: Fence, cause: &LossCause, held: Duration) {
        self.losses.increment(1);
        self.ended(held);
        tracing::error!(%lock, %fence, %cause, ?held, backend = self.backend, "lease lost");
    }

    pub(crate) fn began(&self) {
        self.held.increment(1.0);
    }

    pub(crate) fn ended(&self, held: Duration) {
        self.held.decrement(1.0);
        self.hold.record(held);
    }

    pub(crate) fn released(&self, lock: &LockName, outcome: &Result<ReleaseOutcome>) {
        match outcome {
            Ok(ReleaseOutcome::Released) => self.released.increment(1),
            Ok(ReleaseOutcome::NotHeld) => self.release_not_held.increment(1),
            Err(_) => self.release_failed.increment(1),
        }
        match outcome {
            Ok(outcome) => tracing::debug!(%lock, ?outcome, backend = self.backend, "released"),
            Err(error) => {
                tracing::warn!(
                    %lock,
                    error = format_args!("{error:#}"),
                    backend = self.backend,
                    "release failed"
                );
            }
        }
    }

    pub(crate) fn renewed(&self, answer: &Result<Vec<RenewOutcome>>, asked: usize, late: Duration) {
        self.lateness.record(late);
        match answer {
            Ok(outcomes) => {
                let (mut renewed, mut lost, mut failed) = (0, 0, 0);
                for outcome in outcomes {
                    match outcome {
                        RenewOutcome::Renewed => renewed += 1,
                        RenewOutcome::Lost(_) => lost += 1,
                        RenewOutcome::Unanswered(_) => failed += 1,
                    }
                }
                self.renewed.increment(renewed);
                self.renewal_lost.increment(lost);
                self.renewal_failed.increment(failed);
                let unanswered = outcomes.iter().find_map(|outcome| match outcome {
                    RenewOutcome::Unanswered(error) => Some(error),
                    _ => None,
                });
                if let Some(error) = unanswered {
                    tracing::warn!(
                        leases = failed,
                        error = format_args!("{error:#}"),
                        backend = self.backend,
                        "renewal failed"
                    );
                }
            }
            Err(error) => {
                self.renewal_failed.increment(asked as u64);
                tracing::warn!(
                    leases = asked,
                    error = format_args!("{error:#}"),
                    backend = self.backend,
                    "renewal failed"
                );
            }
        }
    }
}
