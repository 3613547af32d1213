//! The suite that every store passes, on MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;
mod suite;

use std::process::ExitCode;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MariaDb;

fn main() -> ExitCode {
    suite::run("mariadb", suite::start)
}
