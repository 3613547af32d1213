//! PostgreSQL and MariaDB, with `sqlx`. Its SQLite is not here: two libraries cannot both bring one.

use lockfast::fence::sql::{Check, Dialect};
use lockfast::{ErrorKind, FencingToken, Result};
use lockfast_core::BoxFuture;
use lockfast_faults::mysql::{Flavor, Mysql};
use lockfast_faults::postgres::Postgres;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection, Transaction};

use crate::account::{Account, Site};
use crate::sql::{Gate, KEY, Place, tables};
use crate::story;

pub(crate) struct Sqlx {
    connection: Connection,
    gate: Gate,
}

enum Connection {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

enum Begun<'a> {
    Postgres(Transaction<'a, sqlx::Postgres>),
    MySql(Transaction<'a, sqlx::MySql>),
}

impl Sqlx {
    pub(crate) async fn connect(url: &str, place: Place) -> Self {
        let (connection, dialect) = if url.starts_with("mysql:") {
            (Connection::MySql(MySqlConnection::connect(url).await.unwrap()), Dialect::MySql)
        } else {
            (Connection::Postgres(PgConnection::connect(url).await.unwrap()), Dialect::Postgres)
        };
        Self { connection, gate: Gate::new(dialect, place) }
    }

    /// A transaction that has passed the gate with this token.
    async fn begin(&mut self, token: Option<&FencingToken>) -> Result<Begun<'_>> {
        let mut begun = match &mut self.connection {
            Connection::Postgres(connection) => Begun::Postgres(connection.begin().await.unwrap()),
            Connection::MySql(connection) => Begun::MySql(connection.begin().await.unwrap()),
        };
        let Some(token) = token else { return Ok(begun) };
        let check = self.gate.check(token)?;
        let answer = begun.ask(&check, self.gate.takes_name()).await;
        match check.admit(answer.map_err(|error| check.explain(error))?) {
            Ok(()) => Ok(begun),
            Err(error) => {
                begun.roll_back().await;
                Err(error)
            }
        }
    }
}

impl Begun<'_> {
    async fn ask(&mut self, check: &Check<'_>, takes_name: bool) -> sqlx::Result<Option<i64>> {
        let sql = AssertSqlSafe(check.sql());
        match self {
            Self::Postgres(transaction) => {
                let query = sqlx::query_scalar(sql).bind(check.fence());
                let query = if takes_name { query.bind(check.lock()) } else { query.bind(KEY) };
                query.fetch_optional(&mut **transaction).await
            }
            Self::MySql(transaction) => {
                let query = sqlx::query(sql).bind(check.fence());
                let query = if takes_name { query.bind(check.lock()) } else { query.bind(KEY) };
                let answer = query.execute(&mut **transaction).await?;
                Ok(Some(answer.last_insert_id().cast_signed()))
            }
        }
    }

    async fn run(&mut self, sql: &str) {
        let query = AssertSqlSafe(sql);
        match self {
            Self::Postgres(it) => drop(sqlx::query(query).execute(&mut **it).await.unwrap()),
            Self::MySql(it) => drop(sqlx::query(query).execute(&mut **it).await.unwrap()),
        }
    }

    async fn read(&mut self, sql: &'static str) -> Vec<u64> {
        let numbers: sqlx::Result<Vec<i64>> = match self {
            Self::Postgres(it) => sqlx::query_scalar(sql).fetch_all(&mut **it).await,
            Self::MySql(it) => sqlx::query_scalar(sql).fetch_all(&mut **it).await,
        };
        numbers.unwrap().into_iter().map(i64::cast_unsigned).collect()
    }

    async fn commit(self) {
        match self {
            Self::Postgres(transaction) => transaction.commit().await.unwrap(),
            Self::MySql(transaction) => transaction.commit().await.unwrap(),
        }
    }

    async fn roll_back(self) {
        match self {
            Self::Postgres(transaction) => transaction.rollback().await.unwrap(),
            Self::MySql(transaction) => transaction.rollback().await.unwrap(),
        }
    }
}

impl Account for Sqlx {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let setup = self.gate.setup().to_owned();
            let mut begun = self.begin(None).await.unwrap();
            let numbered = match begun {
                Begun::Postgres(_) => "BIGSERIAL PRIMARY KEY",
                Begun::MySql(_) => "BIGINT AUTO_INCREMENT PRIMARY KEY",
            };
            for sql in tables(numbered).into_iter().chain([setup]) {
                begun.run(&sql).await;
            }
            begun.commit().await;
        })
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let mut begun = self.begin(token).await?;
            let balance = begun.read("SELECT balance FROM account").await[0];
            begun.commit().await;
            Ok(balance)
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut begun = self.begin(token).await?;
            begun.run(&format!("UPDATE account SET balance = {balance}")).await;
            begun.commit().await;
            Ok(())
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut begun = self.begin(Some(token)).await?;
            begun.run(&format!("INSERT INTO history (fence) VALUES ({})", token.fence)).await;
            begun.commit().await;
            Ok(())
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        Box::pin(async {
            let mut begun = self.begin(None).await.unwrap();
            begun.read("SELECT fence FROM history ORDER BY id").await
        })
    }
}

const PLACES: [Place; 2] = [Place::Table, Place::Column];

async fn what_is_missing_is_told(url: &str) {
    for place in PLACES {
        let mut account = Sqlx::connect(url, place).await;
        let error = account.write(Some(&story::token(5)), 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(account.gate.setup()), "{error}");
    }
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn a_stopped_holder_writes_late() {
        let server = Postgres::start();
        what_is_missing_is_told(&server.url()).await;
        for place in PLACES {
            let url = server.create_database(&format!("{place:?}").to_lowercase());
            story::a_stopped_holder_writes_late(&Site::new("sqlx", place, url)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn racing_writers_pass_in_order() {
        let server = Postgres::start();
        for place in PLACES {
            let url = server.create_database(&format!("{place:?}").to_lowercase());
            story::racing_writers_pass_in_order(&Site::new("sqlx", place, url)).await;
        }
    }
}

mod mariadb {
    use super::*;

    #[tokio::test]
    async fn a_stopped_holder_writes_late() {
        let server = Mysql::start(Flavor::MariaDb);
        what_is_missing_is_told(&server.url()).await;
        for place in PLACES {
            let url = server.create_database(&format!("{place:?}").to_lowercase());
            story::a_stopped_holder_writes_late(&Site::new("sqlx", place, url)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn racing_writers_pass_in_order() {
        let server = Mysql::start(Flavor::MariaDb);
        for place in PLACES {
            let url = server.create_database(&format!("{place:?}").to_lowercase());
            story::racing_writers_pass_in_order(&Site::new("sqlx", place, url)).await;
        }
    }
}
