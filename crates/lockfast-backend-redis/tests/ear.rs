//! Answers are read on the runtime that asks. Nothing may depend on that runtime's going on: it
//! is blocked, dropped or left alone here, and the keeper must hear what it does not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use std::sync::mpsc;
use std::time::Duration;

use kit::{Redis, bounded, connect, hold, ttl, wait_until};
use lockfast::{Guard, LeaseStatus, Locker, LossCause, Moment};
use tokio::runtime::{Builder, Runtime};

/// So long that no renewal brings what a push should have brought.
const LONG: Duration = Duration::from_secs(300);
/// Of a lease that must be renewed while the runtime does nothing.
const SHORT: Duration = Duration::from_secs(3);
/// More than the keeper needs to notice, and less than anything else that would help.
const SOON: Duration = Duration::from_secs(5);

/// Waits until a short lease that was not renewed since then would be over.
fn outlast_a_short_lease(since: Moment) {
    std::thread::sleep((since + SHORT).remaining(Moment::now()) + Duration::from_millis(200));
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asks for so long that the answers are read here and nowhere else.
async fn settle_in(locker: &Locker) {
    let start = Moment::now();
    while Moment::now().since(start) < Duration::from_millis(60) {
        hold(locker, "settling in", ttl(LONG)).await.release().await.unwrap();
    }
}

/// Takes a lock away by another connection, from another runtime.
fn revoke(redis: &Redis, name: &str) {
    let (url, name) = (redis.url(), name.to_owned());
    let revoking = std::thread::spawn(move || {
        single().block_on(async {
            bounded(connect(&url).await.revoke(name, "test")).await.unwrap();
        });
    });
    revoking.join().unwrap();
}

/// The holder learns of a revocation, although nobody but the keeper can tell it.
fn check_that_revocation_is_heard(redis: &Redis, guard: &Guard) {
    revoke(redis, guard.name().as_str());
    wait_until("the revocation is heard", SOON, || {
        matches!(guard.status(), LeaseStatus::Lost(LossCause::Revoked { .. }))
    });
}

/// Others take, wait for and give back locks of the same connection.
fn check_that_others_are_served(locker: &Locker) {
    let locker = locker.clone();
    let others = std::thread::spawn(move || {
        single().block_on(async {
            let start = Moment::now();
            let first = hold(&locker, "others", ttl(LONG)).await;
            let mutex = locker.mutex("others").unwrap();
            let waiting = tokio::spawn(async move { mutex.acquire().await.unwrap() });
            tokio::time::sleep(Duration::from_millis(20)).await;
            // The keeper gives it back.
            drop(first);
            bounded(waiting).await.unwrap().release().await.unwrap();
            assert!(Moment::now().since(start) < SOON, "{:?}", Moment::now().since(start));
        });
    });
    others.join().unwrap();
}

#[test]
fn a_blocked_runtime() {
    let redis = Redis::start();
    let (blocked, is_blocked) = mpsc::channel();
    let (unblock, unblocked) = mpsc::channel::<()>();
    let url = redis.url();
    let home = std::thread::spawn(move || {
        single().block_on(async {
            // On a connection of its own: its renewals would let the keeper hear the rest too.
            let kept = hold(&connect(&url).await, "kept", ttl(SHORT)).await;
            let locker = connect(&url).await;
            let revoked = hold(&locker, "revoked", ttl(LONG)).await;
            settle_in(&locker).await;
            blocked.send((locker, kept.lease().clone(), revoked)).unwrap();
            // The thread does nothing else from here.
            unblocked.recv().unwrap();
            kept.check().expect("it was renewed all the time");
            kept.release().await.unwrap();
        });
    });
    let (locker, kept, revoked) = is_blocked.recv().unwrap();
    let since = Moment::now();
    check_that_revocation_is_heard(&redis, &revoked);
    check_that_others_are_served(&locker);
    outlast_a_short_lease(since);
    kept.check().expect("the keeper renews it");
    drop(revoked);
    unblock.send(()).unwrap();
    home.join().unwrap();
}

#[test]
fn a_runtime_that_is_dropped() {
    let redis = Redis::start();
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (locker, revoked) = home.block_on(async {
        let locker = connect(&redis.url()).await;
        let revoked = hold(&locker, "revoked", ttl(LONG)).await;
        let settling = locker.clone();
        tokio::spawn(async move { settle_in(&settling).await }).await.unwrap();
        (locker, revoked)
    });
    drop(home);
    check_that_revocation_is_heard(&redis, &revoked);
    check_that_others_are_served(&locker);
    // The next runtime is as good a home.
    single().block_on(settle_in(&locker));
}

#[test]
fn a_runtime_that_nobody_drives() {
    let redis = Redis::start();
    let home = single();
    let (locker, revoked, kept) = home.block_on(async {
        let kept = hold(&connect(&redis.url()).await, "kept", ttl(SHORT)).await;
        let locker = connect(&redis.url()).await;
        let revoked = hold(&locker, "revoked", ttl(LONG)).await;
        settle_in(&locker).await;
        (locker, revoked, kept)
    });
    let since = Moment::now();
    check_that_revocation_is_heard(&redis, &revoked);
    check_that_others_are_served(&locker);
    outlast_a_short_lease(since);
    home.block_on(async {
        kept.check().expect("the keeper renews it");
        kept.release().await.unwrap();
        settle_in(&locker).await;
    });
}

/// Such a runtime cannot tell what arrives; its tasks are served all the same.
#[test]
fn a_runtime_without_io() {
    let redis = Redis::start();
    let locker = single().block_on(connect(&redis.url()));
    let home = Builder::new_current_thread().enable_time().build().unwrap();
    home.block_on(settle_in(&locker));
    check_that_others_are_served(&locker);
}
