//! The example is run and held to what it says: plain writes lose an update, fenced ones do not.

#![allow(dead_code, unreachable_pub, reason = "the example's own main is not used")]

#[path = "../examples/two_holders.rs"]
mod two_holders;

use two_holders::{Ending, a_holder_sleeps, a_node_restarts_empty};

const LOST: Ending = Ending { two_holders: true, late_write_refused: false, balance: 50 };
const KEPT: Ending = Ending { two_holders: true, late_write_refused: true, balance: 100 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_lock_loses_what_a_sleeper_overwrites() {
    assert_eq!(a_holder_sleeps(false).await, LOST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_write_outlives_a_sleeper() {
    assert_eq!(a_holder_sleeps(true).await, KEPT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_lock_loses_when_a_node_forgets() {
    assert_eq!(a_node_restarts_empty(false).await, LOST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_write_survives_a_node_that_forgets() {
    assert_eq!(a_node_restarts_empty(true).await, KEPT);
}
