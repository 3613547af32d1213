//! Taking a lock through the engine: granted, refused or failed, and nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Attempt, ErrorKind, Feature, Guarantee, Moment, Mutex, Released};

use super::{long_lease, mutex, short_lease};
use crate::arena::{Arena, Client, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::history::{History, assert_excluded};
use crate::stepper::{Left, Sweep};
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

pub(super) const GROUP: Group = Group {
    name: "acquisition",
    source: include_str!("acquisition.rs"),
    cases: &[
        Case::new("gives_one_guard_at_a_time", |arena| Box::pin(gives_one_guard_at_a_time(arena))),
        Case::new("that_is_refused_says_who", |arena| Box::pin(that_is_refused_says_who(arena))),
        Case::new("needs_the_guarantee_that_is_required", |arena| {
            Box::pin(needs_the_guarantee_that_is_required(arena))
        }),
        Case::new("that_comes_late_is_refused_and_undone", |arena| {
            Box::pin(that_comes_late_is_refused_and_undone(arena))
        }),
        Case::new("that_comes_late_is_repeated_while_there_is_time", |arena| {
            Box::pin(that_comes_late_is_repeated_while_there_is_time(arena))
        }),
        Case::new("that_misses_the_end_of_its_wait_looks_once_more", |arena| {
            Box::pin(that_misses_the_end_of_its_wait_looks_once_more(arena))
        }),
        Case::new("with_a_lost_reply_is_repeated", |arena| {
            Box::pin(with_a_lost_reply_is_repeated(arena))
        }),
        Case::new("that_fails_is_undone", |arena| Box::pin(that_fails_is_undone(arena))),
        Case::new("that_is_refused_after_a_lost_reply_is_undone", |arena| {
            Box::pin(that_is_refused_after_a_lost_reply_is_undone(arena))
        }),
        Case::new("dropped_at_any_poll_is_undone", |arena| {
            Box::pin(dropped_at_any_poll_is_undone(arena))
        }),
        Case::new("dropped_while_waiting_is_undone", |arena| {
            Box::pin(dropped_while_waiting_is_undone(arena))
        }),
        Case::new("dropped_while_waiting_in_a_long_outage_is_undone", |arena| {
            Box::pin(dropped_while_waiting_in_a_long_outage_is_undone(arena))
        }),
        Case::new("dropped_during_the_hand_over_is_undone", |arena| {
            Box::pin(dropped_during_the_hand_over_is_undone(arena))
        }),
    ],
};

/// P11: who needs correctness is refused by a store that only saves work, which says why.
async fn needs_the_guarantee_that_is_required(arena: Arena) {
    let saving = arena.locker_with(Guarantee::Efficiency).await.expect("every store saves work");
    drop(saving.lock("a").await.expect("a grant"));
    match (arena.profile.guarantee, arena.locker_with(Guarantee::Correctness).await) {
        (Guarantee::Correctness, right) => {
            drop(right.expect("it keeps data right").lock("b").await.expect("a grant"));
        }
        (less, refused) => {
            let error = refused.map(drop).expect_err("it gives less");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            for part in ["correctness was required", &less.to_string(), arena.profile.because] {
                assert!(error.message().contains(part), "{part:?} is not in: {error}");
            }
        }
    }
}

/// P1: guards of several connections never say "held" together, and their fences rise.
async fn gives_one_guard_at_a_time(arena: Arena) {
    let history = Arc::new(History::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locker = arena.locker(&FaultSwitch::default()).await;
        for _ in 0..3 {
            let lock = mutex(&locker, &long_lease(&arena));
            let history = Arc::clone(&history);
            tasks.push(tokio::spawn(async move {
                for _ in 0..8 {
                    let guard = lock.acquire().await.expect("a grant");
                    let start = Moment::now();
                    tokio::task::yield_now().await;
                    let checked = guard.check().expect("it is held");
                    history.record(start, checked.fence, true);
                    let released = guard.release().await.expect("an answer");
                    assert!(matches!(released, Released::Released), "{released:?}");
                }
            }));
        }
    }
    for task in tasks {
        finish(task).await;
    }
    assert_excluded(&history.intervals());
}

/// P11: a lock that is taken is refused with who has it, at once or when the wait is over.
async fn that_is_refused_says_who(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
    let attempt = mutex(&locker, &long_lease(&arena)).try_acquire().await.expect("an answer");
    let Attempt::Taken(refusal) = attempt else {
        panic!("granted twice");
    };
    assert_eq!(refusal.lock.holders[0].fence, Some(guard.fence()));
    let wait = Duration::from_millis(200);
    let start = Moment::now();
    let error =
        mutex(&locker, &long_lease(&arena).wait(wait)).acquire().await.expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    assert!(Moment::now().since(start) >= wait, "given up early");
    let refusal = error.refusal().expect("who has it");
    assert_eq!(refusal.lock.holders[0].fence, Some(guard.fence()));
    assert!(refusal.lock.holders[0].label.is_some(), "{refusal:?}");
}

/// P2: a grant whose answer comes after its deadline is no guard, and it is given back.
async fn that_comes_late_is_refused_and_undone(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Acquire, Fault::DelayReply(ttl + Duration::from_millis(100)));
    // The store would keep it for much longer, so who gets in then does so by the release.
    let delay_max = ttl * 9;
    let has_delay = arena.profile.lack_of(Feature::LockDelay).is_none();
    let options = if has_delay { options.lock_delay(delay_max) } else { options };
    let error = mutex(&locker, &options).acquire().await;
    let failed = Moment::now();
    let error = error.expect_err("the answer came after the deadline");
    assert_eq!(error.kind(), ErrorKind::TooLate, "{error}");
    let took = take_soon(&arena.client().await, failed).await;
    assert!(took < delay_max / 2, "free only {took:?} later");
}

