//! The primitives on this store: each asks for the right thing.

use std::time::Duration;

use lockfast::{Attempt, ErrorKind, Feature, Mode, Moment, Released};

use super::long_lease;
use crate::arena::{Arena, finish};
use crate::case::{Case, Group};
use lockfast_core::flaky::FaultSwitch;

pub(super) const GROUP: Group = Group {
    name: "primitives",
    source: include_str!("primitives.rs"),
    cases: &[
        Case::new("a_mutex_is_exclusive", |arena| Box::pin(a_mutex_is_exclusive(arena))),
        Case::new("a_rwlock_has_readers_or_a_writer", |arena| {
            Box::pin(a_rwlock_has_readers_or_a_writer(arena))
        })
        .using(&[Feature::Shared]),
        Case::new("a_semaphore_has_permits", |arena| Box::pin(a_semaphore_has_permits(arena)))
            .using(&[Feature::Permits]),
        Case::new("a_multi_lock_is_all_or_nothing", |arena| {
            Box::pin(a_multi_lock_is_all_or_nothing(arena))
        }),
        Case::new("a_multi_lock_is_not_given_out_in_part", |arena| {
            Box::pin(a_multi_lock_is_not_given_out_in_part(arena))
        }),
        Case::new("a_multi_lock_waits_once_for_all", |arena| {
            Box::pin(a_multi_lock_waits_once_for_all(arena))
        }),
        Case::new("multi_locks_do_not_deadlock", |arena| {
            Box::pin(multi_locks_do_not_deadlock(arena))
        }),
    ],
};

fn assert_taken(attempt: &Attempt) {
    assert!(matches!(attempt, Attempt::Taken(_)), "{attempt:?}");
}

/// P1: a mutex has one holder, and its name means the same lock over every connection.
async fn a_mutex_is_exclusive(arena: Arena) {
    let first = arena.locker(&FaultSwitch::default()).await;
    let second = arena.locker(&FaultSwitch::default()).await;
    let guard = first.mutex("m").expect("a name").acquire().await.expect("a grant");
    assert_eq!(guard.mode(), Mode::Exclusive);
    let mutex = second.mutex("m").expect("a name");
    assert_taken(&mutex.try_acquire().await.expect("an answer"));
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    let attempt = mutex.try_acquire().await.expect("an answer");
    assert!(matches!(attempt, Attempt::Acquired(_)), "{attempt:?}");
}

/// P1: a read–write lock has many readers or one writer.
async fn a_rwlock_has_readers_or_a_writer(arena: Arena) {
    let first = arena.locker(&FaultSwitch::default()).await;
    let second = arena.locker(&FaultSwitch::default()).await;
    let lock = first.rwlock("rw").expect("a name");
    let other = second.rwlock("rw").expect("a name");
    let one = lock.read().await.expect("a grant");
    let two = other.read().await.expect("a grant");
    assert_taken(&lock.try_write().await.expect("an answer"));
    one.release().await.expect("an answer");
    two.release().await.expect("an answer");
    let writer = lock.write().await.expect("a grant");
    assert_taken(&other.try_read().await.expect("an answer"));
    writer.release().await.expect("an answer");
    drop(lock.read().await.expect("a grant"));
}

/// P1: a semaphore has as many holders as permits, and one number of them.
async fn a_semaphore_has_permits(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let semaphore = locker.semaphore("s", 2).expect("a name");
    let one = semaphore.acquire().await.expect("a grant");
    let _two = semaphore.acquire().await.expect("a grant");
    assert_taken(&semaphore.try_acquire().await.expect("an answer"));
    let other = locker.semaphore("s", 3).expect("a name");
    let error = other.try_acquire().await.expect_err("another number of permits");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    one.release().await.expect("an answer");
    drop(semaphore.acquire().await.expect("a grant"));
}

/// P5: a multi-lock that cannot have all of its locks has none.
async fn a_multi_lock_is_all_or_nothing(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let blocker = locker.lock("c").await.expect("a grant");
    let all = locker.multi(["c", "a", "b"]).expect("three locks").wait(Duration::from_millis(100));
    let error = all.acquire().await.expect_err("one of them is taken");
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    for name in ["a", "b"] {
        client.until(&crate::arena::name(name), "it is free", |view| view.holders.is_empty()).await;
    }
    blocker.release().await.expect("an answer");
    let guard = all.acquire().await.expect("a grant");
    assert_eq!(guard.check().expect("all are held").len(), 3);
    let released = guard.release().await.expect("an answer");
    let freed = released.iter().filter(|one| matches!(one, Released::Released));
    assert_eq!(freed.count(), 3, "{released:?}");
}

/// P1 (B17): a multi-lock that lost one lock while it waited for another is not handed out.
async fn a_multi_lock_is_not_given_out_in_part(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let ttl = arena.ttl(Duration::from_secs(2));
    let (a, b) = (crate::arena::name("a"), crate::arena::name("b"));
    let held = client.take(client.request(&b)).await;
    let all = locker.multi(["a", "b"]).expect("two locks").ttl(ttl);
    let waiter = tokio::spawn(async move { all.acquire().await });
    client.until(&b, "it waits for the second", |view| view.waiting == 1).await;
    client.revoke(&a, None).await;
    // By then its next renewal has told the holder, if nothing else did.
    tokio::time::sleep(ttl * 3 / 4).await;
    client.release(&held).await;
    let error = finish(waiter).await.expect_err("the first was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    client.until(&b, "the second is given back", |view| view.holders.is_empty()).await;
}

/// P10: the locks of a multi-lock have one wait together. The first is freed when most of that is over, so
/// that the second has only the rest.
async fn a_multi_lock_waits_once_for_all(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let (a, b) = (crate::arena::name("a"), crate::arena::name("b"));
    let held = [client.take(client.request(&a)).await, client.take(client.request(&b)).await];
    let wait = Duration::from_secs(4);
    let all =
        locker.multi(["a", "b"]).expect("two locks").with_options(long_lease(&arena)).wait(wait);
    let waiter = tokio::spawn(async move {
        let start = Moment::now();
        (all.acquire().await, Moment::now().since(start))
    });
    tokio::time::sleep(wait * 3 / 4).await;
    assert!(!waiter.is_finished(), "it does not wait");
    client.release(&held[0]).await;
    let (acquired, took) = finish(waiter).await;
    let error = acquired.expect_err("the second is taken");
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    // Counted anew for the second, it would be seven quarters.
    assert!(took >= wait && took < wait * 3 / 2, "a wait of {wait:?} took {took:?}");
    client.until(&a, "the first is given back", |view| view.holders.is_empty()).await;
}

/// P10: multi-locks that share locks, named in any order, never wait for each other in a circle.
async fn multi_locks_do_not_deadlock(arena: Arena) {
    let mut tasks = Vec::new();
    let options = long_lease(&arena);
    for orders in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let (locker, options) = (arena.locker(&FaultSwitch::default()).await, options.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..6 {
                let all = locker.multi(orders).expect("three locks");
                let all = all.with_options(options.clone());
                let guard = all.acquire().await.expect("a grant");
                guard.check().expect("all are held");
                guard.release().await.expect("an answer");
            }
        }));
    }
    for task in tasks {
        finish(task).await;
    }
}
