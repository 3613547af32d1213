//! The suite that every store passes, in the table of ShedLock on MySQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;
mod shedlock_suite;

use std::process::ExitCode;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;

fn main() -> ExitCode {
    shedlock_suite::run("mysql_shedlock")
}
