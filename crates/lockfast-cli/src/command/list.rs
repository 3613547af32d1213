//! `lockfast list`: the locks that are held or waited for, page by page, so that a million of
//! them need no more memory than a few.

use comfy_table::{Table, presets};
use lockfast::{LockName, LockView, Locker};
use lockfast_core::view::brief;

use super::view::lock_value;
use crate::args::{Global, List};
use crate::exit::{Failure, Outcome};
use crate::output::{Output, timestamp};
use crate::plan::{self, Store};

/// How many locks are asked for at once.
const PAGE: usize = 500;

/// Prints the locks.
///
/// # Errors
/// When the store cannot be asked or the list cannot be written.
///
/// # Cancel safety
/// Safe: it only looks.
pub(crate) async fn run(args: &List, global: &Global, output: &Output) -> Outcome {
    let prefix = match &args.prefix {
        Some(prefix) => plan::text(prefix, "the prefix")?,
        None => "",
    };
    let store = Store::choose(global, output)?;
    let locker = store.connect(Locker::builder()).await?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut after: Option<LockName> = None;
    let mut first = true;
    while left > 0 {
        let limit = usize::try_from(left).unwrap_or(PAGE).min(PAGE);
        let page = locker.list(prefix, after.as_ref(), limit).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        left -= page.len() as u64;
        print(&page, first, output)?;
        first = false;
        if page.len() < limit {
            break;
        }
    }
    if first && !output.json() && output.is_terminal() {
        output.note("no lock is held or waited for");
    }
    Ok(0)
}

fn print(page: &[LockView], first: bool, output: &Output) -> Result<(), Failure> {
    if output.json() {
        return page.iter().try_for_each(|lock| output.value(&lock_value(lock)));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if first {
        table.set_header(["NAME", "MODE", "FENCE", "HOLDER", "SINCE", "LEFT", "WAITING"]);
    }
    for lock in page {
        rows(lock).into_iter().for_each(|row| {
            table.add_row(row.map(|cell| output.text(&cell).into_owned()));
        });
    }
    output.table(&table.trim_fmt())
}

/// A row for each holder, or one for a lock that is only waited for.
fn rows(lock: &LockView) -> Vec<[String; 7]> {
    let name = lock.name.to_string();
    let waiting = lock.waiting.to_string();
    if lock.holders.is_empty() {
        let none = || "-".to_owned();
        return vec![[name, none(), none(), none(), none(), none(), waiting]];
    }
    let row = |holder: &lockfast::HolderView| {
        [
            name.clone(),
            holder.mode.to_string(),
            holder.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
            holder.label.as_ref().map_or_else(|| "another program".into(), ToString::to_string),
            timestamp(holder.since),
            holder.time_left().map_or_else(|| "-".to_owned(), brief),
            waiting.clone(),
        ]
    };
    lock.holders.iter().map(row).collect()
}
