//! What Lockfast does when a real PostgreSQL, its data, its clock or the way to it fails. Each test
//! says which promise of the contract holds through the fault, and what the user sees.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/server.rs` | ended connections, crashes, promotion of a stale standby |
//! | `faults/link.rs` | cut and half-open links, lost replies, late requests |
//! | `faults/refusal.rs` | the server answers, but says no |
//! | `faults/clock.rs` | the server's wall clock steps |
//! | `faults/pooler.rs` | PgBouncer is in the way, and restarts |
//! | `faults/values.rs` | lost replies and late requests to write, rows that cannot be |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/oddity.rs"]
mod oddity;
#[path = "faults/pooler.rs"]
mod pooler;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/values.rs"]
mod values;
