//! What Lockfast does when a real ZooKeeper or the way to it fails. Each test says which promise of
//! the contract holds through the fault, and what the user sees.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/link.rs` | cut, half-open and stalled links, lost replies, late requests |
//! | `faults/server.rs` | crashes, pauses, nodes that somebody deletes |
//! | `faults/session.rs` | sessions that end, with one lock or with 10 000 |
//! | `faults/refusal.rs` | the server answers, but says no; nodes are not ours |
//! | `faults/encryption.rs` | certificates |
//! | `faults/crowd.rs` | many wait for one lock |
//! | `faults/hang.rs` | processes that hang while they wait |
//! | `faults/batch.rs` | many leases are renewed at once over a slow way |
//! | `faults/values.rs` | the same for values, and what others keep at their place |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/batch.rs"]
mod batch;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/encryption.rs"]
mod encryption;
#[path = "faults/hang.rs"]
mod hang;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/session.rs"]
mod session;
#[path = "faults/values.rs"]
mod values;
