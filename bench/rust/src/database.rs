//! Locks in a database, beside the same lease row by the bare driver: with every commit on disk
//! and without.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lockfast_faults::mysql::{self, Flavor, Mysql};
use lockfast_faults::postgres::{self, Postgres};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::contender::Connection;
use crate::samples::{ROUNDS, Samples, on_runtime};

const TASKS: usize = 64;
pub(crate) const SESSIONS: usize = 16;
const WAITERS: usize = 32;
const HOLD: Duration = Duration::from_millis(5);
const LEASES: usize = 10_000;
/// A lease of 30 s is renewed every 10 s, so within this twice.
const RENEW_SPAN: Duration = Duration::from_secs(20);

/// A database server that is measured on, and tells how much it was asked.
enum Database {
    Postgres(Postgres),
    MariaDb(Mysql),
}

impl Database {
    fn start(kind: &str, durable: bool) -> Result<Self> {
        Ok(match kind {
            "postgres" => {
                let mut setup = postgres::Setup::new().set("max_connections", "300");
                if durable {
                    setup = setup.durable();
                } else {
                    // Only the server without a disk to wait for counts statements.
                    setup = setup.set("shared_preload_libraries", "pg_stat_statements");
                }
                let server = setup.start();
                if !durable {
                    server.sql("CREATE EXTENSION pg_stat_statements");
                }
                Self::Postgres(server)
            }
            "mysql" => {
                let setup = mysql::Setup::new(Flavor::MariaDb).option("--max-connections=300");
                Self::MariaDb(if durable { setup.durable() } else { setup }.start())
            }
            _ => anyhow::bail!("there is no database {kind}"),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    /// How many statements it has been sent so far.
    fn statements(&self) -> Result<f64> {
        let said = match self {
            Self::Postgres(server) => server.sql("SELECT sum(calls) FROM pg_stat_statements"),
            Self::MariaDb(server) => server.sql("SHOW GLOBAL STATUS LIKE 'Questions'"),
        };
        last_number(&said)
    }

    /// How many connections it has beside the one that asks.
    fn connections(&self) -> Result<f64> {
        let said = match self {
            Self::Postgres(server) => server
                .sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"),
            Self::MariaDb(server) => server.sql("SHOW GLOBAL STATUS LIKE 'Threads_connected'"),
        };
        Ok(last_number(&said)? - 1.0)
    }
}

fn last_number(said: &str) -> Result<f64> {
    let number = said.split_whitespace().last().and_then(|word| word.parse().ok());
    number.with_context(|| format!("no number in {said:?}"))
}

/// Measures everything, round by round.
pub(crate) fn measure(kind: &str) -> Result<Value> {
    let (durable, quick) = (Database::start(kind, true)?, Database::start(kind, false)?);
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        // Only the server without a disk to wait for counts statements.
        for (name, database, counts) in [("durable", &durable, false), ("quick", &quick, true)] {
            let url = database.url();
            for (peer, sessions, tasks) in [
                ("lockfast", 1, 1),
                ("by-hand", 1, 1),
                ("lockfast", 1, TASKS),
                ("by-hand", SESSIONS, TASKS),
            ] {
                let name = format!("{name}.{peer}_{tasks}");
                samples.cycle(&name, (peer, &url, sessions), tasks, || {})?;
            }
            for (who, is_shared) in [("shared", true), ("apart", false)] {
                let (held, greedy) = (format!("{name}.held_{who}"), format!("{name}.greedy_{who}"));
                samples.hand_over(&held, (&url, is_shared), WAITERS, Some(HOLD), || {})?;
                let count = || if counts { database.statements() } else { Ok(0.0) };
                let mut before = Ok(0.0);
                let connected = || before = count();
                samples.hand_over(&greedy, (&url, is_shared), WAITERS, None, connected)?;
                samples.add(&format!("{greedy}.statements"), count()? - before?);
            }
        }
    }
    renew(&quick, &mut samples)?;
    Ok(samples.into_value())
}

/// Holds many leases at once, and counts what that costs the server.
fn renew(database: &Database, samples: &mut Samples) -> Result<()> {
    on_runtime(TASKS, async {
        let connection = Connection::open("lockfast", &database.url(), 1).await?;
        let mut running = JoinSet::new();
        let mut contenders = connection.contenders(LEASES)?;
        while !contenders.is_empty() {
            let mut some = contenders.split_off(contenders.len().saturating_sub(LEASES / TASKS));
            running.spawn(async move {
                for contender in &mut some {
                    ensure!(contender.acquire().await?, "a free lock was not to be had");
                }
                anyhow::Ok(some)
            });
        }
        while let Some(some) = running.join_next().await {
            contenders.extend(some??);
        }
        let (before, asking) = (database.statements()?, database.statements()?);
        let own = asking - before;
        tokio::time::sleep(RENEW_SPAN).await;
        let after = database.statements()?;
        let renewals = LEASES as f64 * RENEW_SPAN.as_secs_f64() / 10.0;
        samples.add("renew.statements_per_10k", (after - asking - own) * 1e4 / renewals);
        samples.add("renew.connections", database.connections()?);
        for contender in &mut contenders {
            contender.release().await?;
        }
        Ok(())
    })
}
