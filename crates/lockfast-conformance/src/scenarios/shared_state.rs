//! What is made of values: optimistic updates, latches and barriers on this store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast::optimistic::{Attempts, Update};
use lockfast::{
    Error, ErrorKind, Expected, Feature, LockView, Locker, Moment, SharedValue, VersionedValue,
    WriteOutcome,
};
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

use crate::arena::{Arena, GRACE, PATIENCE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "shared_state",
    source: include_str!("shared_state.rs"),
    cases: &[
        Case::new("updates_are_all_counted", |arena| Box::pin(updates_are_all_counted(arena)))
            .using(&[Feature::Values]),
        Case::new("updates_tell_of_a_conflict", |arena| {
            Box::pin(updates_tell_of_a_conflict(arena))
        })
        .using(&[Feature::Values]),
        Case::new("updates_whose_answer_is_lost_happen_once", |arena| {
            Box::pin(updates_whose_answer_is_lost_happen_once(arena))
        })
        .using(&[Feature::Values]),
        Case::new("latches_open_when_counted_down", |arena| {
            Box::pin(latches_open_when_counted_down(arena))
        })
        .using(&[Feature::Values]),
        Case::new("latches_are_counted_by_many_at_once", |arena| {
            Box::pin(latches_are_counted_by_many_at_once(arena))
        })
        .using(&[Feature::Values]),
        Case::new("latches_refuse_what_does_not_go_together", |arena| {
            Box::pin(latches_refuse_what_does_not_go_together(arena))
        })
        .using(&[Feature::Values]),
        Case::new("barriers_let_all_go_together", |arena| {
            Box::pin(barriers_let_all_go_together(arena))
        })
        .using(&[Feature::Values, Feature::Shared]),
        Case::new("barriers_do_not_count_who_left", |arena| {
            Box::pin(barriers_do_not_count_who_left(arena))
        })
        .using(&[Feature::Values, Feature::Shared]),
        Case::new("barriers_do_not_count_one_twice", |arena| {
            Box::pin(barriers_do_not_count_one_twice(arena))
        })
        .using(&[Feature::Values, Feature::Shared]),
        Case::new("barriers_outlast_places_that_are_taken_away", |arena| {
            Box::pin(barriers_outlast_places_that_are_taken_away(arena))
        })
        .using(&[Feature::Values, Feature::Shared]),
        Case::new("barriers_take_many", |arena| Box::pin(barriers_take_many(arena)))
            .using(&[Feature::Values, Feature::Shared]),
        Case::new("waits_outlast_a_store_that_fails", |arena| {
            Box::pin(waits_outlast_a_store_that_fails(arena))
        })
        .using(&[Feature::Values, Feature::Shared]),
    ],
};

pub(super) async fn locker(arena: &Arena) -> Locker {
    arena.locker(&FaultSwitch::default()).await
}

pub(super) async fn lockers<const N: usize>(arena: &Arena) -> [Locker; N] {
    let mut lockers = Vec::with_capacity(N);
    for _ in 0..N {
        lockers.push(locker(arena).await);
    }
    lockers.try_into().expect("as many as were made")
}

fn number(value: Option<&VersionedValue>) -> u32 {
    let text = value.map_or("0", |value| std::str::from_utf8(&value.bytes).expect("a number"));
    text.parse().expect("a number")
}

async fn add_one(value: &SharedValue) -> Result<u32, Error> {
    let added = value.update(async |there| {
        Ok(Update::Put((number(there.as_ref()) + 1).to_string().into_bytes()))
    });
    added.await.map(|value| number(value.as_ref()))
}

