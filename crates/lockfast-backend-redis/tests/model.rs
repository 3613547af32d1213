//! The rule of the queue against what the scripts decide, by random stories on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use kit::rights::rights;
use kit::{Redis, Setup};
use lockfast_conformance::Suite;

fn start() -> Redis {
    Setup::new().line(format!("user locks on >word {}", rights("~store-*", &[]))).start()
}

fn fresh_url(redis: &Redis, store: usize) -> String {
    format!("redis://locks:word@{}?prefix=store-{store}:", redis.address())
}

#[test]
fn scripts_decide_by_the_rule() {
    let connect = lockfast_backend_redis::connect;
    Suite { name: "redis", start, fresh_url, connect, ignored: &[] }.check_model();
}
