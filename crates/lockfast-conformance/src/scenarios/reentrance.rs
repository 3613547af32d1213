//! A holder that takes a lock again which it has: several guards here, one grant in the store.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Holder, Moment, Released};

use super::{long_lease, mutex, short_lease};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::history::{History, assert_excluded};
use crate::stepper::Stepper;
use lockfast_core::flaky::FaultSwitch;

pub(super) const GROUP: Group = Group {
    name: "reentrance",
    source: include_str!("reentrance.rs"),
    cases: &[
        Case::new("is_one_grant_in_the_store", |arena| Box::pin(is_one_grant_in_the_store(arena))),
        Case::new("excludes_other_holders", |arena| Box::pin(excludes_other_holders(arena))),
        Case::new("that_is_cancelled_is_not_counted", |arena| {
            Box::pin(that_is_cancelled_is_not_counted(arena))
        }),
        Case::new("ends_with_its_last_guard", |arena| Box::pin(ends_with_its_last_guard(arena))),
        Case::new("is_lost_by_all_its_guards", |arena| Box::pin(is_lost_by_all_its_guards(arena))),
    ],
};

/// P1: the tasks of a holder that want a lock at once are one claim in the store, and have one fence.
async fn is_one_grant_in_the_store(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let (lock, me) = (mutex(&locker, &long_lease(&arena)), Holder::new());
    let held = client.take(client.request(&name("a"))).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (lock, me) = (lock.clone(), me.clone());
            tokio::spawn(async move { lock.acquire_as(&me).await.expect("a grant") })
        })
        .collect();
    client.until(&held.name, "it waits", |view| view.waiting > 0).await;
    client.release(&held).await;
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(finish(task).await);
    }
    let view = client.view(&held.name).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
    for guard in &guards {
        assert_eq!(view.holders[0].fence, Some(guard.check().expect("it is held").fence));
    }
}

/// P1: two holders exclude each other, however often each of them takes the lock again.
async fn excludes_other_holders(arena: Arena) {
    let history = Arc::new(History::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let lock = mutex(&arena.locker(&FaultSwitch::default()).await, &long_lease(&arena));
        let history = Arc::clone(&history);
        tasks.push(tokio::spawn(async move {
            let me = Holder::new();
            for _ in 0..6 {
                let outer = lock.acquire_as(&me).await.expect("a grant");
                let start = Moment::now();
                let inner = lock.acquire_as(&me).await.expect("it is held");
                drop(outer);
                tokio::time::sleep(Duration::from_millis(1)).await;
                let checked = inner.check().expect("one guard is left");
                history.record(start, checked.fence, true);
                inner.release().await.expect("an answer");
            }
        }));
    }
    for task in tasks {
        finish(task).await;
    }
    assert_excluded(&history.intervals());
}

/// P5: an acquisition that is dropped, whether it asks the store or waits for one of the same holder
/// that does, leaves nothing, and is not counted.
async fn that_is_cancelled_is_not_counted(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let (lock, me) = (mutex(&locker, &long_lease(&arena)), Holder::new());
    let held = client.take(client.request(&name("a"))).await;
    for first_is_dropped in [true, false] {
        let mut first = Stepper::new(Box::pin(lock.acquire_as(&me)));
        let start = Moment::now();
        while client.view(&held.name).await.waiting == 0 {
            assert!(first.step().is_pending(), "granted twice");
            assert!(Moment::now().since(start) < PATIENCE, "it does not stand in line");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut second = Stepper::new(Box::pin(lock.acquire_as(&me)));
        assert!(second.step().is_pending(), "granted twice");
        if first_is_dropped {
            drop(first);
            assert!(second.woken_within(PATIENCE).await, "it is its turn to ask");
            assert!(second.step().is_pending(), "granted twice");
        }
    }
    client.until(&held.name, "nobody waits", |view| view.waiting == 0).await;
    client.release(&held).await;
    let guard = lock.acquire_as(&me).await.expect("a grant");
    drop(Stepper::new(Box::pin(lock.acquire_as(&me))));
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    client.take(client.request(&name("a"))).await;
}

/// P6: a lease that was taken again ends with its last guard.
async fn ends_with_its_last_guard(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let (lock, me) = (mutex(&locker, &long_lease(&arena)), Holder::new());
    let outer = lock.acquire_as(&me).await.expect("a grant");
    let inner = lock.acquire_as(&me).await.expect("it is held");
    let innermost = lock.acquire_as(&me).await.expect("it is held");
    assert_eq!(inner.fence(), outer.fence());
    let released = inner.release().await.expect("an answer");
    assert!(matches!(released, Released::StillHeld), "{released:?}");
    drop(outer);
    innermost.check().expect("one guard is left");
    client.be_refused(client.request(&name("a"))).await;
    let released = innermost.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    client.take(client.request(&name("a"))).await;
}

/// P3: a loss is told to all guards of a lease, and what its holder takes next is another grant.
async fn is_lost_by_all_its_guards(arena: Arena) {
    let (_, options) = short_lease(&arena);
    let locker = arena.locker(&FaultSwitch::default()).await;
    let operator = arena.locker(&FaultSwitch::default()).await;
    let (lock, me) = (mutex(&locker, &options), Holder::new());
    let guards = [
        lock.acquire_as(&me).await.expect("a grant"),
        lock.acquire_as(&me).await.expect("it is held"),
    ];
    let fence = guards[0].fence();
    operator.revoke_fence("a", fence, "it hangs").await.expect("an answer");
    for guard in &guards {
        tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is told");
    }
    let next = lock.acquire_as(&me).await.expect("a grant");
    assert!(next.fence().get() > fence.get());
    for guard in guards {
        guard.release().await.expect("an answer");
    }
    next.check().expect("what was lost has no part in it");
}
