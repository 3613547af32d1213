//! The store on a PostgreSQL database: leases are rows, decided by functions in the database.
//!
//! | address | the database |
//! |---|---|
//! | `postgres://[user[:password]@]host[:port][/database]` | over TCP, encrypted where the server offers it |
//! | `postgres://[user@]%2Fpath%2Fto%2Fdirectory[/database]` | on this machine, by the socket in that directory |
//!
//! `postgresql:` means the same. What is promised and what is not, how it is stored, which rights
//! it needs and every option are in the crate's README.

mod advisory;
mod answer;
mod backend;
mod batch;
mod claim;
mod config;
mod diagnosis;
mod downgrade;
mod failure;
mod gate;
mod inspect;
mod link;
mod listener;
mod migration;
mod offer;
mod shedlock;
mod store;
mod values;
mod watcher;
mod wire;

use std::sync::Arc;

use lockfast_core::{
    Address, Backend, BoxFuture, ConnectContext, Diagnosis, GateAnswer, GateStatement, Migration,
    Profile, Result,
};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// The names of the checks that [`diagnose`] may report.
pub const CHECKS: &[&str] = diagnosis::CHECKS;

/// What the stores of this crate promise with the defaults of a server, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![
        ("postgres:", backend::profile()),
        ("postgres:?mode=advisory", advisory::profile()),
        ("postgres:?mode=shedlock", shedlock::profile()),
    ]
}

/// Connects to the store at `address`. Where its schema is missing, it is created if the rights
/// allow.
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

/// Creates or updates what the store needs in the database at `address`. To do it again does
/// nothing. It needs a tokio runtime.
///
/// # Errors
/// [`ErrorKind::Permission`](lockfast_core::ErrorKind::Permission) without the rights,
/// [`ErrorKind::WrongNode`](lockfast_core::ErrorKind::WrongNode) on a standby; otherwise as
/// [`connect`].
///
/// # Cancel safety
/// Safe: either all of it is done or nothing.
pub fn migrate(address: Address) -> BoxFuture<'static, Result<Migration>> {
    Box::pin(migration::migrate(address))
}

/// Looks at the server at `address`, the way to it and the schema: what they mean for locks. Nothing is
/// changed there; to see how long a commit takes, empty messages are written to the server's log. It
/// needs a tokio runtime.
///
/// # Errors
/// What keeps the server from being looked at: as [`connect`], but a standby or a missing schema is
/// something that is found.
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}

/// Runs a gate's statement in the database at `address`, on a connection of its own. No schema is
/// needed there. It needs a tokio runtime.
///
/// # Errors
/// What keeps the server from being asked: as [`connect`].
///
/// # Cancel safety
/// When dropped before its end, it may have happened.
pub fn raise(address: Address, statement: GateStatement) -> BoxFuture<'static, Result<GateAnswer>> {
    Box::pin(gate::raise(address, statement))
}
