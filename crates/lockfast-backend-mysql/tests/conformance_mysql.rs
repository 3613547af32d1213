//! The suite that every store passes, on MySQL.

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
    suite::run("mysql", || suite::start(Flavor::MySql))
}
