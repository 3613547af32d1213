//! What Lockfast does when members of an ensemble of three fail, or the network between them. Each
//! test says which promise of the contract holds through the fault, and what the user sees.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/members.rs"]
mod members;
#[path = "faults/partition.rs"]
mod partition;

#[path = "faults/way.rs"]
mod way;

/// One ensemble at a time: three servers that start take all that a small machine has.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
