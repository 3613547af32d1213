//! The suite that every store passes, on one real server and with the rights that the README names. A fresh store is a chroot that nobody has
//! used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod suite;

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::zookeeper::{Setup, ZooKeeper};

fn start() -> ZooKeeper {
    // The suite asks for leases and lock-delays of minutes.
    Setup::new().line("maxSessionTimeout=100000000").start()
}

fn fresh_url(server: &ZooKeeper, store: usize) -> String {
    let chroot = format!("/store_{store}");
    suite::make_place(&mut server.session(), &chroot);
    format!("zookeeper://{}@{}{chroot}", suite::USER, server.address())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_zookeeper::connect;
    Suite { name: "zookeeper", start, fresh_url, connect, ignored: suite::IGNORED }.run()
}