/// P14: of many who update one value, each counts once.
async fn updates_are_all_counted(arena: Arena) {
    const ROUNDS: u32 = 10;
    let lockers: [Locker; 4] = lockers(&arena).await;
    let attempts = Attempts::default().most(10_000).pause_max(Duration::from_millis(20));
    let tasks: Vec<_> = (lockers.iter())
        .map(|locker| {
            let value = locker.value("a").expect("a name").attempts(attempts);
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    add_one(&value).await.expect("an update");
                }
            })
        })
        .collect();
    for task in tasks {
        finish(task).await;
    }
    let value = lockers[0].value("a").expect("a name").read().await.expect("an answer");
    assert_eq!(number(value.as_ref()), ROUNDS * lockers.len() as u32);
}

/// P11, P14: whoever always meets others is told so after its attempts, and has changed nothing.
async fn updates_tell_of_a_conflict(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let value = first.value("a").expect("a name").attempts(Attempts::default().most(3));
    let other = second.value("a").expect("a name");
    let calls = AtomicUsize::new(0);
    let refused = value.update(async |_| {
        calls.fetch_add(1, Ordering::SeqCst);
        add_one(&other).await?;
        Ok(Update::Put(b"100".to_vec()))
    });
    let error = refused.await.expect_err("somebody was always faster");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(number(value.read().await.expect("an answer").as_ref()), 3);
    let kept = value.update(async |_| Ok(Update::Keep)).await.expect("an answer");
    assert_eq!(number(kept.as_ref()), 3);
    assert_eq!(value.update(async |_| Ok(Update::Remove)).await.expect("an answer"), None);
    assert_eq!(value.read().await.expect("an answer"), None);
}

/// P7, P14: a write whose answer is lost is asked for again and happens once.
async fn updates_whose_answer_is_lost_happen_once(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let value = locker.value("a").expect("a name");
    switch.set(Operation::Other, Fault::SwallowReply);
    let writing = tokio::spawn({
        let value = value.clone();
        async move { value.write(Expected::Nothing, b"1").await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    switch.set(Operation::Other, Fault::Pass);
    match finish(writing).await {
        Ok(outcome) => assert!(matches!(outcome, WriteOutcome::Written(_)), "{outcome:?}"),
        // Its tries were over before the link was back.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
    }
    assert_eq!(number(value.read().await.expect("an answer").as_ref()), 1);
}

/// P10: those who wait go on, soon, when the last has counted, and whoever comes later goes on at once.
async fn latches_open_when_counted_down(arena: Arena) {
    let lockers: [Locker; 3] = lockers(&arena).await;
    let latch = |at: usize| lockers[at % 3].latch("a", 3).expect("a latch");
    let waiters: Vec<_> = (0..4)
        .map(|at| {
            let latch = latch(at);
            tokio::spawn(async move {
                latch.wait().await.expect("an answer");
                Moment::now()
            })
        })
        .collect();
    assert_eq!(latch(0).left().await.expect("an answer"), 3);
    for at in 0..2 {
        assert_eq!(latch(at).count_down().await.expect("an answer"), 2 - at as u32);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one is left");
    assert_eq!(latch(2).count_down().await.expect("an answer"), 0);
    let opened = Moment::now();
    for waiter in waiters {
        let waited = finish(waiter).await.since(opened);
        assert!(waited <= GRACE, "woken after {waited:?}");
    }
    tokio::time::timeout(PATIENCE, latch(1).wait()).await.expect("it is open").expect("an answer");
}

/// P11: a latch is not counted below zero, nor from two numbers, nor is another value taken for one.
async fn latches_refuse_what_does_not_go_together(arena: Arena) {
    let [first, second] = lockers(&arena).await;
    let latch = first.latch("a", 1).expect("a latch");
    latch.count_down().await.expect("an answer");
    let error = latch.count_down().await.expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = second.latch("a", 2).expect("a latch").wait().await.expect_err("another count");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("from 1, not from 2"), "{error}");
    latch.reset().await.expect("an answer");
    assert_eq!(second.latch("a", 2).expect("a latch").left().await.expect("an answer"), 2);
    assert_eq!(first.latch("a", 0).expect_err("no count").kind(), ErrorKind::InvalidConfig);
    let foreign = first.value("latch:b").expect("a name");
    foreign.write(Expected::Nothing, b"7").await.expect("an answer");
    let error = first.latch("b", 2).expect("a latch").left().await.expect_err("no latch");
    assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{error}");
}

/// P10: all who wait for each other go on when the last has come, round after round.
async fn barriers_let_all_go_together(arena: Arena) {
    const ROUNDS: u64 = 3;
    let lockers: [Locker; 3] = lockers(&arena).await;
    let arrived = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (lockers.iter())
        .map(|locker| {
            let barrier = locker.barrier("a", 3).expect("a barrier");
            let arrived = Arc::clone(&arrived);
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(barrier.wait().await.expect("an answer"), round);
                    let arrived = arrived.load(Ordering::SeqCst);
                    assert!(arrived >= 3 * (round as usize + 1), "{arrived} came by {round}");
                }
            })
        })
        .collect();
    for task in tasks {
        finish(task).await;
    }
    let error = lockers[0].barrier("a", 2).expect("a barrier").wait().await.expect_err("for 3");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(lockers[0].barrier("b", 0).expect_err("for 0").kind(), ErrorKind::InvalidConfig);
}

