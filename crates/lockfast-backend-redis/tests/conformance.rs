//! The suite that every store passes, on one real server and with the rights that the README names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::process::ExitCode;

use kit::rights::rights;
use kit::suite::Suite;
use kit::{Redis, Setup};

fn start() -> Redis {
    Setup::new().line(format!("user locks on >word {}", rights("~store-*", &[]))).start()
}

fn main() -> ExitCode {
    let url = |redis: &Redis| format!("redis://locks:word@{}", redis.address());
    Suite { name: "redis", start, url, ignored: &[] }.run()
}
