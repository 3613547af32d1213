//! The gate inside one process, and the floor that heals a fence that went back.

use std::sync::Mutex;
use std::time::Duration;

use lockfast::fence::Gate;
use lockfast::{DetachedLease, ErrorKind, Fence, FencingToken, Locker, Options};

use crate::account::{LOCK, START};

/// A holder that nobody renews: what a thread is that sleeps.
async fn take(locker: &Locker, ttl: Duration) -> DetachedLease {
    let options = Options::default().ttl(ttl).wait(Duration::from_secs(60));
    let lock = locker.mutex(LOCK).unwrap().with_options(options);
    lock.acquire_detached().await.unwrap()
}

/// The same story with a gate and without.
#[tokio::test]
async fn a_holder_sleeps_and_writes_late() {
    let locker = Locker::connect("memory:").await.unwrap();
    let (account, plain) = (Gate::new(LOCK, START).unwrap(), Mutex::new(START));
    let first = take(&locker, Duration::from_millis(300)).await;
    let read = *account.open(&first.token()).unwrap();

    let second = take(&locker, Duration::from_secs(60)).await;
    *account.check(&second.token()).unwrap() += 10;
    *plain.lock().unwrap() += 10;

    let refused = account.check(&first.token()).map(|mut balance| *balance = read + 50);
    assert_eq!(refused.unwrap_err().fence_seen(), Some(second.fence));
    *plain.lock().unwrap() = read + 50;
    assert_eq!(account.into_inner(), START + 10);
    assert_eq!(plain.into_inner().unwrap(), START + 50, "without a gate the update of 10 is lost");
}

/// A store that was rebuilt and gives out lower fences than the gate has seen: the refusal tells
/// the floor, and with it the next acquisition passes.
#[tokio::test]
async fn a_fence_that_went_back_heals() {
    let locker = Locker::connect("memory:").await.unwrap();
    let account = Gate::new(LOCK, START).unwrap();
    let guard = locker.mutex(LOCK).unwrap().acquire().await.unwrap();
    let ahead = Fence::new(guard.fence().get() + 10_000_000).unwrap();
    let before = FencingToken { fence: ahead, ..guard.token() };
    drop(account.check(&before).unwrap());
    let refused = account.open(&guard.token()).unwrap_err();
    assert_eq!((refused.kind(), refused.fence_seen()), (ErrorKind::StaleFence, Some(ahead)));
    guard.release().await.unwrap();
    let options = Options::default().floor(refused.fence_seen().unwrap());
    let guard = locker.mutex(LOCK).unwrap().with_options(options).acquire().await.unwrap();
    drop(account.open(&guard.token()).unwrap());
    assert_eq!(account.seen(), Some(guard.fence()));
}
