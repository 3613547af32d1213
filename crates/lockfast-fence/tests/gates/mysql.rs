//! MySQL and MariaDB, with `mysql_async`.

use lockfast::fence::sql::Dialect;
use lockfast::{ErrorKind, FencingToken, Result};
use lockfast_core::BoxFuture;
use lockfast_faults::mysql::{Flavor, Mysql as Server};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Transaction, TxOpts, Value};

use crate::account::{Account, Site};
use crate::sql::{Gate, KEY, Place, tables};
use crate::story;

pub(crate) struct Mysql {
    connection: Conn,
    gate: Gate,
}

impl Mysql {
    pub(crate) async fn connect(url: &str, place: Place) -> Self {
        let connection = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
        Self { connection, gate: Gate::new(Dialect::MySql, place) }
    }

    async fn begin(&mut self) -> (Transaction<'_>, &Gate) {
        (self.connection.start_transaction(TxOpts::default()).await.unwrap(), &self.gate)
    }
}

async fn check(
    transaction: &mut Transaction<'_>,
    gate: &Gate,
    token: Option<&FencingToken>,
) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    let check = gate.check(token)?;
    let second = if gate.takes_name() { Value::from(check.lock()) } else { Value::from(KEY) };
    let ran = transaction.exec_drop(check.sql(), (check.fence(), second)).await;
    ran.map_err(|error| check.explain(error))?;
    check.admit(transaction.last_insert_id())
}

impl Account for Mysql {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            for sql in tables("BIGINT AUTO_INCREMENT PRIMARY KEY") {
                self.connection.query_drop(sql).await.unwrap();
            }
            self.connection.query_drop(self.gate.setup()).await.unwrap();
        })
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (mut transaction, gate) = self.begin().await;
            check(&mut transaction, gate, token).await?;
            let balance = transaction.query_first("SELECT balance FROM account").await.unwrap();
            transaction.commit().await.unwrap();
            Ok(balance.unwrap())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (mut transaction, gate) = self.begin().await;
            check(&mut transaction, gate, token).await?;
            transaction.exec_drop("UPDATE account SET balance = ?", (balance,)).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(())
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (mut transaction, gate) = self.begin().await;
            if let Err(error) = check(&mut transaction, gate, Some(token)).await {
                transaction.rollback().await.unwrap();
                return Err(error);
            }
            let sql = "INSERT INTO history (fence) VALUES (?)";
            transaction.exec_drop(sql, (token.fence.get(),)).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(())
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        Box::pin(async {
            self.connection.query("SELECT fence FROM history ORDER BY id").await.unwrap()
        })
    }
}

async fn a_stopped_holder_writes_late(flavor: Flavor) {
    let server = Server::start(flavor);
    for place in [Place::Table, Place::Column] {
        let url = server.create_database(&format!("{place:?}").to_lowercase());
        story::a_stopped_holder_writes_late(&Site::new("mysql", place, url)).await;
    }
}

async fn racing_writers_pass_in_order(flavor: Flavor) {
    let server = Server::start(flavor);
    for place in [Place::Table, Place::Column] {
        let url = server.create_database(&format!("{place:?}").to_lowercase());
        story::racing_writers_pass_in_order(&Site::new("mysql", place, url)).await;
    }
}

/// How many statements the session has sent, with the one that asks.
async fn questions(transaction: &mut Transaction<'_>) -> u64 {
    let row: Option<(String, u64)> =
        transaction.query_first("SHOW SESSION STATUS LIKE 'Questions'").await.unwrap();
    row.unwrap().1
}

async fn a_check_costs_one_statement(flavor: Flavor) {
    let server = Server::start(flavor);
    what_is_missing_is_told(&server).await;
    for place in [Place::Table, Place::Column] {
        let url = server.create_database(&format!("{place:?}").to_lowercase());
        let mut account = Mysql::connect(&url, place).await;
        account.prepare().await;
        let (mut transaction, gate) = account.begin().await;
        for fence in [5, 5, 6] {
            let before = questions(&mut transaction).await;
            check(&mut transaction, gate, Some(&story::token(fence))).await.unwrap();
            let after = questions(&mut transaction).await;
            assert_eq!(after - before, 1 + 1, "the check and the question");
        }
        let error = check(&mut transaction, gate, Some(&story::token(5))).await.unwrap_err();
        assert_eq!(error.fence_seen().unwrap().get(), 6);
    }
}

async fn what_is_missing_is_told(server: &Server) {
    let mut account = Mysql::connect(&server.url(), Place::Table).await;
    account.connection.query_drop(&tables("BIGINT")[0]).await.unwrap();
    let column = Gate::new(Dialect::MySql, Place::Column);
    let token = story::token(5);
    for (gate, fix) in [(&account.gate, "CREATE TABLE"), (&column, "ALTER TABLE")] {
        let mut transaction =
            account.connection.start_transaction(TxOpts::default()).await.unwrap();
        let error = check(&mut transaction, gate, Some(&token)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(fix), "{error}");
        transaction.rollback().await.unwrap();
        account.connection.query_drop(gate.setup()).await.unwrap();
    }
    let (mut transaction, _) = account.begin().await;
    let error = check(&mut transaction, &column, Some(&token)).await.unwrap_err();
    assert!(error.to_string().contains("no row of table account has the id"), "{error}");
}

mod mariadb {
    use super::Flavor::MariaDb;

    #[tokio::test]
    async fn a_stopped_holder_writes_late() {
        super::a_stopped_holder_writes_late(MariaDb).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn racing_writers_pass_in_order() {
        super::racing_writers_pass_in_order(MariaDb).await;
    }

    #[tokio::test]
    async fn a_check_costs_one_statement_and_says_what_is_missing() {
        super::a_check_costs_one_statement(MariaDb).await;
    }
}

mod oracle {
    use super::Flavor::MySql;

    #[tokio::test]
    async fn a_stopped_holder_writes_late() {
        super::a_stopped_holder_writes_late(MySql).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn racing_writers_pass_in_order() {
        super::racing_writers_pass_in_order(MySql).await;
    }

    #[tokio::test]
    async fn a_check_costs_one_statement_and_says_what_is_missing() {
        super::a_check_costs_one_statement(MySql).await;
    }
}
