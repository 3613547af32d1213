//! The suite that every store passes, on one real server, by a role with no more than the rights
//! that the README names. A fresh store is a schema that nobody has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::postgres::{Postgres, Setup};

fn start() -> Postgres {
    let postgres = Setup::new().set("max_connections", "400").start();
    kit::create_role(&postgres);
    postgres
}

fn fresh_url(postgres: &Postgres, store: usize) -> String {
    let schema = format!("store_{store}");
    kit::make_schema(postgres, &schema);
    format!("{}?schema={schema}", postgres.url_as(kit::ROLE, None))
}

fn main() -> ExitCode {
    let connect = lockfast_backend_postgres::connect;
    Suite { name: "postgres", start, fresh_url, connect, ignored: &[] }.run()
}