/// How long it takes until somebody else can have the lock.
async fn take_soon(client: &Client, since: Moment) -> Duration {
    let held = finish(client.wait_for(client.waiting_request(&name("a")))).await;
    let took = held.granted.since(since);
    client.release(&held).await;
    took
}

/// P10 (B20): a waiter that hears of its turn too late, as one that was paused does, waits on.
async fn that_comes_late_is_repeated_while_there_is_time(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let lock = mutex(&arena.locker(&switch).await, &options.wait_forever());
    switch.set(Operation::Acquire, Fault::DelayReply(ttl * 2));
    let waiter = tokio::spawn(async move { lock.acquire().await });
    let start = Moment::now();
    while switch.count(Operation::Acquire) == 0 {
        assert!(Moment::now().since(start) < PATIENCE, "nothing is asked");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    switch.set(Operation::Acquire, Fault::Pass);
    let guard = finish(waiter).await.expect("a grant");
    guard.check().expect("it is held");
    assert!(Moment::now().since(start) >= ttl, "the first answer was not late");
}

/// P10, P11 (B87): who hears nothing by the end of its wait, or of its turn too late and after that
/// end, is told whether the lock is taken, and has it if it is not.
async fn that_misses_the_end_of_its_wait_looks_once_more(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let client = arena.client().await;
    for (fault, is_taken) in [
        (Fault::Hang, true),
        (Fault::Hang, false),
        // Beyond its deadline and the end of the wait, but not beyond the patience with the store.
        (Fault::DelayReply(ttl * 16 / 10), false),
    ] {
        let held = match is_taken {
            true => Some(client.take(client.request(&name("a"))).await),
            false => None,
        };
        let switch = FaultSwitch::default();
        let wait = ttl * 3 / 2;
        let lock = mutex(&arena.locker(&switch).await, &options.clone().wait(wait));
        switch.set(Operation::Acquire, fault);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        wait_for_count(&switch, Operation::Acquire, 1).await;
        switch.set(Operation::Acquire, Fault::Pass);
        match (finish(waiter).await, held) {
            (Ok(guard), None) => {
                guard.check().expect("it is held");
                drop(guard.release().await.expect("an answer"));
            }
            (Err(error), Some(held)) => {
                let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
                assert_eq!(refusal.lock.holders[0].fence, Some(held.fence));
                assert!(refusal.waited >= wait, "{refusal:?}");
                client.release(&held).await;
            }
            (outcome, _) => panic!("{outcome:?} after {fault:?}, taken: {is_taken}"),
        }
    }
}

/// P7: an acquisition whose reply was lost is tried again and has one grant.
async fn with_a_lost_reply_is_repeated(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Acquire, Fault::SwallowReply);
    let lock = mutex(&locker, &long_lease(&arena));
    let task = tokio::spawn(async move { lock.acquire().await });
    wait_for_count(&switch, Operation::Acquire, 1).await;
    switch.set(Operation::Acquire, Fault::Pass);
    let guard = finish(task).await.expect("a grant");
    let client = arena.client().await;
    let view = client.view(&name("a")).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
    assert_eq!(view.holders[0].fence, Some(guard.fence()));
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    client.take(client.request(&name("a"))).await;
}

