//! What the engine tells `tracing` and `metrics`. The handles are made when a store is
//! connected, so a recorder of metrics must be installed before that; the crate's page says so.

use std::time::Duration;

use lockfast_core::observe::{METRICS, Metric, MetricKind, cause, label, metric, outcome};
use lockfast_core::{
    Error, Fence, LockName, LossCause, Refusal, ReleaseOutcome, RenewOutcome, Result,
};
use metrics::{Counter, Gauge, Histogram, Unit};

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
    /// By the code of their cause.
    losses: Vec<(&'static str, Counter)>,
    released: Counter,
    release_not_held: Counter,
    release_failed: Counter,
}

impl Telemetry {
    /// Makes the handles, and describes all metrics. That is done again for each connection, because
    /// a recorder may have been installed after the one before.
    pub(crate) fn new(backend: &'static str) -> Self {
        METRICS.iter().for_each(describe);
        let count = |name: &'static str, outcome: &'static str| metrics::counter!(name, label::BACKEND => backend, label::OUTCOME => outcome);
        let measure = |name: &'static str| metrics::histogram!(name, label::BACKEND => backend);
        let count_losses = |cause: &&'static str| {
            let counter = metrics::counter!(metric::LOSSES, label::BACKEND => backend, label::CAUSE => *cause);
            (*cause, counter)
        };
        Self {
            backend,
            held: metrics::gauge!(metric::HELD, label::BACKEND => backend),
            granted: count(metric::ACQUISITIONS, outcome::GRANTED),
            taken: count(metric::ACQUISITIONS, outcome::TAKEN),
            acquire_failed: count(metric::ACQUISITIONS, outcome::FAILED),
            cancelled: count(metric::ACQUISITIONS, outcome::CANCELLED),
            wait: measure(metric::WAIT_SECONDS),
            hold: measure(metric::HOLD_SECONDS),
            renewed: count(metric::RENEWALS, outcome::RENEWED),
            renewal_failed: count(metric::RENEWALS, outcome::FAILED),
            renewal_lost: count(metric::RENEWALS, outcome::LOST),
            lateness: measure(metric::RENEWAL_LATENESS_SECONDS),
            losses: cause::ALL.iter().map(count_losses).collect(),
            released: count(metric::RELEASES, outcome::RELEASED),
            release_not_held: count(metric::RELEASES, outcome::NOT_HELD),
            release_failed: count(metric::RELEASES, outcome::FAILED),
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
        let code = cause.code();
        let losses = self.losses.iter().filter(|(known, _)| *known == code);
        losses.for_each(|(_, counter)| counter.increment(1));
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

fn describe(metric: &Metric) {
    let Metric { name, description, .. } = *metric;
    match metric.kind {
        MetricKind::Counter => metrics::describe_counter!(name, Unit::Count, description),
        MetricKind::Gauge => metrics::describe_gauge!(name, Unit::Count, description),
        MetricKind::Histogram => metrics::describe_histogram!(name, Unit::Seconds, description),
    }
}
