//! The store on several Redis servers that do not know each other: a lock is held by whoever a
//! quorum of them granted it to, with one fencing token.
//!
//! `redlock://[user:password@]host[:port],host[:port],…[/database]`
//!
//! What is promised and what is not, how it is stored and every option are in the crate's README.

mod answer;
mod backend;
mod ballot;
mod batch;
mod claim;
mod clerk;
mod config;
mod diagnosis;
mod giving;
mod inquiry;
mod inspect;
mod listing;
mod lobby;
mod node;
mod record;
mod renewal;
mod revocation;
mod roster;
mod round;
mod script;
mod store;
mod watcher;
mod wire;

pub use diagnosis::CHECKS;

use std::sync::Arc;

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Diagnosis, Profile, Result};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["redlock"];

/// What this store promises with the defaults of an odd number of servers, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("redlock:", backend::profile(3))]
}

/// Connects to the servers at `address`, of which a minority may be out of reach.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) or
/// [`ErrorKind::InvalidConfig`](lockfast_core::ErrorKind::InvalidConfig) for an address that
/// cannot be right, [`ErrorKind::NoQuorum`](lockfast_core::ErrorKind::NoQuorum) when too few
/// servers can be reached; otherwise whatever is wrong with one of them.
///
/// # Cancel safety
/// Safe: connections that nobody waits for any more are closed again.
pub fn connect(
    address: Address,
    context: ConnectContext,
) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(backend::connect(address, context))
}

/// Looks at the servers at `address`: each alone, and whether they are fit to vote together. Nothing
/// is changed there, and what their user may not see is said to be unseen.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) or
/// [`ErrorKind::InvalidConfig`](lockfast_core::ErrorKind::InvalidConfig) for an address that cannot be
/// right; what the first server meets when none can be reached.
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}
