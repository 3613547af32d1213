//! Holding a lock through the engine: kept as long as the guard lives, and given back after.

use std::time::Duration;

use lockfast::{ErrorKind, Feature, LeaseStatus, Moment, ReleaseOutcome, Released};

use super::{LONG_TTL, long_lease, mutex, short_lease};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

pub(super) const GROUP: Group = Group {
    name: "lease",
    source: include_str!("lease.rs"),
    cases: &[
        Case::new("is_kept_while_held", |arena| Box::pin(is_kept_while_held(arena))),
        Case::new("counts_from_before_the_request", |arena| {
            Box::pin(counts_from_before_the_request(arena))
        }),
        Case::new("of_a_waiter_may_be_as_long_as_any", |arena| {
            Box::pin(of_a_waiter_may_be_as_long_as_any(arena))
        }),
        Case::new("ends_with_its_guard", |arena| Box::pin(ends_with_its_guard(arena))),
        Case::new("is_given_back_once", |arena| Box::pin(is_given_back_once(arena))),
        Case::new("that_is_cut_off_ends_when_the_link_is_back", |arena| {
            Box::pin(that_is_cut_off_ends_when_the_link_is_back(arena))
        }),
        Case::new("is_shortened_at_once", |arena| Box::pin(is_shortened_at_once(arena))),
        Case::new("is_lengthened_by_the_store", |arena| {
            Box::pin(is_lengthened_by_the_store(arena))
        }),
        Case::new("that_nobody_keeps_is_kept_by_its_id", |arena| {
            Box::pin(that_nobody_keeps_is_kept_by_its_id(arena))
        })
        .using(&[Feature::Detached]),
    ],
};

/// P2: the keeper renews a lease for as long as its guard lives, with the same fence.
async fn is_kept_while_held(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let guard = mutex(&locker, &options).acquire().await.expect("a grant");
    let (fence, first_deadline) = (guard.fence(), guard.deadline());
    let start = Moment::now();
    while Moment::now().since(start) < ttl * 5 / 2 {
        let checked = guard.check().expect("it is kept");
        assert_eq!(checked.fence, fence);
        assert!(checked.remaining <= ttl, "{:?} of {ttl:?} left", checked.remaining);
        client.be_refused(client.request(&name("a"))).await;
        tokio::time::sleep(ttl / 20).await;
    }
    assert!(guard.deadline().since(first_deadline) >= ttl, "never renewed");
    guard.release().await.expect("an answer");
}

/// P2: the deadline counts from before the request was sent, less the margin for drift, so a
/// slow answer is paid by the holder.
async fn counts_from_before_the_request(arena: Arena) {
    let ttl = arena.ttl(Duration::from_secs(20));
    let slow = Duration::from_millis(300);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    switch.set(Operation::Acquire, Fault::DelayReply(slow));
    let guard = mutex(&locker, &long_lease(&arena).ttl(ttl)).acquire().await.expect("a grant");
    let returned = Moment::now();
    let margin = ttl / 100 + Duration::from_millis(2);
    let latest = returned.before(slow) + (ttl - margin);
    let excess = guard.deadline().since(latest);
    assert!(excess.is_zero(), "the deadline is {excess:?} too late");
}

/// P10 (B10): a store may hand a lock over for a moment only, and the keeper makes a whole lease
/// of it, however long that is.
async fn of_a_waiter_may_be_as_long_as_any(arena: Arena) {
    let ttl = arena.ttl(Duration::from_secs(3600));
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    let lock = mutex(&locker, &long_lease(&arena).ttl(ttl));
    let waiter = tokio::spawn(async move { lock.acquire().await });
    client.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    client.release(&held).await;
    let guard = finish(waiter).await.expect("a grant");
    let full = tokio::time::timeout(PATIENCE, guard.full()).await.expect("it does not stay brief");
    full.expect("it is kept");
    assert!(guard.is_full());
    assert!(guard.remaining() > ttl / 2, "{:?}", guard.remaining());
    let view = client.view(&held.name).await;
    assert!(view.holders[0].remaining > ttl / 2, "{view:?}");
    guard.release().await.expect("an answer");
}

/// P6 (B14): a release whose caller stops waiting goes on, and there is no second one beside it.
async fn is_given_back_once(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let client = arena.client().await;
    for fault in [Fault::Pass, Fault::DelayRequest(Duration::from_millis(50))] {
        let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
        switch.set(Operation::Release, fault);
        let before = switch.count(Operation::Release);
        let mut release = Stepper::new(Box::pin(guard.release()));
        // Where it is answered at once there is nothing left to drop.
        let _ = release.step();
        drop(release);
        client.until(&name("a"), "it is free", |view| view.holders.is_empty()).await;
        locker.settled().await;
        assert_eq!(switch.count(Operation::Release) - before, 1, "{fault:?}");
    }
}

