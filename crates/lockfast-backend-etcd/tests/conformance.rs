//! The suite that every store passes, on one real etcd, as a user with the rights that the README
//! names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod ignored;
mod kit;

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::etcd::Etcd;

fn start() -> Etcd {
    let mut server = Etcd::start();
    kit::make_user(&mut server);
    server
}

fn fresh_url(server: &Etcd, store: usize) -> String {
    format!("{}{store}/", kit::user_url(server))
}

fn main() -> ExitCode {
    let connect = lockfast_backend_etcd::connect;
    Suite { name: "etcd", start, fresh_url, connect, ignored: ignored::CASES }.run()
}
