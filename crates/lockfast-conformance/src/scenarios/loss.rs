//! A holder is told in time that it has lost its lease, whatever is blocked or broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::{ErrorKind, Lease, LeaseStatus, LossCause, Moment, Mutex, Released, blocking};

use super::{long_lease, mutex, short_lease};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

pub(super) const GROUP: Group = Group {
    name: "loss",
    source: include_str!("loss.rs"),
    cases: &[
        Case::new("is_told_with_the_only_thread_blocked", |arena| {
            Box::pin(is_told_with_the_only_thread_blocked(arena))
        }),
        Case::new("is_told_with_every_worker_blocked", |arena| {
            Box::pin(is_told_with_every_worker_blocked(arena))
        }),
        Case::new("does_not_come_from_a_blocked_executor", |arena| {
            Box::pin(does_not_come_from_a_blocked_executor(arena))
        }),
        Case::new("is_final", |arena| Box::pin(is_final(arena))),
        Case::new("comes_after_jeopardy", |arena| Box::pin(comes_after_jeopardy(arena))),
        Case::new("is_averted_when_the_store_is_back", |arena| {
            Box::pin(is_averted_when_the_store_is_back(arena))
        }),
        Case::new("stops_the_body_of_run", |arena| Box::pin(stops_the_body_of_run(arena))),
        Case::new("by_revocation_is_told_with_the_reason", |arena| {
            Box::pin(by_revocation_is_told_with_the_reason(arena))
        }),
        Case::new("before_its_guard_is_there_is_not_forgotten", |arena| {
            Box::pin(before_its_guard_is_there_is_not_forgotten(arena))
        }),
        Case::new("does_not_touch_the_next_holder", |arena| {
            Box::pin(does_not_touch_the_next_holder(arena))
        }),
    ],
};

/// The signal is due at the deadline; a busy machine may run the thread that notes it later.
const SCHEDULING: Duration = Duration::from_millis(400);

/// Watches a lease from a thread of its own, without any executor: `check` must say lost from the
/// deadline on, and whoever waits for the loss must be told soon after.
fn watch_from_a_thread(lease: Lease) -> std::thread::JoinHandle<Duration> {
    std::thread::spawn(move || {
        let waiting = blocking::Lease::from(lease.clone());
        let waiter = std::thread::spawn(move || {
            waiting.lost().expect("no executor is blocked");
            Moment::now()
        });
        let start = Moment::now();
        loop {
            let deadline = lease.deadline();
            let before = Moment::now();
            if deadline.has_passed(before) {
                assert!(
                    lease.check().is_err(),
                    "held {:?} after its deadline",
                    before.since(deadline)
                );
            }
            if waiter.is_finished() {
                return waiter.join().expect("no panic").since(deadline);
            }
            assert!(before.since(start) < PATIENCE, "the loss is never told");
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Cuts the link and blocks the thread that it runs on for much longer than the lease lasts.
async fn hold_and_block(lock: Mutex, switch: FaultSwitch, ttl: Duration) {
    let guard = lock.acquire().await.expect("a grant");
    switch.set_all(Fault::Hang);
    let watcher = watch_from_a_thread(guard.lease().clone());
    std::thread::sleep(ttl * 2);
    assert!(watcher.is_finished(), "not told while the executor is blocked");
    let late = watcher.join().expect("the watcher saw what it should");
    assert!(late <= SCHEDULING, "told {late:?} after the deadline");
    assert_eq!(guard.check().expect_err("it is lost").kind(), ErrorKind::Lost);
}

/// P3: the loss is told by the deadline although the store is out of reach and the executor's
/// only thread is blocked.
async fn is_told_with_the_only_thread_blocked(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let lock = mutex(&arena.locker(&switch).await, &options);
    let blocked = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(hold_and_block(lock, switch, ttl));
    });
    finish(blocked).await;
}

/// P3: the same with every worker of an executor of several threads blocked.
async fn is_told_with_every_worker_blocked(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let lock = mutex(&arena.locker(&switch).await, &options);
    let blocked = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let holder = runtime.spawn(hold_and_block(lock, switch, ttl));
        let idler = runtime.spawn(async move { std::thread::sleep(ttl * 3) });
        runtime.block_on(async {
            holder.await.expect("no panic");
            idler.await.expect("no panic");
        });
    });
    finish(blocked).await;
}