/// P6: a guard that is released or dropped frees the lock, long before the ttl would.
async fn ends_with_its_guard(arena: Arena) {
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
    let lease = guard.lease().clone();
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    assert_eq!(lease.status(), LeaseStatus::Released);
    assert_eq!(lease.check().expect_err("given back").kind(), ErrorKind::NotHeld);
    let held = client.take(client.request(&name("a"))).await;
    client.release(&held).await;
    let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
    let start = Moment::now();
    drop(guard);
    assert!(Moment::now().since(start) < Duration::from_secs(1), "a drop has blocked");
    finish(client.wait_for(client.waiting_request(&name("a")))).await;
}

/// P6: a release that cannot reach the store says when the lock will be free, and the keeper
/// goes on trying.
async fn that_is_cut_off_ends_when_the_link_is_back(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let client = arena.client().await;
    let ttl = arena.ttl(LONG_TTL);
    let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
    switch.set_all(Fault::Fail);
    let released = guard.release().await.expect("an answer");
    let Released::Unknown { expires_in, .. } = released else {
        panic!("the store was out of reach: {released:?}");
    };
    assert!(expires_in <= ttl && expires_in > ttl / 2, "{expires_in:?}");
    client.be_refused(client.request(&name("a"))).await;
    switch.set_all(Fault::Pass);
    finish(client.wait_for(client.waiting_request(&name("a")))).await;
}

/// P2: a shorter ttl moves the deadline down before the store has answered, and the lease is lost
/// by then unless the store answers.
async fn is_shortened_at_once(arena: Arena) {
    let (ttl, _) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let guard = mutex(&locker, &long_lease(&arena)).acquire().await.expect("a grant");
    switch.set(Operation::Renew, Fault::Hang);
    let extending = tokio::spawn({
        let lease = guard.lease().clone();
        async move { lease.extend(ttl).await }
    });
    let start = Moment::now();
    while guard.check().is_ok_and(|checked| checked.remaining > ttl) {
        assert!(Moment::now().since(start) < PATIENCE, "the deadline stays");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let deadline = guard.deadline();
    finish(extending).await.expect_err("the store did not answer");
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    lost.expect("the lease is lost at its new deadline");
    assert!(deadline.has_passed(Moment::now()), "lost before its deadline");
}

/// P2: a longer ttl moves the deadline up once the store has agreed.
async fn is_lengthened_by_the_store(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let locker = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let guard = mutex(&locker, &options).acquire().await.expect("a grant");
    let longer = arena.ttl(ttl * 20);
    guard.extend(longer).await.expect("the store agrees");
    assert!(guard.remaining() > longer / 2, "{:?}", guard.remaining());
    let view = client.view(&name("a")).await;
    assert!(view.holders[0].remaining > longer / 2, "{view:?}");
    let error = guard.extend(Duration::from_nanos(1)).await.expect_err("too short");
    assert_eq!(error.kind(), ErrorKind::InvalidTtl, "{error}");
    guard.check().expect("still held");
}

/// P8: a detached lease is renewed and released by whoever knows its holder id, over another
/// connection, and by nobody else.
async fn that_nobody_keeps_is_kept_by_its_id(arena: Arena) {
    let first = arena.locker(&FaultSwitch::default()).await;
    let second = arena.locker(&FaultSwitch::default()).await;
    let lease = mutex(&first, &long_lease(&arena)).acquire_detached().await.expect("a grant");
    let stranger = arena.client().await.holder();
    let ttl = arena.ttl(Duration::from_secs(30));
    let error = second.renew_detached(&lease.name, stranger, ttl).await;
    let kind = error.expect_err("not the holder").kind();
    assert!(matches!(kind, ErrorKind::NotHeld | ErrorKind::Lost), "{kind:?}");
    let outcome = second.release_detached(&lease.name, stranger).await;
    assert_eq!(outcome.expect("an answer"), ReleaseOutcome::NotHeld);
    let sent = Moment::now();
    let deadline = second.renew_detached(&lease.name, lease.holder, ttl).await.expect("renewed");
    assert!(deadline.since(sent) <= ttl, "{:?}", deadline.since(sent));
    let outcome = second.release_detached(&lease.name, lease.holder).await;
    assert_eq!(outcome.expect("an answer"), ReleaseOutcome::Released);
}