/// P5: one that stops waiting has left, and the others wait for one more.
async fn barriers_do_not_count_who_left(arena: Arena) {
    let lockers: [Locker; 3] = lockers(&arena).await;
    let client = arena.client().await;
    let wait = |at: usize| {
        let barrier = lockers[at].barrier("a", 2).expect("a barrier");
        tokio::spawn(async move { barrier.wait().await.expect("an answer") })
    };
    let place = name("barrier:a#0");
    let leaving = wait(0);
    client.until(&place, "one is there", |view| view.holders.len() == 1).await;
    leaving.abort();
    let _ = leaving.await;
    lockers[0].settled().await;
    client.until(&place, "it has left", |view| view.holders.is_empty()).await;
    let second = wait(1);
    client.until(&place, "one is there", |view| view.holders.len() == 1).await;
    assert!(!second.is_finished(), "one is missing");
    let third = wait(2);
    assert_eq!((finish(second).await, finish(third).await), (0, 0));
}

/// P1 (B176): one that stops waiting and waits again is one, also when the store has not heard yet that it
/// left.
async fn barriers_do_not_count_one_twice(arena: Arena) {
    let switch = FaultSwitch::default();
    let (slow, other) = (arena.locker(&switch).await, locker(&arena).await);
    let client = arena.client().await;
    let wait = |locker: &Locker| {
        let barrier = locker.barrier("a", 2).expect("a barrier");
        tokio::spawn(async move { barrier.wait().await.expect("an answer") })
    };
    let place = name("barrier:a#0");
    let leaving = wait(&slow);
    client.until(&place, "one is there", |view| view.holders.len() == 1).await;
    switch.set(Operation::Release, Fault::DelayRequest(Duration::from_millis(500)));
    leaving.abort();
    let _ = leaving.await;
    let again = wait(&slow);
    tokio::time::sleep(Duration::from_millis(250)).await;
    switch.set(Operation::Release, Fault::Pass);
    assert!(!again.is_finished(), "it went on with itself");
    slow.settled().await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(!again.is_finished(), "it went on with itself");
    let other = wait(&other);
    assert_eq!((finish(again).await, finish(other).await), (0, 0));
}

