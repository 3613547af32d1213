//! The suite that every store passes, on three etcd that decide together.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod ignored;

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::etcd::Cluster;

fn fresh_url(cluster: &Cluster, store: usize) -> String {
    format!("{}?prefix=store-{store}/", cluster.url())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_etcd::connect;
    let start = Cluster::start;
    Suite { name: "etcd-cluster", start, fresh_url, connect, ignored: ignored::CASES }.run()
}
