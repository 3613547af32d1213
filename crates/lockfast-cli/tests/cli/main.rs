//! The real binary on a real embedded store. Everything waits for a state, with a bound; processes
//! are ended by their id.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bad_input;
mod commands;
mod crash;
mod environment;
mod exclusion;
mod loss;
mod migrate;
mod redis;
mod sandbox;
mod signals;
mod terminal;
