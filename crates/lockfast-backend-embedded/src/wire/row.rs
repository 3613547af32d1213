//! Between rows and claims, and between database errors and ours.

use std::path::Path;

use lockfast_core::{ClientId, ErrorKind, Fence, HolderId, LockName, Mode};
use rusqlite::{Row, Statement, ffi, params};

use crate::claim::{Claim, Hold, Saved, Stage};
use crate::failure::Failure;
use crate::place::shown;

/// No queue is ever that long, and the one after it can still be written.
const TICKET_MAX: u64 = 1 << 62;

/// Runs a statement with all columns of a claim.
pub(super) fn write_claim(
    statement: &mut Statement<'_>,
    name: &LockName,
    claim: &Claim,
) -> rusqlite::Result<()> {
    let mode = match claim.mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { limit } => i64::from(limit.get()),
    };
    let (stage, fence, from_ns, since_us, reason) = match &claim.stage {
        Stage::Waiting => (0, 0, 0, 0, ""),
        Stage::Granted(hold) => (1, hold.fence.get(), hold.from_ns, hold.since_us, ""),
        Stage::Revoked { fence, reason } => (2, fence.get(), 0, 0, &**reason),
    };
    statement.execute(params![
        signed(claim.ticket),
        claim.holder.as_bytes(),
        claim.client.as_bytes(),
        mode,
        stage,
        signed(fence),
        signed(from_ns),
        signed(since_us),
        signed(claim.ttl_ns),
        signed(claim.delay_ns),
        signed(claim.ends_ns),
        signed(claim.floor),
        claim.detached,
        reason,
        name.as_str(),
    ])?;
    Ok(())
}

/// The claim of a row.
pub(super) fn read_claim(row: &Row<'_>) -> rusqlite::Result<Claim> {
    let number = |at: usize| -> rusqlite::Result<u64> {
        let number: i64 = row.get(at)?;
        u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, number))
    };
    let invalid = |at: usize| rusqlite::Error::IntegralValueOutOfRange(at, -1);
    let mode = match row.get::<_, i64>(3)? {
        0 => Mode::Exclusive,
        -1 => Mode::Shared,
        limit => {
            let limit = u32::try_from(limit).map_err(|_| invalid(3))?;
            Mode::permit(limit).map_err(|_| invalid(3))?
        }
    };
    let fence = || Fence::new(number(5)?).map_err(|_| invalid(5));
    let stage = match number(4)? {
        0 => Stage::Waiting,
        1 => Stage::Granted(Hold { fence: fence()?, from_ns: number(6)?, since_us: number(7)? }),
        2 => Stage::Revoked { fence: fence()?, reason: row.get_ref(13)?.as_str()?.into() },
        _ => return Err(invalid(4)),
    };
    let ticket = number(0)?;
    if ticket > TICKET_MAX {
        return Err(invalid(0));
    }
    Ok(Claim {
        ticket,
        holder: HolderId::from_bytes(row.get(1)?),
        client: ClientId::from_bytes(row.get(2)?),
        mode,
        stage,
        ttl_ns: number(8)?,
        delay_ns: number(9)?,
        ends_ns: number(10)?,
        floor: number(11)?,
        detached: row.get(12)?,
        saved: Saved::Yes,
    })
}

/// SQLite's integers are signed; no number of ours reaches that far.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a database error means for people.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> Failure {
    use rusqlite::ErrorCode as Code;
    let path = shown(path);
    // A statement of ours that the database does not understand is not worth showing.
    let (code, cause) = match error {
        rusqlite::Error::SqlInputError { error, msg, .. } => (Some(error.code), msg.clone()),
        error => (error.sqlite_error_code(), error.to_string()),
    };
    let (kind, what) = match code {
        Some(Code::NotADatabase | Code::DatabaseCorrupt) => (
            ErrorKind::CorruptRecord,
            "is damaged or no database; move its directory away to begin anew",
        ),
        Some(Code::DiskFull) => (
            ErrorKind::Unreachable,
            "cannot grow because the disk is full; make room and try again",
        ),
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
            (ErrorKind::Unreachable, "is kept locked by another program; end that and try again")
        }
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => (
            ErrorKind::Permission,
            "cannot be opened for writing; use a directory that this user may write to",
        ),
        // A quota or a limit is not told apart from a broken disk.
        Some(Code::SystemIoFailure) if is_failed_write(error) => (
            ErrorKind::Unreachable,
            "cannot be written; see whether its disk is full or broken, or a quota or a limit of \
             its size is reached, and try again",
        ),
        Some(Code::SystemIoFailure) => {
            (ErrorKind::Unreachable, "cannot be read or written; see to its disk and try again")
        }
        // All statements are ours, so it is the tables that are not.
        Some(Code::Unknown | Code::ConstraintViolation | Code::TypeMismatch) => (
            ErrorKind::CorruptRecord,
            "does not have the tables or records that Lockfast made; move its directory away to \
             begin anew",
        ),
        Some(_) => (ErrorKind::Internal, "was used in a way it does not allow"),
        None => (
            ErrorKind::CorruptRecord,
            "holds a record that Lockfast did not write; remove it or begin anew",
        ),
    };
    Failure::new(kind, format!("{path} {what} ({cause})"))
}

fn is_failed_write(error: &rusqlite::Error) -> bool {
    const WRITES: [i32; 3] =
        [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_TRUNCATE, ffi::SQLITE_IOERR_SHMSIZE];
    error.sqlite_error().is_some_and(|error| WRITES.contains(&error.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_errors_say_what_to_do() {
        let table = [
            (ffi::SQLITE_NOTADB, ErrorKind::CorruptRecord, "begin anew"),
            (ffi::SQLITE_CORRUPT, ErrorKind::CorruptRecord, "begin anew"),
            (ffi::SQLITE_FULL, ErrorKind::Unreachable, "the disk is full"),
            (ffi::SQLITE_BUSY, ErrorKind::Unreachable, "another program"),
            (ffi::SQLITE_READONLY, ErrorKind::Permission, "this user may write"),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Permission, "this user may write"),
            (ffi::SQLITE_IOERR, ErrorKind::Unreachable, "see to its disk"),
            (ffi::SQLITE_IOERR_WRITE, ErrorKind::Unreachable, "whether its disk is full"),
            (ffi::SQLITE_ERROR, ErrorKind::CorruptRecord, "begin anew"),
            (ffi::SQLITE_CONSTRAINT, ErrorKind::CorruptRecord, "begin anew"),
            (ffi::SQLITE_MISUSE, ErrorKind::Internal, "does not allow"),
        ];
        for (code, kind, text) in table {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let failure = explain(Path::new("/x/lockfast.db"), &error);
            assert_eq!(failure.kind(), kind, "{}", failure.message());
            assert!(failure.message().contains(text), "{}", failure.message());
            assert!(failure.message().contains("/x/lockfast.db"), "{}", failure.message());
        }
    }
}
