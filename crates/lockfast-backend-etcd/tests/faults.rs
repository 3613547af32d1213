//! What Lockfast does when a real etcd, one of its members or the way to it fails. Each test says which
//! promise of the contract holds through the fault, and what the user sees.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/link.rs` | cut, half-open and stalled links, lost replies, late requests |
//! | `faults/server.rs` | crashes, pauses, a full disk |
//! | `faults/clock.rs` | the wall clocks of members are stepped |
//! | `faults/cluster.rs` | members that are killed, paused, cut off; no quorum |
//! | `faults/lease.rs` | leases that others revoke, keys that others delete, thousands lost at once |
//! | `faults/moves.rs` | single messages about claims that are put under other leases |
//! | `faults/watch.rs` | events that were compacted or never came |
//! | `faults/crowd.rs` | thousands wait for one lock |
//! | `faults/refusal.rs` | the server answers, but says no; it is no etcd; names and times that will not do |
//! | `faults/rights.rs` | users with too few rights |
//! | `faults/encryption.rs` | certificates |
//! | `faults/values.rs` | the same for values, and what others keep at their place |

#![allow(clippy::print_stdout, reason = "what was measured is on the page of the store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/cluster.rs"]
mod cluster;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/encryption.rs"]
mod encryption;
#[path = "faults/lease.rs"]
mod lease;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/moves.rs"]
mod moves;
#[path = "faults/refusal.rs"]
mod refusal;
#[path = "faults/rights.rs"]
mod rights;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/values.rs"]
mod values;
#[path = "faults/watch.rs"]
mod watch;
