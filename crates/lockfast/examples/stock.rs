//! A stock from which 32 clients sell until it is empty, in a table of their own. Nobody holds a
//! lock: each writes only if the stock is still the one that it has read, and otherwise begins again.
//! In the end nothing was sold twice and nothing is left over.
//!
//! ```text
//! cargo run --example stock
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;
use std::time::Duration;

use lockfast::optimistic::{Attempts, Step, retry};
use lockfast::{Error, ErrorKind, Result};
use rusqlite::Connection;

const ITEM: i64 = 7;
const CLIENTS: usize = 32;

/// What was sold, by whom, and what is left.
#[derive(Debug)]
pub(crate) struct Day {
    /// How much each client has sold.
    pub(crate) sold: Vec<i64>,
    /// How often somebody else was first.
    pub(crate) conflicts: usize,
    /// What no client wanted any more.
    pub(crate) left: i64,
}

/// Sells a stock, of which each client takes one to three at a time.
pub(crate) fn sell_all(file: &Path, stock: i64) -> Result<Day> {
    let database = open(file)?;
    let schema = "PRAGMA journal_mode = WAL;
        CREATE TABLE item (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL CHECK (stock >= 0));";
    database.execute_batch(schema).map_err(told)?;
    database.execute("INSERT INTO item VALUES (?1, ?2)", (ITEM, stock)).map_err(told)?;
    let clients: Vec<Result<(i64, usize)>> = std::thread::scope(|scope| {
        let client = |number: usize| scope.spawn(move || sell(file, 1 + number as i64 % 3));
        let running: Vec<_> = (0..CLIENTS).map(client).collect();
        let crashed = |_| Err(Error::new(ErrorKind::Internal, "a client has panicked"));
        running.into_iter().map(|client| client.join().unwrap_or_else(crashed)).collect()
    });
    let mut day = Day { sold: Vec::new(), conflicts: 0, left: read(&database)? };
    for client in clients {
        let (sold, conflicts) = client?;
        day.sold.push(sold);
        day.conflicts += conflicts;
    }
    Ok(day)
}

/// One client, with a connection of its own: what it has sold, and how often it had to begin again.
fn sell(file: &Path, count: i64) -> Result<(i64, usize)> {
    let database = open(file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(told)?;
    let (mut sold, mut conflicts) = (0, 0);
    while runtime.block_on(take(&database, count, &mut conflicts))? {
        sold += count;
    }
    // The last pieces go one by one.
    while runtime.block_on(take(&database, 1, &mut conflicts))? {
        sold += 1;
    }
    Ok((sold, conflicts))
}

/// Takes so many, if there are so many.
async fn take(database: &Connection, count: i64, conflicts: &mut usize) -> Result<bool> {
    // 31 others compete for the same row, which is more than the default is made for.
    let attempts = Attempts::default().most(1_000).pause_max(Duration::from_millis(10));
    let mut made = 0;
    let taken = retry(attempts, || {
        made += 1;
        async {
            let stock = read(database)?;
            if stock < count {
                return Ok(Step::Done(false));
            }
            let update = "UPDATE item SET stock = stock - ?1 WHERE id = ?2 AND stock = ?3";
            let changed = database.execute(update, (count, ITEM, stock)).map_err(told)?;
            Ok(if changed == 0 { Step::Conflict } else { Step::Done(true) })
        }
    })
    .await?;
    *conflicts += made - 1;
    Ok(taken)
}

fn open(file: &Path) -> Result<Connection> {
    let database = Connection::open(file).map_err(told)?;
    database.busy_timeout(Duration::from_secs(60)).map_err(told)?;
    Ok(database)
}

fn read(database: &Connection) -> Result<i64> {
    let select = "SELECT stock FROM item WHERE id = ?1";
    database.query_row(select, [ITEM], |row| row.get(0)).map_err(told)
}

fn told(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, error.to_string())
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(told)?;
    let stock = 1_000;
    let day = sell_all(&directory.path().join("stock.db"), stock)?;
    let sold: i64 = day.sold.iter().sum();
    println!(
        "{sold} of {stock} sold by {} clients, {} left, {} conflicts",
        day.sold.len(),
        day.left,
        day.conflicts
    );
    Ok(())
}
