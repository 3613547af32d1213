//! The store in a MySQL or MariaDB database: `mysql://user:password@host[:port]/database`.
//!
//! Every lock is a row, every decision a stored procedure that the schema brings along, and every
//! batch of requests one call and one commit. What is promised and what is not, how it is stored
//! and every option are in the crate's README.

mod answer;
mod backend;
mod batch;
mod claim;
mod config;
mod diagnosis;
mod downgrade;
mod failure;
mod inspect;
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
    Address, Backend, BoxFuture, ConnectContext, Diagnosis, Error, ErrorKind, GateAnswer,
    GateStatement, Migration, Profile, Result,
};

/// The schemes that this crate serves.
pub const SCHEMES: &[&str] = &["mysql", "mariadb"];

/// The names of the checks that [`diagnose`] may report.
pub const CHECKS: &[&str] = diagnosis::CHECKS;

/// What the stores of this crate promise with the defaults of a server, each with what its URL starts with, for tables: no
/// server is asked.
pub fn profiles() -> Vec<(&'static str, Profile)> {
    vec![("mysql:", backend::profile()), ("mysql:?mode=shedlock", shedlock::profile())]
}

/// Connects to the store at `address`, and creates its schema if there is none and the user may.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] for an address that is not of this crate or an option that does not
/// exist; otherwise whatever keeps the server from being used.
///
/// # Cancel safety
/// Safe: a connection that nobody waits for any more is closed again.
pub fn connect(
    address: Address,
    context: ConnectContext,
) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(backend::connect(address, context))
}

/// Brings the schema of the store at `address` up to date. Must be called in a tokio runtime.
///
/// # Errors
/// As [`connect`]; [`ErrorKind::Permission`] says which rights are missing.
///
/// # Cancel safety
/// Safe: what was not done is done by the next migration.
pub fn migrate(address: Address) -> BoxFuture<'static, Result<Migration>> {
    Box::pin(async move {
        let config = config::Config::read(&address)?;
        if config.mode == config::StoreMode::Shedlock {
            let message = format!(
                "the table of mode=shedlock is ShedLock's, and nothing is migrated there; if it is \
                 missing, run {}",
                shedlock::creation(&config.table)
            );
            let error = Error::new(ErrorKind::Unsupported, message);
            return Err(error.with_backend("mysql"));
        }
        let dialer = wire::Dialer::new(config)?;
        migration::migrate(&dialer, migration::Extent::Upgrade)
            .await
            .map_err(|failure| failure.to_error())
    })
}

/// Looks at the server at `address`, the way to it and the schema: what they mean for locks. Nothing is
/// changed there. Must be called in a tokio runtime.
///
/// # Errors
/// What keeps the server from being looked at: as [`connect`], but a server that only reads, a cluster
/// or a missing schema is something that is found.
///
/// # Cancel safety
/// Safe: it only looks.
pub fn diagnose(address: Address) -> BoxFuture<'static, Result<Diagnosis>> {
    Box::pin(diagnosis::diagnose(address))
}

/// Runs a gate's statement in the database at `address`, on a connection of its own. No schema is
/// needed there. Must be called in a tokio runtime.
///
/// # Errors
/// What keeps the server from being asked: as [`connect`].
///
/// # Cancel safety
/// When dropped before its end, it may have happened.
pub fn raise(address: Address, statement: GateStatement) -> BoxFuture<'static, Result<GateAnswer>> {
    Box::pin(async move {
        let dialer = wire::Dialer::new(config::Config::read(&address)?)?;
        let asking = async {
            let mut wire = dialer.dial().await?;
            let answer = wire.raise(&statement).await?;
            wire.close().await;
            Ok(answer)
        };
        asking.await.map_err(|failure: failure::Failure| failure.to_error())
    })
}
