//! What is found out about a real MySQL: the same as in `diagnosis.rs` about MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "diagnosis/follower.rs"]
mod follower;
mod kit;
#[path = "diagnosis/look.rs"]
mod look;
#[path = "diagnosis/rights.rs"]
mod rights;
#[path = "diagnosis/server.rs"]
mod server;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;
