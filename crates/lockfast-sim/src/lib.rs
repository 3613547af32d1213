//! Model checks of the algorithms that Lockfast relies on: here, Redlock whose clients propose the
//! fences and whose nodes check them.
//!
//! A model has nodes, clients and the data behind a gate. Messages are lost, late, repeated and in
//! any order; nodes let grants go when they like, restart, and forget; clients stop for as long as
//! they like. A search then looks at *every* state that can come of it. What must hold there is
//! in [`invariant`], one a file; the tests break each of the rules once and expect to see it.

pub mod invariant;
pub mod model;
pub mod rule;
pub mod search;
pub mod setup;
pub mod state;
pub mod step;

pub use invariant::Invariant;
pub use search::{Outcome, exhaust, roam};
pub use setup::{Expiry, Flaw, Gate, Setup};
pub use step::Step;
