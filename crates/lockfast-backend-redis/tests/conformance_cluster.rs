//! The suite that every store passes, on a real cluster of three masters and with the rights that the
//! README names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::process::ExitCode;

use kit::rights::with_user;
use kit::topology::{Cluster, start_cluster_of};
use lockfast_conformance::Suite;

/// What `cluster.rs` checks instead: such a name is refused.
const BRACES: &str = "it uses the name {a}, whose lock and queue would be in different slots";

const IGNORED: &[(&str, &str)] = &[
    ("names::are_different_locks", BRACES),
    ("names::are_listed_to_the_letter", BRACES),
    ("values::and_locks_are_apart", BRACES),
];

fn fresh_url(cluster: &Cluster, store: usize) -> String {
    let [first, second, _] = cluster.nodes.each_ref().map(kit::Redis::address);
    format!("redis+cluster://locks:word@{first},{second}?prefix=store-{store}:")
}

fn main() -> ExitCode {
    let start = || start_cluster_of(with_user);
    let connect = lockfast_backend_redis::connect;
    Suite { name: "redis-cluster", start, fresh_url, connect, ignored: IGNORED }.run()
}
