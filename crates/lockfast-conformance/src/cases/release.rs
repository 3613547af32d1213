//! Releasing frees what the holder has, and nothing else.

use std::time::Duration;

use lockfast_core::{AcquireRequest, Feature, ReleaseOutcome};

use crate::arena::{Arena, GRACE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;

pub(super) const GROUP: Group = Group {
    name: "release",
    source: include_str!("release.rs"),
    cases: &[
        Case::new("frees_the_lock", |arena| Box::pin(frees_the_lock(arena))),
        Case::new("by_another_holder_changes_nothing", |arena| {
            Box::pin(by_another_holder_changes_nothing(arena))
        }),
        Case::new("of_nothing_is_not_held", |arena| Box::pin(of_nothing_is_not_held(arena))),
        Case::new("after_expiry_does_not_free_the_next", |arena| {
            Box::pin(after_expiry_does_not_free_the_next(arena))
        }),
        Case::new("grants_the_next_in_the_same_step", |arena| {
            Box::pin(grants_the_next_in_the_same_step(arena))
        }),
        Case::new("removes_a_waiting_claim", |arena| Box::pin(removes_a_waiting_claim(arena))),
        Case::new("works_from_any_connection", |arena| Box::pin(works_from_any_connection(arena))),
        Case::new("of_a_detached_lease_is_asked_for", |arena| {
            Box::pin(of_a_detached_lease_is_asked_for(arena))
        })
        .using(&[Feature::Detached]),
    ],
};

/// P6: a release is answered with what happened, and the lock is free by then.
async fn frees_the_lock(arena: Arena) {
    let [first, second] = arena.clients().await;
    for _ in 0..10 {
        let held = first.take(first.request(&name("a"))).await;
        assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
        let view = second.view(&held.name).await;
        assert!(view.holders.is_empty(), "{view:?}");
        let next = second.take(second.request(&held.name)).await;
        assert_eq!(second.release(&next).await, ReleaseOutcome::Released);
    }
}

/// P8: whoever is not the holder cannot release the lock, from whichever connection.
async fn by_another_holder_changes_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    for client in [&first, &second] {
        let outcome = client.release_of(&held.name, client.holder()).await;
        assert_eq!(outcome, ReleaseOutcome::NotHeld);
    }
    second.be_refused(second.request(&held.name)).await;
    assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
}

/// P8: releasing what nobody has is no error and makes nothing.
async fn of_nothing_is_not_held(arena: Arena) {
    let client = arena.client().await;
    let outcome = client.release_of(&name("a"), client.holder()).await;
    assert_eq!(outcome, ReleaseOutcome::NotHeld);
    assert!(client.list("", None, 10).await.is_empty());
}

/// P8: a holder that is too late does not release the lock of the next.
async fn after_expiry_does_not_free_the_next(arena: Arena) {
    let [first, second] = arena.clients().await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("a")) };
    let lapsed = first.take(request).await;
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    assert_eq!(first.release(&lapsed).await, ReleaseOutcome::NotHeld);
    let view = first.view(&lapsed.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(next.fence));
}

/// P10: when a release is answered, the next waiter already has the lock: nobody can come
/// between.
async fn grants_the_next_in_the_same_step(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    for _ in 0..5 {
        let held = first.take(first.request(&name("a"))).await;
        let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
        first.release(&held).await;
        third.be_refused(third.request(&held.name)).await;
        let next = finish(waiter).await;
        second.release(&next).await;
    }
}

/// P5: releasing for a holder that still waits removes its claim.
async fn removes_a_waiting_claim(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let holder = request.holder;
    let mut waiter = Stepper::new(second.backend.acquire(request));
    assert!(waiter.step().is_pending(), "the lock is taken");
    first.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    drop(waiter);
    let outcome = second.release_of(&held.name, holder).await;
    assert_eq!(outcome, ReleaseOutcome::NotHeld);
    assert_eq!(first.view(&held.name).await.waiting, 0);
    first.release(&held).await;
    let view = first.view(&held.name).await;
    assert!(view.holders.is_empty(), "{view:?}");
}

/// P8: the holder id decides, not the connection: another one that knows it can renew and
/// release.
async fn works_from_any_connection(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let outcome = second.renew_long(&held).await;
    assert!(matches!(outcome, lockfast_core::RenewOutcome::Renewed), "{outcome:?}");
    assert_eq!(second.release(&held).await, ReleaseOutcome::Released);
    second.take(second.request(&held.name)).await;
}

/// P9: a detached lease outlives the connection that asked for it; only a release or its ttl
/// ends it.
async fn of_a_detached_lease_is_asked_for(arena: Arena) {
    let [first, second] = arena.clients().await;
    let detached =
        |lock: &str, ttl| AcquireRequest { ttl, detached: true, ..first.request(&name(lock)) };
    let ttl = arena.ttl(arena.short_ttl() + Duration::from_millis(600));
    let kept = first.take(detached("kept", first.long_ttl())).await;
    let lapsing = first.take(detached("lapsing", ttl)).await;
    drop(first);
    // Long enough for a store to notice that the connection is gone.
    tokio::time::sleep(Duration::from_millis(300)).await;
    second.be_refused(second.request(&kept.name)).await;
    assert_eq!(second.release(&kept).await, ReleaseOutcome::Released);
    let next = finish(second.wait_for(second.waiting_request(&lapsing.name))).await;
    let early = lapsing.until.remaining(next.granted);
    assert!(early.is_zero(), "it ended {early:?} too early");
    let took = next.granted.since(lapsing.granted);
    assert!(took <= ttl + GRACE, "free only after {took:?}");
}
