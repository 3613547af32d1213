//! The server's wall clock steps.

use std::time::Duration;

use lockfast_faults::server::Server as _;

use crate::kit::{connect, eventually, hold, prepare, refusal, setup, ttl, wait_for_renewal};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// P4, P2: after a step back by an hour fences still rise, because the row has the last one, and
/// the lease goes on by the holder's own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back() {
    let server = setup().clock().start();
    let url = prepare(&server).await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.clock().step_back(Duration::from_secs(3600));
    wait_for_renewal(&guard, TTL).await;
    refusal(&second, NAME).await;
    let before = guard.fence().get();
    guard.release().await.unwrap();
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > before);
    // Within the hour the clock says less than the last fence, so it counts up by one.
    assert_eq!(next.fence().get(), before + 1);
    // What is waited for is still handed over.
    let waiter = tokio::spawn(async move { hold(&first, NAME, ttl(TTL).wait(TTL * 3)).await });
    eventually("one waits", TTL, async || refusal(&second, NAME).await.lock.waiting == 1).await;
    next.release().await.unwrap();
    assert!(crate::kit::bounded(waiter).await.unwrap().fence().get() > before + 1);
}

/// A step forward ends leases in the store early, which the README says: the next gets in, with a
/// higher fence, and the holder is told at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_forward() {
    let server = setup().clock().start();
    let url = prepare(&server).await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.clock().step_forward(Duration::from_secs(60));
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = crate::kit::loss(&guard, TTL).await;
    assert!(matches!(cause, lockfast::LossCause::Taken { .. }), "{cause:?}");
}
