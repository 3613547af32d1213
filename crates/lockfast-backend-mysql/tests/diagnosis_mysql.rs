//! What is found out about a real MySQL: the same as in `diagnosis.rs` about MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "diagnosis/mod.rs"]
mod diagnosis;
mod kit;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;
