//! The names of everything that can be observed, in one place. The lease engine emits them; lock
//! names are fields of spans but never labels of metrics, so that a million names cost nothing.

/// Spans.
pub mod span {
    /// One acquisition, from the call to its outcome.
    pub const ACQUIRE: &str = "lockfast.acquire";
}

/// Metrics, each with the label `backend`.
pub mod metric {
    /// Counter: acquisitions by `outcome` (granted, taken, failed, cancelled).
    pub const ACQUISITIONS: &str = "lockfast_acquisitions_total";
    /// Histogram, seconds: from the call to the grant.
    pub const WAIT_SECONDS: &str = "lockfast_wait_seconds";
    /// Histogram, seconds: from the grant to the release or loss.
    pub const HOLD_SECONDS: &str = "lockfast_hold_seconds";
    /// Counter: renewals by `outcome` (renewed, failed, lost).
    pub const RENEWALS: &str = "lockfast_renewals_total";
    /// Histogram, seconds: how much later than planned renewals were sent.
    pub const RENEWAL_LATENESS_SECONDS: &str = "lockfast_renewal_lateness_seconds";
    /// Counter: leases lost.
    pub const LOSSES: &str = "lockfast_losses_total";
    /// Counter: releases by `outcome` (released, not_held, failed).
    pub const RELEASES: &str = "lockfast_releases_total";
    /// Counter: nodes of a store that were found to have been started anew.
    pub const NODE_RESTARTS: &str = "lockfast_node_restarts_total";
    /// Counter: nodes of a store that were found to have lost data.
    pub const NODE_DATA_LOSSES: &str = "lockfast_node_data_losses_total";
    /// Gauge: leases held now.
    pub const HELD: &str = "lockfast_leases_held";
}
