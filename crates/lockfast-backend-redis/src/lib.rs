//! The store on a Redis server.
//!
//! | address | the server |
//! |---|---|
//! | `redis://[user:password@]host[:port][/database]` | over TCP |
//! | `rediss://…` | over TCP, encrypted |
//! | `redis+unix://[user:password@]/path/to/socket` | on this machine |
//! | `redis+sentinel://[user:password@]host[:port],…/service[/database]` | the one that sentinels name |
//! | `redis+cluster://[user:password@]host[:port],…` | the masters of a Redis Cluster |
//!
//! What is promised and what is not, how it is stored and every option are in the crate's README.

mod answer;
mod asking;
mod backend;
mod batch;
mod channels;
mod claim;
mod cluster;
mod config;
mod diagnosis;
mod downgrade;
mod inspect;
mod offer;
mod record;
mod script;
mod simple;
mod slot;
mod store;
mod topology;
mod unsettled;
mod values;
mod watcher;
mod wire;

/// One server as `lockfast-backend-redlock` uses several of them. Not for anybody else: it changes
/// without notice.
#[doc(hidden)]
pub mod node {
    pub use crate::config::{Config, Endpoint, OnDataLoss};
    pub use crate::diagnosis::{Facts, Memory, Setting, examine};
    pub use crate::inspect::{escape_pattern, read_scan};
    pub use crate::record::{
        read_client, read_hold, read_holder, read_label, write_client, write_holder, write_label,
    };
    pub use crate::script::{Script, digest};
    pub use crate::topology::{Nodes, Service};
    pub use crate::wire::connection::Connection;
    pub use crate::wire::dial::Dialer;
    pub use crate::wire::failure::{Failure, Remedy, of_nonsense, of_silence};
    pub use crate::wire::link::{Link, Pump, Traffic, connect};
    pub use crate::wire::{Pipeline, Reply};
}

pub use diagnosis::CHECKS;

use std::sync::Arc;

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Diagnosis, Profile, Result};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"];

/// What this store promises with the defaults of its options, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("redis:", backend::profile(&config::OnDataLoss::Warn))]
}

/// Connects to the store at `address`.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist; otherwise whatever keeps the server from being
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

/// Looks at the servers at `address`: how they are set up, and what that means for a lock. Nothing is
/// changed there, and what its user may not see is said to be unseen.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist; otherwise whatever keeps the server from being
/// reached.
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}
