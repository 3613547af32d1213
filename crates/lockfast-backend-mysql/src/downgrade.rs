//! A writer becomes a reader, by one call.

use std::collections::{HashMap, HashSet};

use lockfast_core::{DowngradeOutcome, DowngradeRequest, Error, Mode};

use crate::batch::Renewal;
use crate::claim::read_mode;
use crate::failure::{self, Failure};
use crate::store::Store;
use crate::wire::Argument;

/// Downgrades a lease. A try that was not answered is known again by the mode that it left.
pub(crate) async fn downgrade(
    store: &Store,
    request: DowngradeRequest,
) -> Result<DowngradeOutcome, Failure> {
    let arguments =
        vec![Argument::from(request.name.as_str()), Argument::from(request.holder.to_hex())];
    let reply = store.change("CALL lockfast_downgrade(?, ?, ?)", arguments).await?;
    let nonsense = || failure::of_nonsense("a downgrade of another form");
    let said = reply.rows.first().and_then(|row| row.text(1)).ok_or_else(nonsense)?;
    let (_, line) = said.trim_end_matches('\n').split_once('\t').ok_or_else(nonsense)?;
    match line.split_once('\t') {
        None if line == "D" => Ok(DowngradeOutcome::Downgraded),
        Some(("C", mode)) => {
            Err(Error::conflict(Mode::Shared, read_mode(mode).ok_or_else(nonsense)?).into())
        }
        _ => {
            let loss = Renewal::read(line).ok_or_else(nonsense)?;
            let labels = match loss {
                Renewal::TakenBy(client) => store.find_labels(HashSet::from([client])).await,
                _ => HashMap::new(),
            };
            loss.loss(&labels).map(DowngradeOutcome::Lost).ok_or_else(nonsense)
        }
    }
}
