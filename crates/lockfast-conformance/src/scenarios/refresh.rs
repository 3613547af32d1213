//! Values that one computes and all read, on this store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast::{Ensured, Error, ErrorKind, Feature, Locker, Moment};
use lockfast_core::flaky::{FaultSwitch, Operation};

use super::shared_state::{locker, lockers};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group =
    Group {
        name: "refresh",
        source: include_str!("refresh.rs"),
        cases: &[
            Case::new("are_computed_once", |arena| Box::pin(are_computed_once(arena))).using(&[
                Feature::Values,
                Feature::ValueExpiry,
                Feature::Shared,
            ]),
            Case::new("tell_why_they_failed", |arena| Box::pin(tell_why_they_failed(arena)))
                .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("give_the_last_value_meanwhile", |arena| {
                Box::pin(give_the_last_value_meanwhile(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("stop_when_their_lock_is_lost", |arena| {
                Box::pin(stop_when_their_lock_is_lost(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("store_what_took_longer_than_the_last_value", |arena| {
                Box::pin(store_what_took_longer_than_the_last_value(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("do_not_press_a_store", |arena| Box::pin(do_not_press_a_store(arena)))
                .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("go_on_when_many_waited_for_one_who_left", |arena| {
                Box::pin(go_on_when_many_waited_for_one_who_left(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("cost_one_read_while_they_are_fresh", |arena| {
                Box::pin(cost_one_read_while_they_are_fresh(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("are_fresh_for_a_short_time", |arena| {
                Box::pin(are_fresh_for_a_short_time(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("are_as_fresh_as_the_reader_wants", |arena| {
                Box::pin(are_as_fresh_as_the_reader_wants(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
            Case::new("invalidations_are_not_undone_by_who_computes", |arena| {
                Box::pin(invalidations_are_not_undone_by_who_computes(arena))
            })
            .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
        ],
    };

/// P1: of all who want a value that is not there, one computes it, and the others get what it computed.
async fn are_computed_once(arena: Arena) {
    let lockers: [Locker; 4] = lockers(&arena).await;
    let computed = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (lockers.iter())
        .map(|locker| {
            let refresh = locker.refresh("a", Duration::from_secs(600)).expect("a refresh");
            let computed = Arc::clone(&computed);
            tokio::spawn(async move {
                let got = refresh.get(|lease| async move {
                    computed.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    lease.check()?;
                    Ok(b"computed".to_vec())
                });
                got.await.expect("a value")
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(finish(task).await, b"computed");
    }
    assert_eq!(computed.load(Ordering::SeqCst), 1);
    let refresh = lockers[0].refresh("a", Duration::from_secs(600)).expect("a refresh");
    let mixed = refresh.ensure(async |_| Ok(())).await.expect_err("it is a value, and no mark");
    assert_eq!(mixed.kind(), ErrorKind::Conflict, "{mixed}");
    refresh.invalidate().await.expect("an answer");
    assert_eq!(refresh.ensure(async |_| Ok(7)).await.expect("an answer"), Ensured::Now(7));
    assert_eq!(refresh.ensure(async |_| Ok(8)).await.expect("an answer"), Ensured::Before);
}

/// P11: those who waited for a computation are told why it failed, and the next computes.
async fn tell_why_they_failed(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let refresh =
        |locker: &Locker| locker.refresh("a", Duration::from_secs(600)).expect("a refresh");
    let client = arena.client().await;
    let (failing, waiting) = (refresh(&first), refresh(&second));
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let failing = tokio::spawn(async move {
        let failed = failing.get(|_| async move {
            let _ = gone.await;
            Err(Error::new(ErrorKind::Permission, "no rates today"))
        });
        failed.await.expect_err("it fails")
    });
    let place = name("refresh:a");
    client.until(&place, "it computes", |view| view.holders.len() == 1).await;
    let waiting =
        tokio::spawn(async move { waiting.get(|_| async { Ok(b"by the second".to_vec()) }).await });
    client.until(&place, "the other waits", |view| view.waiting == 1).await;
    go.send(()).expect("it computes");
    assert_eq!(finish(failing).await.kind(), ErrorKind::Permission);
    let error = finish(waiting).await.expect_err("it is told");
    assert_eq!(error.kind(), ErrorKind::Computation, "{error}");
    assert!(error.message().contains("no rates today"), "{error}");
    let next = refresh(&second).get(|_| async { Ok(b"next".to_vec()) }).await;
    assert_eq!(next.expect("a value"), b"next");
}

/// P10: with a last value that is good enough, nobody waits for the one who computes the next.
async fn give_the_last_value_meanwhile(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let fresh = arena.short_ttl();
    let refresh = |locker: &Locker| {
        let refresh = locker.refresh("a", fresh).expect("a refresh");
        refresh.stale_for(Duration::from_secs(600)).expect("a time")
    };
    let client = arena.client().await;
    let (one, other) = (refresh(&first), refresh(&second));
    assert_eq!(one.get(|_| async { Ok(b"old".to_vec()) }).await.expect("a value"), b"old");
    tokio::time::sleep(fresh + arena.profile.ttl.fit(Duration::ZERO)).await;
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let computing = tokio::spawn(async move {
        let got = one.get(|_| async move {
            let _ = gone.await;
            Ok(b"new".to_vec())
        });
        got.await.expect("a value")
    });
    client.until(&name("refresh:a"), "it computes", |view| view.holders.len() == 1).await;
    let meanwhile = other.get(|_| async { Ok(b"unwanted".to_vec()) }).await;
    assert_eq!(meanwhile.expect("a value"), b"old");
    go.send(()).expect("it computes");
    assert_eq!(finish(computing).await, b"new");
    assert_eq!(other.get(|_| async { Ok(b"unwanted".to_vec()) }).await.expect("a value"), b"new");
}

/// P3: a computation whose lock is taken away is stopped, and leaves nothing.
async fn stop_when_their_lock_is_lost(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let refresh =
        |locker: &Locker| locker.refresh("a", Duration::from_secs(600)).expect("a refresh");
    let client = arena.client().await;
    let one = refresh(&first);
    let computing =
        tokio::spawn(
            async move { one.get(|_| std::future::pending::<Result<Vec<u8>, Error>>()).await },
        );
    let place = name("refresh:a");
    client.until(&place, "it computes", |view| view.holders.len() == 1).await;
    client.revoke(&place, None).await;
    let error = finish(computing).await.expect_err("it was taken away");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let next = refresh(&second).get(|_| async { Ok(b"next".to_vec()) }).await;
    assert_eq!(next.expect("a value"), b"next");
}

/// P10 (B170): a result is stored for the others also when the last value has ended meanwhile.
async fn store_what_took_longer_than_the_last_value(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let time = arena.short_ttl();
    let refresh = |locker: &Locker, fresh| {
        let refresh = locker.refresh("a", fresh).expect("a refresh");
        refresh.stale_for(time).expect("a time")
    };
    let old = refresh(&first, time).get(|_| async { Ok(b"old".to_vec()) }).await;
    assert_eq!(old.expect("a value"), b"old");
    tokio::time::sleep(time + time / 4).await;
    let (value, waited) = (first.value("refresh:a").expect("a name"), Moment::now());
    let long = refresh(&first, Duration::from_secs(600));
    let computed = long.get(|_| async move {
        while value.read().await?.is_some() {
            assert!(Moment::now().since(waited) < PATIENCE, "it does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(b"new".to_vec())
    });
    assert_eq!(computed.await.expect("a value"), b"new");
    let read = refresh(&second, Duration::from_secs(600));
    assert_eq!(read.get(|_| async { Ok(b"again".to_vec()) }).await.expect("a value"), b"new");
}

/// P10 (B171): who waits behind one that reads and does not go away waits in line, and does not ask the
/// store again and again.
async fn do_not_press_a_store(arena: Arena) {
    let switch = FaultSwitch::default();
    let (first, second) = (arena.locker(&switch).await, locker(&arena).await);
    let reader = second.rwlock("refresh:a").expect("a lock").read().await.expect("it is free");
    let refresh = first.refresh("a", Duration::from_secs(600)).expect("a refresh");
    let waiting = tokio::spawn(async move { refresh.get(|_| async { Ok(b"x".to_vec()) }).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = switch.count(Operation::Acquire);
    assert!(asked <= 4, "asked {asked} times within 500 ms");
    reader.release().await.expect("an answer");
    assert_eq!(finish(waiting).await.expect("a value"), b"x");
}

/// P10 (B171): when the one who computes has left, one of the many who waited for it computes soon.
async fn go_on_when_many_waited_for_one_who_left(arena: Arena) {
    const WAITERS: usize = 60;
    let lockers: [Locker; 3] = lockers(&arena).await;
    let client = arena.client().await;
    let refresh =
        |at: usize| lockers[at % 3].refresh("a", Duration::from_secs(600)).expect("a refresh");
    let one = refresh(0);
    let leaving =
        tokio::spawn(
            async move { one.get(|_| std::future::pending::<Result<Vec<u8>, Error>>()).await },
        );
    let place = name("refresh:a");
    client.until(&place, "it computes", |view| view.holders.len() == 1).await;
    let computed = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|at| {
            let (refresh, computed) = (refresh(at), Arc::clone(&computed));
            tokio::spawn(async move {
                let got = refresh.get(|_| async move {
                    computed.fetch_add(1, Ordering::SeqCst);
                    Ok(b"x".to_vec())
                });
                got.await.expect("a value")
            })
        })
        .collect();
    client.until(&place, "all wait", |view| view.waiting == WAITERS).await;
    let start = Moment::now();
    leaving.abort();
    for waiter in waiters {
        assert_eq!(finish(waiter).await, b"x");
    }
    let took = Moment::now().since(start);
    assert_eq!(computed.load(Ordering::SeqCst), 1);
    assert!(took < PATIENCE / 3, "it took {took:?}");
}

/// P10: a value that is fresh costs one read, without a lock.
async fn cost_one_read_while_they_are_fresh(arena: Arena) {
    const OPERATIONS: [Operation; 4] =
        [Operation::Acquire, Operation::Renew, Operation::Release, Operation::Other];
    let switch = FaultSwitch::default();
    let (reading, computing) = (arena.locker(&switch).await, locker(&arena).await);
    let refresh = |locker: &Locker| {
        let refresh = locker.refresh("a", Duration::from_secs(600)).expect("a refresh");
        refresh.stale_for(Duration::from_secs(600)).expect("a time")
    };
    let computed = refresh(&computing).get(|_| async { Ok(b"one".to_vec()) }).await;
    assert_eq!(computed.expect("a value"), b"one");
    let before = OPERATIONS.map(|operation| switch.count(operation));
    for _ in 0..5 {
        let read = refresh(&reading).get(|_| async { Ok(b"two".to_vec()) }).await;
        assert_eq!(read.expect("a value"), b"one");
    }
    let spent: Vec<usize> =
        OPERATIONS.iter().zip(before).map(|(it, before)| switch.count(*it) - before).collect();
    assert_eq!(spent, [0, 0, 0, 5], "for five reads");
}

/// P10 (B173): a value is fresh once it was computed, however short that is.
async fn are_fresh_for_a_short_time(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let second_long = Duration::from_secs(1);
    let refresh = |locker: &Locker| {
        let refresh = locker.refresh("a", second_long).expect("a refresh");
        refresh.stale_for(Duration::from_secs(600)).expect("a time")
    };
    let start = Moment::now();
    let computed = refresh(&first).get(|_| async { Ok(b"one".to_vec()) }).await;
    assert_eq!(computed.expect("a value"), b"one");
    let read = refresh(&second).get(|_| async { Ok(b"two".to_vec()) }).await.expect("a value");
    let took = Moment::now().since(start);
    assert!(read == b"one" || took >= second_long, "computed again after {took:?}");
}

/// P13 (B185): a value that another program keeps for longer is computed anew by one who does not accept
/// it any more.
async fn are_as_fresh_as_the_reader_wants(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let strict = arena.short_ttl();
    let refresh = |locker: &Locker, fresh| locker.refresh("a", fresh).expect("a refresh");
    let long = refresh(&first, Duration::from_secs(600));
    let old = long.get(|_| async { Ok(b"old".to_vec()) }).await.expect("a value");
    assert_eq!(old, b"old");
    tokio::time::sleep(strict + arena.profile.ttl.fit(Duration::ZERO)).await;
    let read = long.get(|_| async { Ok(b"unwanted".to_vec()) }).await.expect("a value");
    assert_eq!(read, b"old");
    let strict = refresh(&second, strict);
    let new = strict.get(|_| async { Ok(b"new".to_vec()) }).await.expect("a value");
    assert_eq!(new, b"new");
}

/// P14 (B172): a value that was made stale while it was computed is not fresh.
async fn invalidations_are_not_undone_by_who_computes(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let refresh =
        |locker: &Locker| locker.refresh("a", Duration::from_secs(600)).expect("a refresh");
    // Nothing was there before, and then something was.
    for round in 0..2 {
        let (one, other) = (refresh(&first), refresh(&second));
        let computed = one.get(|_| async move {
            other.invalidate().await?;
            Ok(b"from old data".to_vec())
        });
        assert_eq!(computed.await.expect("a value"), b"from old data", "{round}");
        let next = refresh(&second).get(|_| async { Ok(b"from new data".to_vec()) }).await;
        assert_eq!(next.expect("a value"), b"from new data", "{round}");
        if round == 0 {
            refresh(&first).invalidate().await.expect("an answer");
        }
    }
}
