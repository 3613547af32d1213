//! What is found out about a real MariaDB: each condition is set, and seen. A server that is well set up
//! is all right.

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
const FLAVOR: kit::Flavor = kit::Flavor::MariaDb;
