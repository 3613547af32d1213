//! The suite that every store passes, through a real PgBouncer that gives each transaction another
//! connection: nothing may depend on the server's session, and nothing can be pushed.

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
use lockfast_faults::pgbouncer::PgBouncer;
use lockfast_faults::postgres::Postgres;

fn start() -> (PgBouncer, Postgres) {
    let postgres = Postgres::start();
    kit::create_role(&postgres);
    (PgBouncer::start(&postgres, 8), postgres)
}

fn fresh_url((pooler, postgres): &(PgBouncer, Postgres), store: usize) -> String {
    let schema = format!("store_{store}");
    kit::make_schema(postgres, &schema);
    format!("{}?schema={schema}", pooler.url_as(kit::ROLE, "postgres"))
}

fn main() -> ExitCode {
    let connect = lockfast_backend_postgres::connect;
    Suite { name: "pgbouncer", start, fresh_url, connect, ignored: &[] }.run()
}
