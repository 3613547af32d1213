//! The suite that every store passes, on one real server and with the rights that the README names.
//! A fresh store is a prefix that nobody has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::process::ExitCode;

use kit::rights::rights;
use kit::{Redis, Setup};
use lockfast_conformance::Suite;

fn start() -> Redis {
    Setup::new().line(format!("user locks on >word {}", rights("~store-*", &[]))).start()
}

fn fresh_url(redis: &Redis, store: usize) -> String {
    format!("redis://locks:word@{}?prefix=store-{store}:", redis.address())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_redis::connect;
    Suite { name: "redis", start, fresh_url, connect, ignored: &[] }.run()
}
