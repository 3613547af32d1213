//! The real binary on a real embedded store: what does not depend on the store, or only there. What
//! does is in `tests/stores`. Everything waits for a state, with a bound; processes
//! are ended by their id.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bad_input;
mod choice;
mod commands;
mod completion;
mod crash;
mod doctor;
mod environment;
mod etcd;
mod exclusion;
mod fence;
mod habits;
mod manual;
mod message;
mod migrate;
mod redis;
mod refresh;
mod refusal;
#[path = "../sandbox/mod.rs"]
mod sandbox;
mod session;
mod shedlock;
mod signals;
mod snippets;
mod terminal;
mod torture;
mod zookeeper;
