//! The rule of the queue against what the functions decide, by random stories on a real server: for
//! a role with no more than the rights that the README names, and for the one that made the schema,
//! which takes single locks by plain statements.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use lockfast_conformance::Suite;

fn check(name: &'static str, fresh_url: fn(&kit::Postgres, usize) -> String) {
    let connect = lockfast_backend_postgres::connect;
    Suite { name, start: kit::start, fresh_url, connect, ignored: &[] }.check_model();
}

#[test]
fn functions_decide_by_the_rule() {
    check("postgres", |postgres, _| kit::url(postgres));
}

#[test]
fn statements_decide_by_the_rule() {
    check("postgres_owner", |postgres, store| format!("{}?schema=store_{store}", postgres.url()));
}
