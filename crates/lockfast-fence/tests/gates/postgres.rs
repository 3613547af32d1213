//! PostgreSQL, with `tokio-postgres`.

use lockfast::fence::sql::Dialect;
use lockfast::{Error, ErrorKind, FencingToken, Result, Retry};
use lockfast_core::BoxFuture;
use lockfast_faults::postgres::Postgres as Server;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Transaction};

use crate::account::{Account, Site};
use crate::sql::{Gate, KEY, Place, tables};
use crate::story;

pub(crate) struct Postgres {
    client: Client,
    gate: Gate,
}

impl Postgres {
    pub(crate) async fn connect(url: &str, place: Place) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self { client, gate: Gate::new(Dialect::Postgres, place) }
    }

    async fn begin(&mut self) -> (Transaction<'_>, &Gate) {
        (self.client.transaction().await.unwrap(), &self.gate)
    }
}

async fn check(
    transaction: &Transaction<'_>,
    gate: &Gate,
    token: Option<&FencingToken>,
) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    let check = gate.check(token)?;
    let (fence, lock) = (check.fence(), check.lock());
    let second: &(dyn ToSql + Sync) = if gate.takes_name() { &lock } else { &KEY };
    let row = transaction.query_opt(check.sql(), &[&fence, second]).await;
    let row = row.map_err(|error| check.explain(error))?;
    check.admit(row.map(|row| row.get::<_, i64>(0)))
}

impl Account for Postgres {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            for sql in tables("BIGSERIAL PRIMARY KEY") {
                self.client.batch_execute(&sql).await.unwrap();
            }
            self.client.batch_execute(self.gate.setup()).await.unwrap();
        })
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin().await;
            check(&transaction, gate, token).await?;
            let row = transaction.query_one("SELECT balance FROM account", &[]).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(row.get::<_, i64>(0).cast_unsigned())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin().await;
            check(&transaction, gate, token).await?;
            let balance = balance.cast_signed();
            transaction.execute("UPDATE account SET balance = $1", &[&balance]).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(())
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (transaction, gate) = self.begin().await;
            check(&transaction, gate, Some(token)).await?;
            let fence = token.fence.get().cast_signed();
            let sql = "INSERT INTO history (fence) VALUES ($1)";
            transaction.execute(sql, &[&fence]).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(())
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        Box::pin(async {
            let sql = "SELECT fence FROM history ORDER BY id";
            let rows = self.client.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect()
        })
    }
}

#[tokio::test]
async fn a_stopped_holder_writes_late() {
    for place in [Place::Table, Place::Column] {
        let server = Server::start();
        story::a_stopped_holder_writes_late(&Site::new("postgres", place, server.url())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writers_pass_in_order() {
    for place in [Place::Table, Place::Column] {
        let server = Server::start();
        story::racing_writers_pass_in_order(&Site::new("postgres", place, server.url())).await;
    }
}

/// PostgreSQL numbers the writes of a transaction, and each row tells which one made it.
#[tokio::test]
async fn a_check_costs_one_statement() {
    for place in [Place::Table, Place::Column] {
        let server = Server::start();
        let mut account = Postgres::connect(&server.url(), place).await;
        account.prepare().await;
        for fence in [5, 5, 6] {
            let (transaction, gate) = account.begin().await;
            check(&transaction, gate, Some(&story::token(fence))).await.unwrap();
            let sql = "INSERT INTO history (fence) VALUES (0) RETURNING cmin::text";
            let row = transaction.query_one(sql, &[]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), "1", "it is the second write of the transaction");
        }
    }
}

/// A check and the write, in a transaction that the caller has begun.
async fn failure_of(client: &mut Client, gate: &Gate, token: &FencingToken) -> Error {
    let transaction = client.transaction().await.unwrap();
    check(&transaction, gate, Some(token)).await.unwrap_err()
}

#[tokio::test]
async fn what_is_missing_is_told() {
    let server = Server::start();
    let Postgres { mut client, gate: table } = Postgres::connect(&server.url(), Place::Table).await;
    let column = Gate::new(Dialect::Postgres, Place::Column);
    let token = story::token(5);
    client.batch_execute(&tables("BIGINT")[0]).await.unwrap();
    for (gate, fix) in [(&table, "CREATE TABLE"), (&column, "ALTER TABLE")] {
        let error = failure_of(&mut client, gate, &token).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(fix), "{error}");
        client.batch_execute(gate.setup()).await.unwrap();
    }
    let error = failure_of(&mut client, &column, &token).await;
    assert!(error.to_string().contains("no row of table account has the id"), "{error}");
}

/// With a stricter isolation the later one of two is told to begin again, and never let through.
#[tokio::test]
async fn writers_that_cross_in_a_stricter_isolation_begin_again() {
    let server = Server::start();
    let mut first = Postgres::connect(&server.url(), Place::Table).await;
    let mut second = Postgres::connect(&server.url(), Place::Table).await;
    first.prepare().await;
    first.read(Some(&story::token(1))).await.unwrap();
    let stricter = second.client.build_transaction();
    let crossed =
        stricter.isolation_level(tokio_postgres::IsolationLevel::Serializable).start().await;
    let crossed = crossed.unwrap();
    crossed.query_one("SELECT balance FROM account", &[]).await.unwrap();
    first.write(Some(&story::token(3)), 110).await.unwrap();
    let error = check(&crossed, &first.gate, Some(&story::token(2))).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, Retry::Later), "{error}");
}
