//! What Lockfast does when some of its nodes, their memory, their clocks or the ways to them
//! fail, on three and on five real servers.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/reach.rs` | nodes that are killed, paused, cut off or late |
//! | `faults/memory.rs` | nodes that restart empty |
//! | `faults/clock.rs` | nodes whose wall clock steps |
//! | `faults/refusal.rs` | nodes that answer, but say no |
//! | `faults/storm.rs` | all of it at random, while many hold and write |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/memory.rs"]
mod memory;
#[path = "faults/reach.rs"]
mod reach;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/storm.rs"]
mod storm;
