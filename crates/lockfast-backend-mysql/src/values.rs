//! Values: one row each, compared and written by one call.

use std::time::Duration;

use lockfast_core::{
    Change, ErrorKind, Expected, LockName, Version, VersionedValue, WriteOutcome, WriteRequest,
};

use crate::failure::{self, Failure};
use crate::store::Store;
use crate::wire::{Answer, Argument};

/// The value of a name.
pub(crate) async fn read(
    store: &Store,
    name: &LockName,
) -> Result<Option<VersionedValue>, Failure> {
    let reply = store.ask("CALL lockfast_read(?)", vec![Argument::from(name.as_str())]).await?;
    reply.rows.first().map(|row| read_value(row, 0)).transpose()
}

/// Writes the value of a name. It may be repeated: the server knows its own write by the id.
pub(crate) async fn write(store: &Store, request: WriteRequest) -> Result<WriteOutcome, Failure> {
    let own = Version::from_bytes(request.id);
    let expected = match request.expected {
        Expected::Nothing => String::new(),
        Expected::Version(version) => version.to_string(),
    };
    let (put, keep) = match request.change {
        Change::Put { bytes, keep } => (Some(bytes), keep),
        Change::Remove => (None, None),
    };
    let written = put.is_some().then_some(own);
    let arguments = vec![
        Argument::from(request.name.as_str()),
        Argument::from(expected),
        Argument::from(own.to_string()),
        Argument::from(put),
        Argument::from(keep.map(write_span)),
    ];
    let reply = store.change("CALL lockfast_write(?, ?, ?, ?, ?, ?)", arguments).await?;
    let row = reply.rows.first().ok_or_else(nonsense)?;
    match (row.text(1), row.bytes(4)) {
        (Some("1"), _) => Ok(WriteOutcome::Written(written)),
        (Some("0"), _) if reply.is_doubtful => Err(failure::of_doubtful_write()),
        (Some("0"), None) => Ok(WriteOutcome::Conflict(None)),
        (Some("0"), Some(_)) => Ok(WriteOutcome::Conflict(Some(read_value(row, 4)?))),
        _ => Err(nonsense()),
    }
}

/// A value as the server tells it, from that column on.
fn read_value(row: &Answer, at: usize) -> Result<VersionedValue, Failure> {
    let read = || {
        let version = Version::from_bytes(row.bytes(at)?.try_into().ok()?);
        let bytes = row.bytes(at + 1)?.to_vec();
        VersionedValue::check(&bytes).ok()?;
        let left_us = row.number(at + 2)?;
        let remaining = (left_us > 0).then(|| Duration::from_micros(left_us));
        Some(VersionedValue::new(version, bytes, remaining))
    };
    read().ok_or_else(nonsense)
}

/// Whole microseconds, upwards, and as many as the procedure takes.
fn write_span(span: Duration) -> u64 {
    const MAX: u64 = 1_000_000_000_000_000_000;
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(MAX).min(MAX)
}

fn nonsense() -> Failure {
    let message = "the database holds a value that Lockfast's procedures do not write";
    Failure::new(ErrorKind::CorruptRecord, message)
}
