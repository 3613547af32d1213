//! SQLite, with `rusqlite`.

use std::time::Duration;

use lockfast::fence::sql::Dialect;
use lockfast::{ErrorKind, FencingToken, Result};
use lockfast_core::BoxFuture;
use rusqlite::{Connection, OptionalExtension as _, ToSql, Transaction, TransactionBehavior};

use crate::account::{Account, START, Site};
use crate::sql::{Gate, KEY, Place, tables};
use crate::story;

pub(crate) struct Sqlite {
    connection: Connection,
    gate: Gate,
}

impl Sqlite {
    pub(crate) fn open(path: &str, place: Place) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        Self { connection, gate: Gate::new(Dialect::Sqlite, place) }
    }

    fn begin(&mut self) -> (Transaction<'_>, &Gate) {
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        (begun.unwrap(), &self.gate)
    }
}

fn check(transaction: &Transaction<'_>, gate: &Gate, token: Option<&FencingToken>) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    let check = gate.check(token)?;
    let lock = check.lock();
    let second: &dyn ToSql = if gate.takes_name() { &lock } else { &KEY };
    // It refuses more than one statement.
    let answer = transaction
        .prepare(check.sql())
        .and_then(|mut statement| {
            statement.query_row((check.fence(), second), |row| row.get::<_, i64>(0)).optional()
        })
        .map_err(|error| check.explain(error))?;
    check.admit(answer)
}

impl Account for Sqlite {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        for sql in tables("INTEGER PRIMARY KEY AUTOINCREMENT") {
            self.connection.execute(&sql, []).unwrap();
        }
        self.connection.execute(self.gate.setup(), []).unwrap();
        Box::pin(async {})
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin();
            check(&transaction, gate, token)?;
            let sql = "SELECT balance FROM account";
            let balance = transaction.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
            transaction.commit().unwrap();
            Ok(balance.cast_unsigned())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin();
            check(&transaction, gate, token)?;
            let balance = balance.cast_signed();
            transaction.execute("UPDATE account SET balance = ?1", [balance]).unwrap();
            transaction.commit().unwrap();
            Ok(())
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin();
            check(&transaction, gate, Some(token))?;
            let fence = token.fence.get().cast_signed();
            transaction.execute("INSERT INTO history (fence) VALUES (?1)", [fence]).unwrap();
            transaction.commit().unwrap();
            Ok(())
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        let sql = "SELECT fence FROM history ORDER BY id";
        let mut statement = self.connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        let fences = rows.map(|fence| fence.unwrap().cast_unsigned()).collect();
        Box::pin(async { fences })
    }
}

#[tokio::test]
async fn a_stopped_holder_writes_late() {
    for place in [Place::Table, Place::Column] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").display().to_string();
        story::a_stopped_holder_writes_late(&Site::new("sqlite", place, path)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_pass_in_order() {
    for place in [Place::Table, Place::Column] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").display().to_string();
        story::racing_writers_pass_in_order(&Site::new("sqlite", place, path)).await;
    }
}

#[tokio::test]
async fn what_is_missing_is_told() {
    let mut account = Sqlite::open(":memory:", Place::Table);
    account.connection.execute(&tables("BIGINT")[0], []).unwrap();
    let column = Gate::new(Dialect::Sqlite, Place::Column);
    let token = story::token(5);
    for (gate, fix) in [(&account.gate, "CREATE TABLE"), (&column, "ALTER TABLE")] {
        let transaction = account.connection.unchecked_transaction().unwrap();
        let error = check(&transaction, gate, Some(&token)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(fix), "{error}");
        drop(transaction);
        account.connection.execute(gate.setup(), []).unwrap();
    }
    let (transaction, _) = account.begin();
    let error = check(&transaction, &column, Some(&token)).unwrap_err();
    assert!(error.to_string().contains("no row of table account has the id"), "{error}");
}

/// A column that holds what no gate wrote: nothing passes, and it is told.
#[tokio::test]
async fn what_is_no_fence_is_told() {
    let mut account = Sqlite::open(":memory:", Place::Column);
    account.prepare().await;
    account.connection.execute("UPDATE account SET fence = 9007199254740992", []).unwrap();
    let error = account.write(Some(&story::token(5)), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExhausted, "{error}");
    assert_eq!(account.read(None).await.unwrap(), START);
}
