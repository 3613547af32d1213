//! What Lockfast does when a real Redis server, its data, its clock or the way to it fails. Each
//! test says which promise of the contract holds through the fault, and what the user sees.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/data.rs` | restarts, FLUSHALL, eviction, promotion of a stale replica |
//! | `faults/link.rs` | cut, half-open and stalled links, lost replies, late requests |
//! | `faults/refusal.rs` | the server answers, but says no |
//! | `faults/record.rs` | what is stored is not what Lockfast wrote |
//! | `faults/downgrade.rs` | the lease, the record or the data, while a writer becomes a reader |
//! | `faults/clock.rs` | the server's wall clock steps |
//! | `faults/encryption.rs` | certificates |
//! | `faults/values.rs` | any of this, while values are written |
//! | `faults/failover.rs` | the master, and a sentinel promotes its replica |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/data.rs"]
mod data;
#[path = "faults/downgrade.rs"]
mod downgrade;
#[path = "faults/encryption.rs"]
mod encryption;
#[path = "faults/failover.rs"]
mod failover;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/record.rs"]
mod record;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/values.rs"]
mod values;
