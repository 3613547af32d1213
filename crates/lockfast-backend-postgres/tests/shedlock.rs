//! A schedule that is shared with ShedLock. The Java side are the statements that ShedLock 7 sends,
//! with the server's time and with the time of its own machine, in the table of its documentation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

#[path = "shedlock/java.rs"]
mod java;
#[path = "shedlock/refusal.rs"]
mod refusal;
#[path = "shedlock/schedule.rs"]
mod schedule;
#[path = "shedlock/way.rs"]
mod way;

use std::net::SocketAddr;
use std::time::Duration;

use kit::{Postgres, ROLE, Setup, create_role};

/// The table as ShedLock documents it, and the rights that the README names.
const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); \
    GRANT SELECT, INSERT, UPDATE ON shedlock TO app";
const NAME: &str = "nightly-report";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A server with the table.
fn start() -> Postgres {
    let postgres = Setup::new().set("max_connections", "200").start();
    create_role(&postgres);
    postgres.sql(TABLE);
    postgres
}

fn url(postgres: &Postgres) -> String {
    url_at(postgres.address())
}

fn url_at(address: SocketAddr) -> String {
    format!("postgres://{ROLE}@{address}/postgres?mode=shedlock")
}

/// The row as it is.
fn row(postgres: &Postgres) -> String {
    postgres.sql(&format!("SELECT * FROM shedlock WHERE name = '{NAME}'"))
}
