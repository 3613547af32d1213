//! Programs that do not use Lockfast share locks with it: kazoo's `Lock` and Curator's
//! `InterProcessMutex` and `InterProcessReadWriteLock`, both ways round.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "interop/mutex.rs"]
mod mutex;
#[path = "interop/read_write.rs"]
mod read_write;
