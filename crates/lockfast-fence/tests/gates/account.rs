//! What the lock guards in these tests: a balance, and a history of fences.

use lockfast::{FencingToken, Result};
use lockfast_core::BoxFuture;

use crate::sql::Place;
use crate::{etcd, file, http, mysql, postgres, redis, sqlite, sqlx};

/// The lock.
pub(crate) const LOCK: &str = "account/7";
/// What is there at first.
pub(crate) const START: u64 = 100;

/// An account, by a connection of its own. With a token everything goes through the gate, without
/// one it goes past it.
pub(crate) trait Account: Send {
    /// Makes what it needs, once.
    fn prepare(&mut self) -> BoxFuture<'_, ()>;

    /// Opens the gate, then reads.
    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>>;

    /// Writes the balance.
    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>>;

    /// Adds its fence to the history.
    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>>;

    /// The fences in the order in which they were added.
    fn history(&mut self) -> BoxFuture<'_, Vec<u64>>;
}

/// Where an account is; it can be given to another process.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// What kind of server.
    pub(crate) kind: &'static str,
    /// Where the fence is, in a database.
    pub(crate) place: Place,
    /// Where the server is.
    pub(crate) url: String,
}

/// The kinds, by which a site is told to another process.
const KINDS: [&str; 8] = ["file", "postgres", "mysql", "sqlite", "sqlx", "redis", "etcd", "http"];

impl Site {
    pub(crate) fn new(kind: &'static str, place: Place, url: impl Into<String>) -> Self {
        Self { kind, place, url: url.into() }
    }

    /// As three lines.
    pub(crate) fn write(&self) -> String {
        format!("{}\n{:?}\n{}", self.kind, self.place, self.url)
    }

    pub(crate) fn read(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let kind = KINDS.into_iter().find(|kind| *kind == lines[0]).unwrap();
        let place = if lines[1] == "Table" { Place::Table } else { Place::Column };
        Self::new(kind, place, lines[2])
    }

    pub(crate) async fn connect(&self) -> Box<dyn Account> {
        let Self { kind, place, url } = self;
        match *kind {
            "file" => Box::new(file::Files::in_directory(url)),
            "postgres" => Box::new(postgres::Postgres::connect(url, *place).await),
            "mysql" => Box::new(mysql::Mysql::connect(url, *place).await),
            "sqlite" => Box::new(sqlite::Sqlite::open(url, *place)),
            "sqlx" => Box::new(sqlx::Sqlx::connect(url, *place).await),
            "redis" => Box::new(redis::Redis::connect(url).await),
            "etcd" => Box::new(etcd::Etcd::at(url)),
            _ => Box::new(http::Client::of(url)),
        }
    }
}
