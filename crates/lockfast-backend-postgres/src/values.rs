//! Values: one row each, compared and written by one call.

use std::time::Duration;

use lockfast_core::{
    Change, Expected, LockName, Version, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio_postgres::Row;

use crate::batch::{Value, whole_us};
use crate::failure::{self, Failure};
use crate::store::Store;
use crate::wire::get;

const READ: &str = "SELECT version, bytes, left_us FROM {schema}.read_value($1)";
const WRITE: &str = "SELECT version, bytes, left_us, code \
    FROM {schema}.write_value($1, $2, $3, $4, $5, $6, $7)";

/// The value of a name.
pub(crate) async fn read(
    store: &Store,
    name: &LockName,
) -> Result<Option<VersionedValue>, Failure> {
    let rows = store.ask(READ, vec![Value::Text(name.as_str().to_owned())]).await?;
    Ok(rows.first().map(read_value).transpose()?.flatten())
}

/// Writes the value of a name. It may be repeated: the server knows its own write by the id.
pub(crate) async fn write(store: &Store, request: WriteRequest) -> Result<WriteOutcome, Failure> {
    let own = Version::from_bytes(request.id);
    let expected = match request.expected {
        Expected::Nothing => None,
        Expected::Version(version) => Some(version.as_bytes().to_vec()),
    };
    let (put, keep) = match request.change {
        Change::Put { bytes, keep } => (Some(bytes), keep),
        Change::Remove => (None, None),
    };
    let written = put.is_some().then_some(own);
    let values = vec![
        store.client_value(),
        Value::Link,
        Value::Text(request.name.as_str().to_owned()),
        Value::OptionalBytes(expected),
        Value::Bytes(own.as_bytes().to_vec()),
        Value::OptionalBytes(put),
        Value::OptionalNumber(keep.map(whole_us)),
    ];
    let told = store.change(WRITE, values).await?;
    let row = told.rows.first().ok_or_else(|| failure::of_nonsense("no row"))?;
    match get::<i16>(row, 3)? {
        1 => Ok(WriteOutcome::Written(written)),
        _ if told.is_doubtful => Err(failure::of_doubtful_write()),
        _ => Ok(WriteOutcome::Conflict(read_value(row)?)),
    }
}

/// A value as the server tells it.
fn read_value(row: &Row) -> Result<Option<VersionedValue>, Failure> {
    let Some(version) = get::<Option<&[u8]>>(row, 0)? else { return Ok(None) };
    let nonsense = || failure::of_nonsense("a value of another form");
    let version = Version::from_bytes(version.try_into().map_err(|_| nonsense())?);
    let bytes: Vec<u8> = get(row, 1)?;
    VersionedValue::check(&bytes).map_err(|_| nonsense())?;
    let left_us: Option<i64> = get(row, 2)?;
    let remaining = left_us.map(|us| u64::try_from(us).map(Duration::from_micros));
    let remaining = remaining.transpose().map_err(|_| nonsense())?;
    Ok(Some(VersionedValue::new(version, bytes, remaining)))
}
