//! A writer becomes a reader, by one call.

use lockfast_core::{DowngradeOutcome, DowngradeRequest, Error, Mode};

use crate::answer::read_loss;
use crate::batch::{Value, read_mode};
use crate::failure::{self, Failure};
use crate::store::Store;
use crate::wire::{Uuid, get};

const DOWNGRADE: &str = "SELECT code, number, note FROM {schema}.downgrade($1, $2, $3, $4)";

/// Downgrades a lease. A try that was not answered is known again by the mode that it left.
pub(crate) async fn downgrade(
    store: &Store,
    request: DowngradeRequest,
) -> Result<DowngradeOutcome, Failure> {
    let values = vec![
        store.client_value(),
        Value::Link,
        Value::Text(request.name.as_str().to_owned()),
        Value::Holder(Uuid(request.holder)),
    ];
    let told = store.change(DOWNGRADE, values).await?;
    let row = told.rows.first().ok_or_else(|| failure::of_nonsense("no row"))?;
    let code: i16 = get(row, 0)?;
    let nonsense = || failure::of_nonsense(format!("code {code} to a downgrade"));
    match code {
        1 => Ok(DowngradeOutcome::Downgraded),
        5 => {
            let number: Option<i32> = get(row, 1)?;
            let used = number.and_then(|number| read_mode(number.into())).ok_or_else(nonsense)?;
            Err(Error::conflict(Mode::Shared, used).into())
        }
        _ => {
            let note: Option<&str> = get(row, 2)?;
            read_loss(code, note).map(DowngradeOutcome::Lost).ok_or_else(nonsense)
        }
    }
}
