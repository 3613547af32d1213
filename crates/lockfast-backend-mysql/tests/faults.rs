//! What Lockfast does when a real MariaDB, its clock or the way to it fails. Each test says which
//! promise of the contract holds through the fault, and what the user sees.
//!
//! | file | what fails |
//! |---|---|
//! | `faults/link.rs` | cut, half-open and stalled links, lost replies, late requests |
//! | `faults/server.rs` | KILL, crashes, no more connections, lost data |
//! | `faults/contention.rs` | KILL QUERY, rows that others have, deadlocks |
//! | `faults/replica.rs` | a replica that lags behind is promoted |
//! | `faults/refusal.rs` | the server answers, but says no; the schema is not there, or not ours |
//! | `faults/clock.rs` | the server's wall clock steps |
//! | `faults/encryption.rs` | certificates |
//! | `faults/foreign.rs` | other programs call the procedures, in sessions of any kind |
//! | `faults/hang.rs` | clients that hang, and holders and waiters that die |
//! | `faults/crowd.rs` | thousands wait for one lock |
//! | `faults/rights.rs` | somebody with few rights tries to do more |
//! | `faults/schema.rs` | a schema of another version, rows that cannot be |
//! | `faults/waking.rs` | waiters that cannot be woken |

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
const FLAVOR: kit::Flavor = kit::Flavor::MariaDb;
