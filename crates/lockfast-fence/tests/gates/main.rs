//! Every gate before a real server: the late write of a holder that was stopped is refused, while
//! the same write without a gate loses an update; writers that race pass in the order of their
//! fences; and what is missing or wrong is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a child talks in lines"
)]

mod account;
mod etcd;
mod exchange;
mod file;
mod http;
mod memory;
mod mysql;
mod postgres;
mod process;
mod redis;
mod sql;
mod sqlite;
mod sqlx;
mod story;
