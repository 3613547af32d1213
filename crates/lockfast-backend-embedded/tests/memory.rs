//! What only the memory store does: names shared within the process, and waits that end without
//! anybody's runtime.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use std::time::Duration;

use kit::{Asker, acquire, released, request, taken};
use lockfast_core::{Mode, Moment, Wait};

#[tokio::test]
async fn a_name_is_shared_and_no_name_is_private() {
    let a = Asker::connect("memory:shared-by-two").await;
    let b = Asker::connect("memory:shared-by-two").await;
    let private = Asker::connect("memory:").await;
    let other_private = Asker::connect("memory:").await;
    let held = acquire(&a, "x", Mode::Exclusive, Wait::No).await;
    taken(&b, "x", Wait::No).await;
    acquire(&private, "x", Mode::Exclusive, Wait::No).await;
    acquire(&other_private, "x", Mode::Exclusive, Wait::No).await;
    released(&a, &held).await;
    acquire(&b, "x", Mode::Exclusive, Wait::No).await;
}

#[test]
fn a_wait_ends_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let asker = runtime.block_on(Asker::connect("memory:"));
    let held = asker.backend.acquire(request(&asker, "x", Wait::No));
    kit::granted(runtime.block_on(held));
    let start = Moment::now();
    let until = start + Duration::from_millis(50);
    // The runtime has no timers at all.
    let refusal = runtime.block_on(taken(&asker, "x", Wait::Until(until)));
    assert_eq!(refusal.lock.holders.len(), 1);
    assert!(Moment::now().since(start) >= Duration::from_millis(50));
}

/// B269: a waiter whose request was dropped keeps its turn until it asks again or releases it: the store
/// cannot know that it is not asking at this very moment, and would take back what it is told then.
#[tokio::test]
async fn a_waiter_that_asks_again_has_kept_its_turn() {
    let asker = Asker::connect("memory:").await;
    let held = acquire(&asker, "x", Mode::Exclusive, Wait::No).await;
    let asked = request(&asker, "x", Wait::Forever);
    let mut dropped = asker.backend.acquire(asked.clone());
    assert!(kit::poll_once(&mut dropped).await.is_none());
    let mut next = asker.backend.acquire(request(&asker, "x", Wait::Forever));
    assert!(kit::poll_once(&mut next).await.is_none());
    drop(dropped);
    released(&asker, &held).await;
    assert!(kit::poll_once(&mut next).await.is_none(), "it overtook");
    let turn = kit::ask(&asker, asked).await;
    assert!(kit::poll_once(&mut next).await.is_none(), "two have the lock");
    released(&asker, &turn).await;
    kit::granted(kit::bounded(next).await);
}
