//! What a store is broken with: a TCP proxy, child processes to kill and pause, and real servers on
//! free ports that are set up in any way. The wrapper that makes any store unreliable is
//! `lockfast_core::flaky`.
//!
//! What starts a server panics when it cannot: a test without its server has failed. A program
//! that is missing is told with the command that installs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test without its server has failed, and a panic is how"
)]

pub mod certificate;
pub mod child;
pub mod clock;
pub mod etcd;
pub mod foreign;
pub mod history;
pub mod lateness;
pub mod ledger;
pub mod mysql;
pub mod network;
mod pause;
pub mod pgbouncer;
pub mod port;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod reaper;
pub mod redis;
pub mod seed;
pub mod server;
pub mod signpost;
mod template;
pub mod url;
mod user;
pub mod wait;
pub mod zookeeper;
