//! What Lockfast does when a real MariaDB, its clock or the way to it fails. Each test says which
//! promise of the contract holds through the fault, and what the user sees.

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
const FLAVOR: kit::Flavor = kit::Flavor::MariaDb;