/// P3: a lease is kept although the caller's executor is blocked for much longer than it lasts.
async fn does_not_come_from_a_blocked_executor(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let lock = mutex(&arena.locker(&FaultSwitch::default()).await, &options);
    let blocked = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let guard = lock.acquire().await.expect("a grant");
            std::thread::sleep(ttl * 5 / 2);
            guard.check().expect("the keeper has renewed it");
            let released = guard.release().await.expect("an answer");
            assert!(matches!(released, Released::Released), "{released:?}");
        });
    });
    finish(blocked).await;
}

/// P3: a lost lease stays lost, says why, and has nothing to release; the next acquisition is a
/// new lease with a higher fence.
async fn is_final(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let guard = mutex(&locker, &options).acquire().await.expect("a grant");
    switch.set_all(Fault::Fail);
    let cause = tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is told");
    let LossCause::Expired { last_failure } = &cause else {
        panic!("it could not be renewed: {cause:?}");
    };
    assert!(last_failure.is_some(), "the failure is not named");
    switch.set_all(Fault::Pass);
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(guard.status(), LeaseStatus::Lost(cause.clone()));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(!guard.is_held());
    let fence = guard.fence();
    let released = guard.release().await.expect("an answer");
    assert!(matches!(&released, Released::AlreadyLost(why) if *why == cause), "{released:?}");
    let next = mutex(&locker, &options).acquire().await.expect("a grant");
    assert!(next.fence().get() > fence.get());
}

