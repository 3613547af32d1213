//! `lockfast list`: the locks that are held or waited for, page by page, so that a million of
//! them need no more memory than a few.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use lockfast::{HolderView, LockName, LockView, Mode};
use lockfast_core::view::brief;

use super::view::{age, lock_value, mode_word, permits};
use crate::args::{Global, List};
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::plan::{self, Store};

type Row<T> = [T; 6];

const HEADER: Row<&str> = ["NAME", "HOLDER", "MODE", "HELD", "LEFT", "QUEUE"];
/// The columns that are folded when the table is too wide.
const WRAPPED: [usize; 2] = [0, 1];

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
    let locker = store.connect_to_look(output).await?;
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
    let rows = page.iter().flat_map(rows).map(|row| row.map(|cell| output.text(&cell).into()));
    let header = first.then_some(HEADER);
    output.table(&table(header, rows.collect(), output.columns()))
}

/// The table, with the cells of long names and holders on several lines where it would be too wide.
fn table(header: Option<Row<&str>>, rows: Vec<Row<String>>, columns: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(columns) = columns {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    }
    if let Some(header) = header {
        table.set_header(header);
    }
    table.add_rows(rows);
    // Nothing stands to the left of the names.
    if let Some(names) = table.column_mut(0) {
        names.set_padding((0, 1));
    }
    let fixed = table.column_iter_mut().filter(|column| !WRAPPED.contains(&column.index));
    fixed.for_each(|column| {
        column.set_constraint(ColumnConstraint::ContentWidth);
    });
    table.trim_fmt()
}

/// A row for each holder, or one for a lock that is only waited for.
fn rows(lock: &LockView) -> Vec<Row<String>> {
    let name = lock.name.to_string();
    let waiting = lock.waiting.to_string();
    let none = || "-".to_owned();
    if lock.holders.is_empty() {
        return vec![[name, none(), none(), none(), none(), waiting]];
    }
    let row = |holder: &HolderView| {
        [
            name.clone(),
            holder.label.as_ref().map_or_else(|| "another program".into(), ToString::to_string),
            mode(holder.mode),
            holder.since.map_or_else(none, |since| brief(age(since))),
            holder.time_left().map_or_else(none, brief),
            waiting.clone(),
        ]
    };
    lock.holders.iter().map(row).collect()
}

/// The mode in a few letters.
fn mode(mode: Mode) -> String {
    match permits(mode) {
        Some(limit) => format!("1 of {limit}"),
        None => mode_word(mode).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, holder: &str) -> Row<String> {
        [name, holder, "exclusive", "12h59m", "59.9s", "1000"].map(str::to_owned)
    }

    #[test]
    fn a_usual_table_fits_a_usual_terminal() {
        let rows = vec![row("nightly-report", "lockfast (pid 1234567 on web-1)")];
        let shown = table(Some(HEADER), rows, None);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }

    #[test]
    fn a_wide_table_is_folded_and_nothing_is_lost() {
        let (name, holder) = ("n".repeat(255), "lockfast (pid 1 on a.long.host) “a label”");
        for columns in [40, 80, 200] {
            let shown = table(Some(HEADER), vec![row(&name, holder)], Some(columns));
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns.max(60)), "{columns}: {shown}");
            assert_eq!(shown.matches('n').count(), 255 + holder.matches('n').count(), "{shown}");
            assert!(shown.contains("exclusive") && shown.contains("12h59m"), "{shown}");
        }
    }
}
