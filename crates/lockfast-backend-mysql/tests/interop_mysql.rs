//! Programs that do not use Lockfast share locks with it on MySQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "interop/calls.rs"]
mod calls;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;