/// P3: when renewals fail, the lease is in jeopardy, says until when and why, and is lost at that
/// moment and not before.
async fn comes_after_jeopardy(arena: Arena) {
    let (_, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let guard = mutex(&arena.locker(&switch).await, &options).acquire().await.expect("a grant");
    switch.set(Operation::Renew, Fault::Fail);
    let until = wait_for_jeopardy(&guard).await;
    assert_eq!(until, guard.deadline());
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    let told = Moment::now();
    lost.expect("it is told");
    assert!(until.has_passed(told), "lost {:?} before its deadline", until.remaining(told));
    assert!(told.since(until) <= SCHEDULING, "told {:?} late", told.since(until));
}

async fn wait_for_jeopardy(lease: &Lease) -> Moment {
    let mut changes = lease.changes();
    loop {
        let change = tokio::time::timeout(PATIENCE, changes.next()).await;
        match change.expect("the failed renewal shows") {
            LeaseStatus::Jeopardy { until, failure } => {
                assert!(!failure.is_empty(), "the failure is not named");
                return until;
            }
            LeaseStatus::Lost(cause) => panic!("lost without jeopardy: {cause}"),
            _ => {}
        }
    }
}

/// P3: a lease in jeopardy is held again, with a later deadline, when a renewal succeeds in time.
async fn is_averted_when_the_store_is_back(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let ttl = arena.ttl(ttl * 3);
    let options = options.ttl(ttl);
    let switch = FaultSwitch::default();
    let guard = mutex(&arena.locker(&switch).await, &options).acquire().await.expect("a grant");
    let fence = guard.fence();
    switch.set(Operation::Renew, Fault::Fail);
    let until = wait_for_jeopardy(&guard).await;
    switch.set(Operation::Renew, Fault::Pass);
    let start = Moment::now();
    while guard.status() != LeaseStatus::Held {
        assert!(Moment::now().since(start) < ttl, "not held again: {:?}", guard.status());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(guard.deadline().since(until) > Duration::ZERO, "its deadline has not moved");
    assert_eq!(guard.check().expect("it is held").fence, fence);
}

/// P3: `run` drops its body where it stands when the lease is lost, and says so.
async fn stops_the_body_of_run(arena: Arena) {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (_, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let lock = mutex(&arena.locker(&switch).await, &options);
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = SetOnDrop(Arc::clone(&stopped));
    let running = lock.run(|_lease| async move {
        let _flag = flag;
        switch.set_all(Fault::Fail);
        std::future::pending::<()>().await;
    });
    let outcome = tokio::time::timeout(PATIENCE, running).await.expect("it ends");
    assert_eq!(outcome.expect_err("the lease was lost").kind(), ErrorKind::Lost);
    assert!(stopped.load(Ordering::SeqCst), "the body lives");
    let lock = mutex(&arena.locker(&FaultSwitch::default()).await, &long_lease(&arena));
    let value = lock.run(|lease| async move { lease.fence() }).await.expect("a value");
    assert!(value.get() > 0);
    let client = arena.client().await;
    client.take(client.request(&name("a"))).await;
}

/// P3: a holder whose lock was taken away by an operator is told so, with the reason, by its next
/// renewal at the latest.
async fn by_revocation_is_told_with_the_reason(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let locker = arena.locker(&FaultSwitch::default()).await;
    let operator = arena.locker(&FaultSwitch::default()).await;
    let guard = mutex(&locker, &options).acquire().await.expect("a grant");
    let revoked = operator.revoke_fence(guard.name(), guard.fence(), "it hangs").await;
    revoked.expect("an answer");
    let sent = Moment::now();
    let cause = tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is told");
    let took = Moment::now().since(sent);
    assert_eq!(cause, LossCause::Revoked { reason: "it hangs".into() });
    assert!(took <= ttl / 2 + SCHEDULING, "told after {took:?}");
}

/// P3 (B42): a lock that is taken away before its waiter is polled is lost from the beginning.
async fn before_its_guard_is_there_is_not_forgotten(arena: Arena) {
    let [first, operator] = arena.clients().await;
    let locker = arena.locker(&FaultSwitch::default()).await;
    let lock = mutex(&locker, &long_lease(&arena));
    let held = first.take(first.request(&name("a"))).await;
    let mut waiter = Stepper::new(Box::pin(lock.acquire()));
    while first.view(&held.name).await.waiting == 0 {
        assert!(waiter.step().is_pending(), "granted twice");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.release(&held).await;
    assert!(waiter.woken_within(PATIENCE).await, "it is not told of its turn");
    let view = first.view(&held.name).await;
    let fence = view.holders.first().and_then(|holder| holder.fence);
    operator.revoke(&held.name, fence).await;
    // The word that it is gone takes its way while nobody polls.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let Some(granted) = waiter.finish_within(PATIENCE).await else { panic!("no answer") };
    let cause = match granted {
        Ok(guard) => match guard.status() {
            LeaseStatus::Lost(cause) => cause,
            other => panic!("it says {other:?} although an operator took it away"),
        },
        Err(error) => error.loss().cloned().unwrap_or_else(|| panic!("{error}")),
    };
    assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
}

/// P8: a holder that lost its lease while cut off does not release or renew what the next holder
/// has.
async fn does_not_touch_the_next_holder(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let guard = mutex(&arena.locker(&switch).await, &options).acquire().await.expect("a grant");
    switch.set_all(Fault::Fail);
    let client = arena.client().await;
    let next = finish(client.wait_for(client.waiting_request(&name("a")))).await;
    guard.check().expect_err("another one has it");
    assert!(next.fence.get() > guard.fence().get());
    switch.set_all(Fault::Pass);
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::AlreadyLost(_)), "{released:?}");
    // What the keeper still does for the lost lease has the time to do harm.
    tokio::time::sleep(ttl / 2).await;
    let view = client.view(&next.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(next.fence));
}
