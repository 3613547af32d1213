//! Fences in a database of somebody's own.

use std::path::{Path, PathBuf};

use lockfast_core::{Error, ErrorKind, GateAnswer, GateStatement, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use crate::place::shown;

/// See [`crate::raise`].
pub(crate) async fn raise(path: PathBuf, statement: GateStatement) -> Result<GateAnswer> {
    let raising = tokio::task::spawn_blocking(move || match run(&path, &statement) {
        Ok(highest) => Ok(GateAnswer::Highest(highest)),
        Err(error) => explain(&path, error),
    });
    let ended = |error| Error::new(ErrorKind::Internal, "the check ended").with_source(error);
    raising.await.map_err(ended)?
}

fn run(path: &Path, statement: &GateStatement) -> rusqlite::Result<Option<i64>> {
    // A database that is not there is a slip, and not one to be made.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(GateStatement::WAIT)?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let parameters = (statement.fence(), statement.lock.as_str());
    let asked = transaction.query_row(&statement.sql, parameters, |row| row.get(0));
    let highest = asked.optional()?;
    transaction.commit()?;
    Ok(highest)
}

/// What is wrong with the file is told with its name, the rest is left to the gate.
fn explain(path: &Path, error: rusqlite::Error) -> Result<GateAnswer> {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::NotADatabase) => ErrorKind::InvalidConfig,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => ErrorKind::Permission,
        _ => return Ok(GateAnswer::Refused(error.into())),
    };
    let message = format!("the fence cannot be checked in the database {}: {error}", shown(path));
    Err(Error::new(kind, message))
}
