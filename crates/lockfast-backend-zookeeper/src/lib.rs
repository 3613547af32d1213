//! The store on ZooKeeper: claims are ephemeral nodes, and a majority of the servers agrees on their
//! order.
//!
//! | address | the servers |
//! |---|---|
//! | `zookeeper://[user:password@]host[:port][,host[:port]…][/chroot]` | over TCP |
//! | `zookeepers://…` | the same, encrypted |
//!
//! What is promised and what is not, how it is stored, which rights it needs and every option are in
//! the crate's README.

mod backend;
mod claim;
mod config;
mod crowd;
mod diagnosis;
mod failure;
mod inspect;
mod layout;
mod record;
mod renewal;
mod revocation;
mod store;
mod values;
mod watcher;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Diagnosis, Profile, Result};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["zookeeper", "zookeepers"];

/// The names of the checks that [`diagnose`] may report.
pub const CHECKS: &[&str] = diagnosis::CHECKS;

/// What this store promises with the defaults of a server, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("zookeeper:", backend::profile(TTL_LIMITS_USUAL, wire::Proof::Any))]
}

/// 2 to 20 ticks of 2 s.
const TTL_LIMITS_USUAL: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(40));

/// Connects to the store at `address`.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist,
/// [`ErrorKind::InvalidConfig`](lockfast_core::ErrorKind::InvalidConfig) for a chroot that does not
/// exist; otherwise whatever keeps the servers from being used.
///
/// # Cancel safety
/// Safe: a session that nobody waits for any more is closed again.
pub fn connect(
    address: Address,
    context: ConnectContext,
) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(backend::connect(address, context))
}

/// Looks at the servers at `address` and the way to them: what they mean for locks. Nothing is changed
/// there. It needs a tokio runtime.
///
/// # Errors
/// What keeps the servers from being looked at: as [`connect`].
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}
