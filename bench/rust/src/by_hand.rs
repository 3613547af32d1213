//! A lease row in a database, by the bare driver: one statement takes it and raises its fence, one
//! gives it back. No queue, no label, no batches: what people write themselves.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, bail};
use mysql_async::prelude::Queryable as _;
use tokio::sync::Semaphore;
use tokio_postgres::NoTls;

/// Makes the table anew.
const POSTGRES_TABLE: &str = "
CREATE TABLE IF NOT EXISTS by_hand
  (name text PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL, fence bigint NOT NULL)";
const POSTGRES_TAKE: &str = "
INSERT INTO by_hand VALUES ($1, $2, clock_timestamp() + interval '30 s', 1)
ON CONFLICT (name) DO UPDATE SET
  holder = excluded.holder, until = excluded.until, fence = by_hand.fence + 1
WHERE by_hand.until < clock_timestamp()
RETURNING fence";
const POSTGRES_GIVE: &str =
    "UPDATE by_hand SET until = '-infinity' WHERE name = $1 AND holder = $2";

const MARIADB_TABLE: &str = "
CREATE TABLE IF NOT EXISTS by_hand
  (name varchar(191) CHARACTER SET ascii PRIMARY KEY, holder varchar(64) NOT NULL,
   until datetime(6) NOT NULL, fence bigint NOT NULL) ENGINE=InnoDB";
/// The columns are set in this order, so the time that decides is the last to change.
const MARIADB_TAKE: &str = "
INSERT INTO by_hand VALUES (?, ?, NOW(6) + INTERVAL 30 SECOND, 1)
ON DUPLICATE KEY UPDATE
  fence = IF(until < NOW(6), fence + 1, fence),
  holder = IF(until < NOW(6), VALUES(holder), holder),
  until = IF(until < NOW(6), VALUES(until), until)
RETURNING holder, fence";
const MARIADB_GIVE: &str = "UPDATE by_hand SET until = '2000-01-01' WHERE name = ? AND holder = ?";

/// One connection with its statements prepared.
enum Session {
    Postgres {
        client: tokio_postgres::Client,
        take: tokio_postgres::Statement,
        give: tokio_postgres::Statement,
    },
    MariaDb {
        client: mysql_async::Conn,
        take: mysql_async::Statement,
        give: mysql_async::Statement,
    },
}

impl Session {
    async fn open(url: &str) -> Result<Self> {
        if url.starts_with("postgres:") {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(POSTGRES_TABLE).await?;
            let take = client.prepare(POSTGRES_TAKE).await?;
            let give = client.prepare(POSTGRES_GIVE).await?;
            return Ok(Self::Postgres { client, take, give });
        }
        if url.starts_with("mysql:") {
            let options = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url)?);
            // Over TCP, as a store on another machine is reached.
            let mut client = mysql_async::Conn::new(options.prefer_socket(false)).await?;
            client.query_drop(MARIADB_TABLE).await?;
            let take = client.prep(MARIADB_TAKE).await?;
            let give = client.prep(MARIADB_GIVE).await?;
            return Ok(Self::MariaDb { client, take, give });
        }
        bail!("there is nothing by hand for this store")
    }

    /// Whether the lease was free.
    async fn take(&mut self, name: &str, holder: &str) -> Result<bool> {
        Ok(match self {
            Self::Postgres { client, take, .. } => {
                client.query_opt(&*take, &[&name, &holder]).await?.is_some()
            }
            Self::MariaDb { client, take, .. } => {
                let row: Option<(String, u64)> = client.exec_first(&*take, (name, holder)).await?;
                row.is_some_and(|(found, _)| found == holder)
            }
        })
    }

    async fn give(&mut self, name: &str, holder: &str) -> Result<()> {
        let changed = match self {
            Self::Postgres { client, give, .. } => {
                client.execute(&*give, &[&name, &holder]).await?
            }
            Self::MariaDb { client, give, .. } => {
                client.exec_drop(&*give, (name, holder)).await?;
                client.affected_rows()
            }
        };
        if changed != 1 {
            bail!("{name} was not held");
        }
        Ok(())
    }
}

/// Sessions that are used by turns.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Sessions>);

struct Sessions {
    free: Mutex<Vec<Session>>,
    count: Semaphore,
}

impl Pool {
    pub(crate) async fn open(url: &str, sessions: usize) -> Result<Self> {
        let mut free = Vec::with_capacity(sessions);
        for _ in 0..sessions {
            free.push(Session::open(url).await?);
        }
        let count = Semaphore::new(sessions);
        Ok(Self(Arc::new(Sessions { free: Mutex::new(free), count })))
    }

    fn take_session(&self) -> Result<Session> {
        let mut free = self.0.free.lock().ok().context("another task panicked")?;
        free.pop().context("no session although there is a permit")
    }

    fn give_session(&self, session: Session) -> Result<()> {
        self.0.free.lock().ok().context("another task panicked")?.push(session);
        Ok(())
    }
}

/// One who wants a lease.
pub(crate) struct Lease {
    pool: Pool,
    name: String,
    holder: String,
}

impl Lease {
    pub(crate) fn new(pool: &Pool, name: String) -> Self {
        let holder = format!("holder-of-{name}");
        Self { pool: pool.clone(), name, holder }
    }

    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        let _permit = self.pool.0.count.acquire().await?;
        let mut session = self.pool.take_session()?;
        let taken = session.take(&self.name, &self.holder).await?;
        self.pool.give_session(session)?;
        Ok(taken)
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let _permit = self.pool.0.count.acquire().await?;
        let mut session = self.pool.take_session()?;
        session.give(&self.name, &self.holder).await?;
        self.pool.give_session(session)
    }
}
