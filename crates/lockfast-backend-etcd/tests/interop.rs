//! Programs that do not use Lockfast share locks with it on etcd: `etcdctl lock`, which is Go's
//! `concurrency.Mutex`, and the lock that the server itself has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "interop/etcdctl.rs"]
mod etcdctl;
#[path = "interop/names.rs"]
mod names;
#[path = "interop/server_lock.rs"]
mod server_lock;
