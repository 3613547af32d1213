//! The store in etcd: `etcd://h1:2379,h2:2379,h3:2379`.
//!
//! Every claim is a key under the lock's name, the line is the order in which these keys were
//! made, and a lease of the cluster ends what a dead process leaves. What is promised and what is
//! not, how it is stored and every option are in the crate's README.

mod acquire;
mod backend;
mod batch;
mod claim;
mod config;
mod crew;
mod diagnosis;
mod doubt;
mod ending;
mod ends;
mod events;
mod failure;
mod gate;
mod inspect;
mod keeper;
mod key;
mod line;
mod link;
mod observer;
mod origin;
mod pulse;
mod record;
mod renew;
mod session;
mod store;
mod table;
mod turn;
mod values;
mod watches;
mod wire;

use std::sync::Arc;

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Diagnosis, Profile, Result};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["etcd", "etcds"];

/// The names of the checks that [`diagnose`] may report.
pub const CHECKS: &[&str] = diagnosis::CHECKS;

/// What this store promises with the defaults of a cluster, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("etcd:", backend::profile(diagnosis::TTL_MIN_USUAL))]
}

/// Connects to the store at `address`.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist; otherwise whatever keeps the cluster from being
/// used.
///
/// # Cancel safety
/// Safe: a connection that nobody waits for any more is closed again.
pub fn connect(
    address: Address,
    context: ConnectContext,
) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(backend::connect(address, context))
}

/// Looks at the cluster at `address` and the way to it: what they mean for locks. Nothing is
/// changed there, but for a lease that is granted and revoked at once. Must be called in a tokio
/// runtime.
///
/// # Errors
/// What keeps the cluster from being looked at: as [`connect`].
///
/// # Cancel safety
/// Safe: it only looks, and a lease that is left ends by itself.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}
