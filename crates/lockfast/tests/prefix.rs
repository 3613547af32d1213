//! A prefix is in the store and nowhere else: names are given and shown without it, and what has it
//! not is not seen.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use lockfast::optimistic::Update;
use lockfast::{
    Attempt, Ensured, ErrorKind, Expected, LeaderEvent, Leadership, LockName, Locker, LossCause,
    Ran, ReleaseOutcome, RevokeOutcome, WatchKind, WriteOutcome,
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

/// Two connections to one part of a store in memory, and one to all of it.
async fn memory(name: &str) -> ([Locker; 2], Locker) {
    let url = format!("memory:{name}");
    let team = async || Locker::builder().prefix("team/").connect(&url).await.unwrap();
    ([team().await, team().await], Locker::connect(&url).await.unwrap())
}

#[tokio::test]
async fn values_work_behind_it() {
    let ([one, other], all) = memory("prefixed-values").await;
    let value = one.value("v").unwrap();
    assert_eq!(value.name().as_str(), "v");
    let written = value.write(Expected::Nothing, b"1").await.unwrap();
    assert!(matches!(written, WriteOutcome::Written(_)), "{written:?}");
    let conflict = other.value("v").unwrap().write(Expected::Nothing, b"2").await.unwrap();
    let there = all.value("team/v").unwrap().read().await.unwrap();
    assert_eq!(there.as_ref().unwrap().bytes, b"1");
    assert_eq!(conflict, WriteOutcome::Conflict(there), "seen by the other, too");
    assert_eq!(all.value("v").unwrap().read().await.unwrap(), None, "not without it");
    let next = other.value("v").unwrap().update(async |_| Ok(Update::Put(b"3".to_vec()))).await;
    assert_eq!(value.read().await.unwrap(), next.unwrap());
    let ended = value.keep(Duration::from_millis(1)).unwrap();
    ended.update(async |_| Ok(Update::Put(b"4".to_vec()))).await.unwrap();
    while ended.read().await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn latches_and_barriers_work_behind_it() {
    let ([one, other], all) = memory("prefixed-waits").await;
    let (latch, counter) = (one.latch("l", 2).unwrap(), other.latch("l", 2).unwrap());
    let waiting = tokio::spawn(async move { latch.wait().await });
    assert_eq!(counter.count_down().await.unwrap(), 1);
    assert_eq!(all.latch("l", 1).unwrap().left().await.unwrap(), 1, "another latch");
    assert!(all.value("team/latch:l").unwrap().read().await.unwrap().is_some());
    assert_eq!(counter.count_down().await.unwrap(), 0);
    within(waiting).await.unwrap();

    for round in 0..2 {
        let (first, second) = (one.barrier("b", 2).unwrap(), other.barrier("b", 2).unwrap());
        let first = tokio::spawn(async move { first.wait().await });
        let second = tokio::spawn(async move { second.wait().await });
        assert_eq!((within(first).await.unwrap(), within(second).await.unwrap()), (round, round));
    }
    assert!(all.value("team/barrier:b").unwrap().read().await.unwrap().is_some());
}

#[tokio::test]
async fn refreshes_work_behind_it() {
    let ([one, other], all) = memory("prefixed-refreshes").await;
    let refresh = |locker: &Locker, name| locker.refresh(name, 600 * SECOND).unwrap();
    let (computing, waiting) = (refresh(&one, "r"), refresh(&other, "r"));
    let lookout = all.clone();
    let computing = tokio::spawn(async move {
        let computed = computing.get(async |lease| {
            assert_eq!(lease.name().as_str(), "refresh:r");
            while lookout.inspect("team/refresh:r").await?.waiting == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(b"computed".to_vec())
        });
        computed.await
    });
    while all.inspect("team/refresh:r").await.unwrap().holders.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waiting =
        tokio::spawn(async move { waiting.get(async |_| Ok(b"unwanted".to_vec())).await });
    assert_eq!(within(computing).await.unwrap(), b"computed");
    assert_eq!(within(waiting).await.unwrap(), b"computed");
    let outside = refresh(&all, "r").get(async |_| Ok(b"outside".to_vec())).await;
    assert_eq!(outside.unwrap(), b"outside", "another value");
    refresh(&one, "r").invalidate().await.unwrap();
    assert_eq!(refresh(&other, "r").ensure(async |_| Ok(7)).await.unwrap(), Ensured::Now(7));
}

#[tokio::test]
async fn jobs_and_elections_work_behind_it() {
    let ([one, other], all) = memory("prefixed-jobs").await;
    let job = |locker: &Locker| locker.once("j", 60 * SECOND).unwrap().at_least(30 * SECOND);
    let ran = job(&one).run(async |lease| lease.name().to_string()).await.unwrap();
    assert!(matches!(&ran, Ran::Done(name) if name == "j"), "{ran:?}");
    let Ran::Skipped(refusal) = job(&other).run(async |_| ()).await.unwrap() else {
        panic!("it is kept for at_least");
    };
    assert_eq!(refusal.lock.name.as_str(), "j");
    assert_eq!(all.inspect("team/j").await.unwrap().holders.len(), 1);
    assert!(matches!(job(&all).run(async |_| ()).await.unwrap(), Ran::Done(())), "another job");

    let mut observer = other.leader("lead").unwrap().observe().await.unwrap();
    assert!(matches!(observer.next().await.unwrap(), Leadership::Vacant));
    let mut first = one.leader("lead").unwrap().campaign().unwrap();
    let LeaderEvent::Elected { term, lease } = first.next().await.unwrap() else { panic!("first") };
    assert_eq!(lease.name().as_str(), "lead");
    assert!(matches!(observer.next().await.unwrap(), Leadership::Led(_)));
    let mut second = other.leader("lead").unwrap().campaign().unwrap();
    while all.inspect("team/lead").await.unwrap().waiting == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    all.revoke("team/lead", "maintenance").await.unwrap();
    let deposed = first.next().await.unwrap();
    assert!(matches!(deposed, LeaderEvent::Deposed { term: ended, .. } if ended == term));
    let LeaderEvent::Elected { term: next, .. } = second.next().await.unwrap() else {
        panic!("the next in line")
    };
    assert!(next.get() > term.get());
}

/// What a task brings, which does not hang.
async fn within<T>(task: tokio::task::JoinHandle<T>) -> T {
    tokio::time::timeout(30 * SECOND, task).await.unwrap().unwrap()
}
