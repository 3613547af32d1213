//! The suite that every store passes, on MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod suite;

use std::process::ExitCode;

use lockfast_conformance::fault::mysql::Flavor;

fn main() -> ExitCode {
    suite::run("mariadb", || suite::start(Flavor::MariaDb))
}