async fn wait_for_count(switch: &FaultSwitch, operation: Operation, count: usize) {
    let start = Moment::now();
    while switch.count(operation) < count {
        assert!(Moment::now().since(start) < PATIENCE, "never asked");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// P5: an acquisition that failed although the store granted it is given back, also when the
/// store cannot be reached for a while.
async fn that_fails_is_undone(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Acquire, Fault::SwallowReply);
    switch.set(Operation::Release, Fault::Fail);
    let error = mutex(&locker, &long_lease(&arena).no_wait().retries(1)).acquire().await;
    let error = error.expect_err("no answer came through");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let client = arena.client().await;
    assert_eq!(client.view(&name("a")).await.holders.len(), 1, "the store has granted it");
    wait_for_count(&switch, Operation::Release, 2).await;
    switch.set(Operation::Release, Fault::Pass);
    take_soon(&client, Moment::now()).await;
}

/// P5: an acquisition that was granted without its knowledge and then refused for another reason
/// is given back.
async fn that_is_refused_after_a_lost_reply_is_undone(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Acquire, Fault::SwallowReply);
    let lock = mutex(&locker, &long_lease(&arena));
    let task = tokio::spawn(async move { lock.acquire().await });
    wait_for_count(&switch, Operation::Acquire, 1).await;
    switch.set(Operation::Acquire, Fault::Refuse);
    let error = finish(task).await.expect_err("refused for good");
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    take_soon(&arena.client().await, Moment::now()).await;
}

/// P5: an acquisition that is dropped after any number of polls leaves the lock free, without
/// anybody's asking for it.
async fn dropped_at_any_poll_is_undone(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let lock = mutex(&locker, &long_lease(&arena));
    let mut sweep = Sweep::new(Duration::from_millis(200));
    loop {
        let Some(left) = sweep.advance(|| Box::pin(lock.acquire())).await else {
            break;
        };
        if let Left::Ready(guard) = left {
            drop(guard.expect("a grant"));
        }
        take_soon(&client, Moment::now()).await;
    }
    let view = client.view(&name("a")).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
}

/// P5: a waiter that is dropped after any number of polls leaves the queue, without anybody's
/// asking for it.
async fn dropped_while_waiting_is_undone(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    let lock = mutex(&locker, &long_lease(&arena));
    let mut sweep = Sweep::new(Duration::from_millis(200));
    while let Some(left) = sweep.advance(|| Box::pin(lock.acquire())).await {
        assert!(matches!(left, Left::Pending { .. }), "answered while taken");
        client.until(&held.name, "nobody waits", |view| view.waiting == 0).await;
    }
    client.release(&held).await;
    take_soon(&client, Moment::now()).await;
}

/// P5 (B76): a waiter that is dropped while the store cannot be reached leaves the queue when it can
/// be again, also when that is long after a lease would have ended: a place in a line has no end of
/// its own.
async fn dropped_while_waiting_in_a_long_outage_is_undone(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let lock = mutex(&locker, &options.wait_forever());
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    let waiter = tokio::spawn(async move { lock.acquire().await });
    client.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    switch.set(Operation::Release, Fault::Fail);
    waiter.abort();
    assert!(waiter.await.is_err(), "granted while taken");
    // The outage is longer than the lease.
    tokio::time::sleep(ttl * 2).await;
    wait_for_count(&switch, Operation::Release, 2).await;
    switch.set(Operation::Release, Fault::Pass);
    client.until(&held.name, "nobody waits", |view| view.waiting == 0).await;
    drop(locker);
}

/// P5: a waiter that is dropped at any moment of a hand-over leaves the lock free.
async fn dropped_during_the_hand_over_is_undone(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let lock: Mutex = mutex(&locker, &long_lease(&arena));
    let mut dice = arena.seed.dice();
    for _ in 0..20 {
        let held = client.take(client.waiting_request(&name("a"))).await;
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        client.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
        let giver = tokio::spawn({
            let (client, held) = (client.clone(), held.clone());
            async move { client.release(&held).await }
        });
        tokio::time::sleep(dice.time_below(Duration::from_millis(3))).await;
        waiter.abort();
        // A guard that came in time is dropped with the task's result.
        let _ = waiter.await;
        finish(giver).await;
        take_soon(&client, Moment::now()).await;
    }
}