/// P10: those whose places an operator takes away take others, and are counted once.
async fn barriers_outlast_places_that_are_taken_away(arena: Arena) {
    let lockers: [Locker; 3] = lockers(&arena).await;
    let client = arena.client().await;
    let wait = |at: usize| {
        let barrier = lockers[at].barrier("a", 3).expect("a barrier");
        tokio::spawn(async move { barrier.wait().await.expect("an answer") })
    };
    let place = name("barrier:a#0");
    let fences = |view: &LockView| view.holders.iter().map(|it| it.fence).collect::<Vec<_>>();
    let (first, second) = (wait(0), wait(1));
    let before = client.until(&place, "two are there", |view| view.holders.len() == 2).await;
    let before = fences(&before);
    client.revoke(&place, None).await;
    let are_others = |view: &LockView| {
        view.holders.len() == 2 && fences(view).iter().all(|fence| !before.contains(fence))
    };
    client.until(&place, "two others are there", are_others).await;
    assert!(!first.is_finished() && !second.is_finished(), "one is missing");
    let third = wait(2);
    for waiting in [first, second, third] {
        assert_eq!(finish(waiting).await, 0);
    }
}

/// P10 (B175): a barrier of many opens when all are there, and not before.
async fn barriers_take_many(arena: Arena) {
    const PARTIES: u32 = 150;
    let switches = [FaultSwitch::default(), FaultSwitch::default(), FaultSwitch::default()];
    let mut lockers = Vec::new();
    for switch in &switches {
        lockers.push(arena.locker(switch).await);
    }
    let wait = |at: u32| {
        let barrier = lockers[at as usize % 3].barrier("a", PARTIES).expect("a barrier");
        tokio::spawn(async move { barrier.wait().await.expect("an answer") })
    };
    let client = arena.client().await;
    let tasks: Vec<_> = (1..PARTIES).map(wait).collect();
    let all = PARTIES as usize - 1;
    client.until(&name("barrier:a#0"), "all but one", |view| view.holders.len() == all).await;
    assert!(tasks.iter().all(|task| !task.is_finished()), "one is missing");
    for switch in &switches {
        assert_eq!(switch.count(Operation::Watch), 1, "those of one process share a watch");
    }
    let last = wait(0);
    for task in tasks.into_iter().chain([last]) {
        assert_eq!(finish(task).await, 0);
    }
}

/// P10 (B174): who waits at a latch or a barrier outlasts a store that cannot serve it for a while.
async fn waits_outlast_a_store_that_fails(arena: Arena) {
    let switch = FaultSwitch::default();
    let (far, near) = (arena.locker(&switch).await, locker(&arena).await);
    let client = arena.client().await;
    let (latch, barrier) = (far.latch("a", 1).expect("a latch"), far.barrier("a", 2));
    let barrier = barrier.expect("a barrier");
    let latched = tokio::spawn(async move { latch.wait().await });
    let met = tokio::spawn(async move { barrier.wait().await });
    let place = name("barrier:a#0");
    client.until(&place, "one is there", |view| view.holders.len() == 1).await;
    switch.set(Operation::Other, Fault::Fail);
    near.latch("a", 1).expect("a latch").count_down().await.expect("an answer");
    let came = near.barrier("a", 2).expect("a barrier").wait().await;
    assert_eq!(came.expect("an answer"), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    switch.set(Operation::Other, Fault::Pass);
    finish(latched).await.expect("it is open");
    assert_eq!(finish(met).await.expect("both were there"), 0);
}

/// P10 (B178): many who count at the same time are all counted, also over a slow way.
async fn latches_are_counted_by_many_at_once(arena: Arena) {
    const COUNT: u32 = 100;
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Other, Fault::DelayRequest(Duration::from_millis(10)));
    let tasks: Vec<_> = (0..COUNT)
        .map(|_| {
            let latch = locker.latch("a", COUNT).expect("a latch");
            tokio::spawn(async move { latch.count_down().await })
        })
        .collect();
    // Most of what they write is in vain, and nothing is said of how long that takes: on several servers
    // that write to one disk it is long.
    let counting = async {
        let mut left = Vec::new();
        for task in tasks {
            left.push(task.await.expect("no panic").expect("its count"));
        }
        left
    };
    let mut left = tokio::time::timeout(PATIENCE * 3, counting).await.expect("all have counted");
    left.sort_unstable();
    assert!(left.into_iter().eq(0..COUNT), "each counts once");
}
