//! A result that comes after the lock was lost (B158).

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use lockfast::{ErrorKind, Locker, Refresh, RefreshAttempt, RefreshGuard};

const FRESH_FOR: Duration = Duration::from_millis(300);

async fn start(refresh: &Refresh) -> RefreshGuard {
    match refresh.start().await.unwrap() {
        RefreshAttempt::Granted(guard) => guard,
        RefreshAttempt::Fresh(bytes) => panic!("there is {bytes:?}"),
    }
}

/// What was computed before the value was made stale is not stored, also when the value that others
/// have computed since has ended.
#[tokio::test]
async fn a_late_result_is_not_stored() {
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", FRESH_FOR).unwrap();
    let late = start(&refresh).await;
    refresh.invalidate().await.unwrap();
    locker.revoke("refresh:a", "it hangs").await.unwrap();
    let next = start(&refresh).await.finish(b"next".to_vec()).await.unwrap();
    assert_eq!(next, b"next");
    tokio::time::sleep(2 * FRESH_FOR).await;
    let error = late.finish(b"late".to_vec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    drop(start(&refresh).await);
}

/// Who is late is given what the others have.
#[tokio::test]
async fn a_late_one_is_given_what_is_there() {
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", 60 * FRESH_FOR).unwrap();
    let late = start(&refresh).await;
    locker.revoke("refresh:a", "it hangs").await.unwrap();
    let next = start(&refresh).await.finish(b"next".to_vec()).await.unwrap();
    assert_eq!(next, b"next");
    assert_eq!(late.finish(b"late".to_vec()).await.unwrap(), b"next");
}
