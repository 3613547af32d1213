//! The names of everything that can be observed, in one place. The lease engine emits them; lock
//! names are fields of spans but never labels of metrics, so that a million names cost nothing.
//!
//! This file uses nothing from the rest of the crate, because `cargo xtask metrics` compiles it on
//! its own to write `docs/metrics.md` and to check the dashboard and the alerts.

/// Spans.
pub mod span {
    /// One acquisition, from the call to its outcome, with the fields `lock` and `backend`.
    pub const ACQUIRE: &str = "lockfast.acquire";
}

/// Names of metrics. [`METRICS`] says what each of them means.
pub mod metric {
    /// Tries to acquire, by outcome.
    pub const ACQUISITIONS: &str = "lockfast_acquisitions_total";
    /// From the call to the grant.
    pub const WAIT_SECONDS: &str = "lockfast_wait_seconds";
    /// From the grant to the release or loss.
    pub const HOLD_SECONDS: &str = "lockfast_hold_seconds";
    /// Renewals by outcome.
    pub const RENEWALS: &str = "lockfast_renewals_total";
    /// How much later than planned renewals were sent.
    pub const RENEWAL_LATENESS_SECONDS: &str = "lockfast_renewal_lateness_seconds";
    /// Leases lost, by cause.
    pub const LOSSES: &str = "lockfast_losses_total";
    /// Releases by outcome.
    pub const RELEASES: &str = "lockfast_releases_total";
    /// Nodes of a store that were started anew.
    pub const NODE_RESTARTS: &str = "lockfast_node_restarts_total";
    /// Nodes of a store that have lost data.
    pub const NODE_DATA_LOSSES: &str = "lockfast_node_data_losses_total";
    /// Leases held now.
    pub const HELD: &str = "lockfast_leases_held";
}

/// Names of labels.
pub mod label {
    /// The kind of store, as its profile names it. Every metric has it.
    pub const BACKEND: &str = "backend";
    /// What came of it: see [`outcome`](super::outcome).
    pub const OUTCOME: &str = "outcome";
    /// Why a lease was lost: see [`cause`](super::cause).
    pub const CAUSE: &str = "cause";
}

/// Values of the label `outcome`.
pub mod outcome {
    /// The lock was granted.
    pub const GRANTED: &str = "granted";
    /// Somebody else has it.
    pub const TAKEN: &str = "taken";
    /// The store could not be reached, or answered with an error.
    pub const FAILED: &str = "failed";
    /// The caller dropped the future.
    pub const CANCELLED: &str = "cancelled";
    /// The lease lasts longer.
    pub const RENEWED: &str = "renewed";
    /// The store said that the lease is lost.
    pub const LOST: &str = "lost";
    /// The lock is free, or goes to the next.
    pub const RELEASED: &str = "released";
    /// There was nothing to release.
    pub const NOT_HELD: &str = "not_held";
}

/// Values of the label `cause`: the variants of [`LossCause`](crate::LossCause) without what they
/// carry.
pub mod cause {
    /// The deadline passed before a renewal was confirmed.
    pub const EXPIRED: &str = "expired";
    /// It expired in the store, and somebody else has it.
    pub const TAKEN: &str = "taken";
    /// The store does not know the lease.
    pub const FORGOTTEN: &str = "forgotten";
    /// What the lease was bound to in the store has ended.
    pub const SESSION_ENDED: &str = "session_ended";
    /// The store has lost data.
    pub const DATA_LOST: &str = "data_lost";
    /// An operator took it away.
    pub const REVOKED: &str = "revoked";

    /// All of them.
    pub const ALL: &[&str] = &[EXPIRED, TAKEN, FORGOTTEN, SESSION_ENDED, DATA_LOST, REVOKED];
}

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// A distribution of times in seconds.
    Histogram,
}

/// A metric, as it is told to a recorder and to whoever reads the documentation.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, which is also its name in Prometheus.
    pub name: &'static str,
    /// How it counts.
    pub kind: MetricKind,
    /// Its label beside `backend`, with all values that this label can have.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// What it tells, in one sentence without a final stop.
    pub description: &'static str,
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    Metric {
        name: metric::ACQUISITIONS,
        kind: MetricKind::Counter,
        label: Some((
            label::OUTCOME,
            &[outcome::GRANTED, outcome::TAKEN, outcome::FAILED, outcome::CANCELLED],
        )),
        description: "Acquisitions by outcome; each try that the store does not answer counts as \
                      failed, also when a later try succeeds",
    },
    Metric {
        name: metric::WAIT_SECONDS,
        kind: MetricKind::Histogram,
        label: None,
        description: "Time from the call to the grant, of acquisitions that were granted",
    },
    Metric {
        name: metric::HOLD_SECONDS,
        kind: MetricKind::Histogram,
        label: None,
        description: "Time from the grant to the release or loss",
    },
    Metric {
        name: metric::HELD,
        kind: MetricKind::Gauge,
        label: None,
        description: "Leases that this process holds now",
    },
    Metric {
        name: metric::RENEWALS,
        kind: MetricKind::Counter,
        label: Some((label::OUTCOME, &[outcome::RENEWED, outcome::FAILED, outcome::LOST])),
        description: "Renewals by outcome; one that failed is tried again until the deadline",
    },
    Metric {
        name: metric::RENEWAL_LATENESS_SECONDS,
        kind: MetricKind::Histogram,
        label: None,
        description: "How much later than planned renewals were sent, which shows a process or \
                      machine that is too busy",
    },
    Metric {
        name: metric::LOSSES,
        kind: MetricKind::Counter,
        label: Some((label::CAUSE, cause::ALL)),
        description: "Leases that ended without their holder's asking, by cause",
    },
    Metric {
        name: metric::RELEASES,
        kind: MetricKind::Counter,
        label: Some((label::OUTCOME, &[outcome::RELEASED, outcome::NOT_HELD, outcome::FAILED])),
        description: "Releases by outcome, with those that undo a cancelled acquisition; a lock \
                      whose release failed is free when its ttl has passed",
    },
    Metric {
        name: metric::NODE_RESTARTS,
        kind: MetricKind::Counter,
        label: None,
        description: "Nodes of a store on several servers that were found to have been restarted; \
                      only of redlock",
    },
    Metric {
        name: metric::NODE_DATA_LOSSES,
        kind: MetricKind::Counter,
        label: None,
        description: "Nodes of a store on several servers that were found to have lost data; only \
                      of redlock",
    },
];
