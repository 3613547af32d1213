//! What Lockfast does when a real MySQL, its clock or the way to it fails: the same as in `faults.rs`
//! on MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "faults/mod.rs"]
mod faults;
mod kit;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;
