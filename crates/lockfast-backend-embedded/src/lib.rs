//! The stores that need no server.
//!
//! | address | reach | kept in |
//! |---|---|---|
//! | `memory:` | this connection alone | memory |
//! | `memory:NAME` | everything in this process that uses the name | memory |
//! | `embedded:[PATH]` | every process of this user on this machine | a directory with a SQLite database |
//! | `embedded:PATH?group=GROUP` | every process of the group's members | the same, made by root |
//!
//! `sqlite:PATH` is no store, but a database of somebody's own in which fences can be checked.
//!
//! Both decide by the same rule (`queue.rs`); they differ in where the queue is kept and in how
//! the next one is told.

mod access;
mod account;
mod backend;
mod batch;
mod bell;
mod boot;
mod cache;
mod claim;
mod client;
mod config;
mod counter;
mod delivery;
mod diagnosis;
mod failure;
mod file_system;
mod machine;
mod memory;
mod message;
mod peers;
mod place;
mod queue;
mod rest;
mod store;
mod table;
mod values;
mod waiting;
mod way;
mod wire;
mod write_lock;

use std::path::PathBuf;
use std::sync::Arc;

use lockfast_core::{
    Address, Backend, BoxFuture, ConnectContext, Diagnosis, GateAnswer, GateStatement, Profile,
    Result,
};

use config::Config;

pub use diagnosis::CHECKS;
pub use memory::TestMemory;

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["memory", "embedded"];

/// The schemes of databases in which [`raise`] checks fences.
pub const GATE_SCHEMES: &[&str] = &["sqlite"];

/// What the stores of this crate promise with the defaults of their options, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("memory:", memory::profile()), ("embedded:", backend::profile(PathBuf::new()))]
}

/// Connects to the store at `address`.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist; for `embedded:` also whatever keeps the directory
/// from being used.
///
/// # Cancel safety
/// Safe: a connection that nobody waits for any more is closed again.
pub fn connect(
    address: Address,
    context: ConnectContext,
) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        match Config::read(&address)? {
            Config::Memory { name } => memory::connect(name, context),
            Config::Embedded(config) => backend::connect(config, context).await,
        }
    })
}

/// Looks at the store at `address`: where it is, whose it is, and what that means for a lock. Nothing
/// is made or changed.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of
/// this crate or an option that does not exist.
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}

/// Runs a gate's statement in the SQLite database at `address`, `sqlite:PATH`, which must be there. It
/// needs a tokio runtime.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](lockfast_core::ErrorKind::InvalidUrl) for an address that is not of such a
/// database, [`ErrorKind::InvalidConfig`](lockfast_core::ErrorKind::InvalidConfig) when there is none,
/// [`ErrorKind::Permission`](lockfast_core::ErrorKind::Permission) when it must not be written.
///
/// # Cancel safety
/// When dropped before its end, it may have happened.
pub fn raise(address: Address, statement: GateStatement) -> BoxFuture<'static, Result<GateAnswer>> {
    Box::pin(async move {
        let path = config::read_database(&address)?;
        wire::gate::raise(path, statement).await
    })
}
