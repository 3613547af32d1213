//! Who gets a lock that is given back: exactly one, the next that is there, and soon, whatever the
//! others in the line do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

#[path = "handover/hung.rs"]
mod hung;
#[path = "handover/once.rs"]
mod once;
