//! Jobs whose lease somebody has extended or shortened (B157), or taken away without a word.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use lockfast::{Attempt, LeaseStatus, Locker, LossCause, Moment, Once, OnceGuard, Released};

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

/// P3: a job learns that its lock is gone also from a store that tells nobody, long before `at_most` is
/// over: the store is asked, whatever other jobs run, and however long ago the last one was.
#[tokio::test]
async fn a_job_learns_that_its_lock_is_gone() {
    let locker = Locker::connect("memory:").await.unwrap();
    // It is looked after every 5 s, and the others every second, for which somebody has to be woken.
    let long = start(&locker.once("long", 3600 * SECOND).unwrap()).await;
    for round in 0..2 {
        let job = locker.once("short", 6 * SECOND).unwrap();
        let (kept, gone) =
            (start(&locker.once("kept", 6 * SECOND).unwrap()).await, start(&job).await);
        // Whoever knows the holder gives it back behind the job's back.
        locker.release_detached("short", gone.holder()).await.unwrap();
        let lost = tokio::time::timeout(3 * SECOND, gone.lost()).await.unwrap();
        assert_eq!(lost, LossCause::Forgotten, "{round}");
        assert_eq!((kept.status(), long.status()), (LeaseStatus::Held, LeaseStatus::Held));
        assert!(matches!(gone.finish().await.unwrap(), Released::AlreadyLost(_)));
        kept.finish().await.unwrap();
    }
    // Also the first after all others have ended.
    long.finish().await.unwrap();
    tokio::time::sleep(6 * SECOND).await;
    let gone = start(&locker.once("short", 6 * SECOND).unwrap()).await;
    locker.release_detached("short", gone.holder()).await.unwrap();
    let lost = tokio::time::timeout(3 * SECOND, gone.lost()).await.unwrap();
    assert_eq!(lost, LossCause::Forgotten);
}

/// An end that nobody waits for any more goes on in the background.
#[tokio::test]
async fn an_end_that_was_begun_is_finished() {
    let locker = Locker::connect("memory:").await.unwrap();
    let job = locker.once("a", 600 * SECOND).unwrap();
    drop(start(&job).await.finish());
    locker.settled().await;
    start(&job).await.finish().await.unwrap();
    drop(start(&job).await);
    locker.settled().await;
    assert!(locker.inspect("a").await.unwrap().holders.is_empty());
}
