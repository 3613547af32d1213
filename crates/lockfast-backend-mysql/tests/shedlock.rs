//! A schedule that is shared with ShedLock, on MariaDB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "shedlock/java.rs"]
mod java;
#[path = "shedlock/refusal.rs"]
mod refusal;
#[path = "shedlock/schedule.rs"]
mod schedule;
#[path = "shedlock/stage.rs"]
mod stage;
#[path = "shedlock/way.rs"]
mod way;

/// The server that is tested here.
const FLAVOR: kit::Flavor = kit::Flavor::MariaDb;
