//! The rule of the queue against what the procedures decide, by random stories on MySQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;
mod suite;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;

#[test]
fn procedures_decide_by_the_rule() {
    suite::of("mysql", suite::start).check_model();
}
