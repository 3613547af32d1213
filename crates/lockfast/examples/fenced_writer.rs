//! A holder is paused for longer than its lease, and then writes. The lock cannot stop that write; the
//! database does, because each write carries the fence of its holder.
//!
//! ```text
//! cargo run --example fenced_writer
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;
use std::time::Duration;

use lockfast::fence::sql::{Dialect, TableGate};
use lockfast::{Error, FencingToken, Locker};
use rusqlite::{Connection, TransactionBehavior};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Sets the balance, unless a later holder was here.
fn set_balance(
    database: &mut Connection,
    gate: &TableGate,
    token: &FencingToken,
    balance: i64,
) -> Outcome<()> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let check = gate.check(token)?;
    let highest = transaction
        .query_row(check.sql(), (check.fence(), check.lock()), |row| row.get::<_, i64>(0))
        .map_err(|error| check.explain(error))?;
    check.admit(Some(highest))?; // refused: nothing of the transaction happens
    transaction.execute("UPDATE account SET balance = ?1 WHERE id = 7", [balance])?;
    Ok(transaction.commit()?)
}

/// What became of the late write, and the balance in the end.
pub(crate) async fn write_late(file: &Path) -> Outcome<(Error, i64)> {
    let gate = TableGate::new(Dialect::Sqlite, "account/7")?;
    let mut database = Connection::open(file)?;
    database.execute(gate.setup(), [])?; // once, where the other tables are made
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
         INSERT INTO account VALUES (7, 100);",
    )?;
    let account = Locker::connect("memory:").await?.mutex("account/7")?;

    // The first holder is paused: nobody renews its lease, and it ends.
    let paused = account.clone().ttl(Duration::from_millis(200)).acquire_detached().await?;

    // The next one waits for that, and pays in 50.
    let guard = account.acquire().await?;
    set_balance(&mut database, &gate, &guard.token(), 150)?;
    guard.release().await?;

    // The first one goes on: it had read 100, and pays in 10.
    let refused = match set_balance(&mut database, &gate, &paused.token(), 110) {
        Ok(()) => return Err("the late write got through".into()),
        Err(error) => *error.downcast::<Error>()?,
    };
    let select = "SELECT balance FROM account WHERE id = 7";
    let balance = database.query_row(select, [], |row| row.get(0))?;
    Ok((refused, balance))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let (refused, balance) = write_late(&directory.path().join("bank.db")).await?;
    println!("the late write: {refused}");
    println!("the balance is {balance}");
    Ok(())
}
