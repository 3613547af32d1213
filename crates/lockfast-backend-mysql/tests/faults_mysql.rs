//! What Lockfast does when a real MySQL, its clock or the way to it fails: the same as in `faults.rs`
//! on MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/contention.rs"]
mod contention;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/encryption.rs"]
mod encryption;
#[path = "faults/foreign.rs"]
mod foreign;
#[path = "faults/hang.rs"]
mod hang;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/replica.rs"]
mod replica;
#[path = "faults/rights.rs"]
mod rights;
#[path = "faults/schema.rs"]
mod schema;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/waking.rs"]
mod waking;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MySql;
