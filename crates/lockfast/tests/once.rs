//! Jobs whose lease somebody has extended or shortened (B157).

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use lockfast::{Attempt, Locker, Moment, Once, OnceGuard, Released};

const SECOND: Duration = Duration::from_secs(1);

async fn start(job: &Once) -> OnceGuard {
    match job.start().await.unwrap() {
        Attempt::Acquired(guard) => guard,
        Attempt::Taken(refusal) => panic!("{refusal}"),
    }
}

/// `at_least` is kept although the lease was made shorter than that.
#[tokio::test]
async fn a_lease_that_was_made_shorter() {
    let locker = Locker::connect("memory:").await.unwrap();
    let job = locker.once("a", 4 * SECOND).unwrap().at_least(4 * SECOND);
    let (started, guard) = (Moment::now(), start(&job).await);
    guard.lease().extend(SECOND / 2).await.unwrap();
    let finished = guard.finish().await.unwrap();
    assert!(matches!(finished, Released::Kept { .. }), "{finished:?}");
    tokio::time::sleep(2 * SECOND).await;
    let again = job.start().await.unwrap().is_acquired();
    assert!(!again || Moment::now().since(started) >= 4 * SECOND, "it ran twice");
}

/// It is free when `at_least` is over although the lease was made longer than that.
#[tokio::test]
async fn a_lease_that_was_made_longer() {
    let locker = Locker::connect("memory:").await.unwrap();
    let job = locker.once("a", SECOND).unwrap().at_least(SECOND);
    let guard = start(&job).await;
    guard.lease().extend(600 * SECOND).await.unwrap();
    let finished = guard.finish().await.unwrap();
    let Released::Kept { expires_in } = finished else { panic!("{finished:?}") };
    assert!(expires_in <= 2 * SECOND, "{expires_in:?}");
    tokio::time::sleep(expires_in + SECOND / 4).await;
    assert!(job.start().await.unwrap().is_acquired());
}

/// With a lock-delay the store is told, so that what is said is what it keeps.
#[tokio::test]
async fn a_lock_delay_does_not_add_to_at_least() {
    let locker = Locker::connect("memory:").await.unwrap();
    let job = locker.once("a", SECOND).unwrap().at_least(SECOND).lock_delay(SECOND);
    let finished = start(&job).await.finish().await.unwrap();
    let Released::Kept { expires_in } = finished else { panic!("{finished:?}") };
    tokio::time::sleep(expires_in + SECOND / 4).await;
    assert!(job.start().await.unwrap().is_acquired());
}
