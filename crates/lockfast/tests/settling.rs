//! A program that is about to end can wait for what it dropped.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use lockfast::{Locker, Options};

#[tokio::test]
async fn what_was_dropped_is_given_back_before_settled_returns() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", dir.path().join("store").display());
    let (ours, theirs) =
        (Locker::connect(&url).await.unwrap(), Locker::connect(&url).await.unwrap());
    for round in 0..50 {
        let held: Vec<_> = {
            let mut held = Vec::new();
            for name in 0..5 {
                held.push(ours.mutex(name.to_string()).unwrap().acquire().await.unwrap());
            }
            held
        };
        drop(held);
        ours.settled().await;
        for name in 0..5 {
            let mutex = theirs.mutex(name.to_string()).unwrap();
            let guard = mutex.with_options(Options::default().no_wait()).acquire().await;
            guard.unwrap_or_else(|error| panic!("round {round}: {error}")).release().await.unwrap();
        }
    }
}
