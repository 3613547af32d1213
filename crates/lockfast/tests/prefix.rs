//! A prefix is in the store and nowhere else: names are given and shown without it, and what has it
//! not is not seen.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use lockfast::{
    Attempt, ErrorKind, Leadership, LockName, Locker, LossCause, ReleaseOutcome, RevokeOutcome,
    WatchKind,
};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);

/// Two connections to one store: one sees all of it, one what starts with `team/`.
async fn lockers(directory: &TempDir) -> (Locker, Locker) {
    let url = format!("embedded:{}", directory.path().join("store").display());
    let team = Locker::builder().prefix("team/").connect(&url).await.unwrap();
    (Locker::connect(&url).await.unwrap(), team)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_given_and_shown_without_it() {
    let directory = TempDir::new().unwrap();
    let (all, team) = lockers(&directory).await;
    let mutex = team.mutex("a").unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert_eq!((mutex.name().as_str(), guard.name().as_str()), ("a", "a"));
    assert_eq!(guard.token().lock.as_str(), "a");
    assert_eq!(all.inspect("team/a").await.unwrap().holders[0].fence, Some(guard.fence()));
    assert!(all.inspect("a").await.unwrap().holders.is_empty());

    let view = team.inspect("a").await.unwrap();
    assert_eq!((view.name.as_str(), view.holders.len()), ("a", 1));
    assert_eq!(team.inspect(guard.name()).await.unwrap().holders.len(), 1);
    let Attempt::Taken(refusal) = mutex.try_acquire().await.unwrap() else { panic!("taken") };
    assert_eq!(refusal.lock.name.as_str(), "a");
    let error = mutex.wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.lock().unwrap().as_str(), "a");
    assert_eq!(error.refusal().unwrap().lock.name.as_str(), "a");

    let revoked = team.revoke("a", "maintenance").await.unwrap();
    assert!(matches!(revoked, RevokeOutcome::Revoked(_)), "{revoked:?}");
    assert_eq!(guard.lost().await, LossCause::Revoked { reason: "maintenance".into() });

    let lease = team.mutex("b").unwrap().acquire_detached().await.unwrap();
    assert_eq!(lease.name.as_str(), "b");
    team.renew_detached("b", lease.holder, 60 * SECOND).await.unwrap();
    assert_eq!(all.inspect("team/b").await.unwrap().holders.len(), 1);
    let released = team.release_detached(&lease.name, lease.holder).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_of_what_has_it() {
    let directory = TempDir::new().unwrap();
    let (all, team) = lockers(&directory).await;
    let mut guards = Vec::new();
    // `team/` and `team/ x` are locks, but what follows the prefix is no name.
    for name in ["a", "team/", "team/ x", "team/a", "team/b", "team/bb", "team/c", "teams"] {
        guards.push(all.lock(name).await.unwrap());
    }
    let list = async |prefix: &str, after: Option<&str>, limit: usize| {
        let after = after.map(|after| LockName::new(after).unwrap());
        let views = team.list(prefix, after.as_ref(), limit).await.unwrap();
        views.into_iter().map(|view| view.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("", None, 10).await, ["a", "b", "bb", "c"]);
    assert_eq!(list("", None, 3).await, ["a", "b", "bb"], "no page is shorter than it could be");
    assert_eq!(list("", Some("b"), 10).await, ["bb", "c"]);
    assert_eq!(list("b", None, 10).await, ["b", "bb"]);
    assert_eq!(list("b", None, 1).await, ["b"]);
    assert!(list("", None, 0).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_of_what_has_it() {
    let directory = TempDir::new().unwrap();
    let (all, team) = lockers(&directory).await;
    let mut events = team.watch().await.unwrap();
    all.lock("a").await.unwrap().release().await.unwrap();
    all.lock("teams").await.unwrap().release().await.unwrap();
    let guard = all.lock("team/a").await.unwrap();
    let event = events.next().await.unwrap();
    assert_eq!((event.name.as_str(), event.kind), ("a", WatchKind::Granted));
    assert_eq!(event.fence, Some(guard.fence()));

    let leader = team.leader("lead").unwrap();
    let mut observer = leader.observe().await.unwrap();
    assert!(matches!(observer.next().await.unwrap(), Leadership::Vacant));
    let mut campaign = leader.campaign().unwrap();
    campaign.next().await.unwrap();
    assert!(matches!(observer.next().await.unwrap(), Leadership::Led(_)));
    assert_eq!(all.inspect("team/lead").await.unwrap().holders.len(), 1);
    campaign.resign().await.unwrap();

    // A loss is told, also without an event.
    let guard = team.lock("b").await.unwrap();
    all.revoke("team/b", "maintenance").await.unwrap();
    assert!(matches!(guard.lost().await, LossCause::Revoked { .. }));
}

#[tokio::test]
async fn a_name_must_fit_behind_it() {
    let team = Locker::builder().prefix("team/").connect("memory:").await.unwrap();
    let long = "x".repeat(251);
    for name in ["", &long, " x"] {
        let kinds = [
            team.mutex(name).map(|_| ()),
            team.inspect(name).await.map(|_| ()),
            team.revoke(name, "x").await.map(|_| ()),
        ];
        for refused in kinds {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidName, "{name:?}");
        }
    }
    drop(team.lock("x".repeat(250)).await.unwrap());
}
