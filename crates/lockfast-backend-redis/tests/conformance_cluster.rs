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

const NO_DOWNGRADE: &str = "it has no step that makes a reader of a writer";

const IGNORED: &[(&str, &str)] = &[
    ("downgrade::keeps_the_fence_and_the_lease", NO_DOWNGRADE),
    ("downgrade::does_not_prolong_the_lease", NO_DOWNGRADE),
    ("downgrade::lets_readers_in_up_to_the_next_writer", NO_DOWNGRADE),
    ("downgrade::lets_nobody_overtake_a_writer_that_waits", NO_DOWNGRADE),
    ("downgrade::never_lets_a_writer_in_beside_readers", NO_DOWNGRADE),
    ("downgrade::can_be_repeated", NO_DOWNGRADE),
    ("downgrade::is_how_it_is_held_from_then_on", NO_DOWNGRADE),
    ("downgrade::by_another_holder_changes_nothing", NO_DOWNGRADE),
    ("downgrade::after_the_end_changes_nothing", NO_DOWNGRADE),
    ("downgrade::is_refused_where_permits_are_used", NO_DOWNGRADE),
    ("downgrade::leaves_a_lease_that_can_be_revoked", NO_DOWNGRADE),
    ("writer::becomes_a_reader", NO_DOWNGRADE),
    ("writer::that_became_a_reader_is_kept", NO_DOWNGRADE),
    ("writer::without_an_answer_asks_again", NO_DOWNGRADE),
    ("writer::that_stops_asking_leaves_nothing", NO_DOWNGRADE),
    ("writer::is_checked_before_anything_is_touched", NO_DOWNGRADE),
    ("writer::with_other_guards_stays_one", NO_DOWNGRADE),
    ("writer::that_has_lost_its_lease_asks_nothing", NO_DOWNGRADE),
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
