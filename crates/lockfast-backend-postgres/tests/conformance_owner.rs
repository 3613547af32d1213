//! The same suite by the role that made the schema, which takes single locks by plain statements. A
//! fresh store is a schema that is not there yet.

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::postgres::{Postgres, Setup};

fn start() -> Postgres {
    Setup::new().set("max_connections", "400").start()
}

fn fresh_url(postgres: &Postgres, store: usize) -> String {
    format!("{}?schema=store_{store}", postgres.url())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_postgres::connect;
    Suite { name: "postgres_owner", start, fresh_url, connect, ignored: &[] }.run()
}
