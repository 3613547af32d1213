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

#[tokio::test]
async fn a_waiter_that_is_gone_is_skipped() {
    let asker = Asker::connect("memory:").await;
    let held = acquire(&asker, "x", Mode::Exclusive, Wait::No).await;
    let mut gone = asker.backend.acquire(request(&asker, "x", Wait::Forever));
    assert!(kit::poll_once(&mut gone).await.is_none());
    let mut next = asker.backend.acquire(request(&asker, "x", Wait::Forever));
    assert!(kit::poll_once(&mut next).await.is_none());
    drop(gone);
    released(&asker, &held).await;
    let outcome = tokio::time::timeout(Duration::from_secs(5), next).await;
    kit::granted(outcome.unwrap());
}
