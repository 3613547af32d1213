//! The same request gives the same answer, so that a lost reply can be asked for again.

use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, ErrorKind, Feature, Mode, ReleaseOutcome, RenewOutcome,
};

use crate::arena::{Arena, finish, name};
use crate::case::{Case, Group};
use crate::stepper::{Left, Stepper, Sweep};

pub(super) const GROUP: Group = Group {
    name: "retry",
    source: include_str!("retry.rs"),
    cases: &[
        Case::new("gives_the_same_fence", |arena| Box::pin(gives_the_same_fence(arena))),
        Case::new("after_a_lost_reply_is_one_claim", |arena| {
            Box::pin(after_a_lost_reply_is_one_claim(arena))
        }),
        Case::new("of_a_waiter_is_one_claim", |arena| Box::pin(of_a_waiter_is_one_claim(arena))),
        Case::new("in_another_mode_is_refused", |arena| {
            Box::pin(in_another_mode_is_refused(arena))
        })
        .using(&[Feature::Shared]),
        Case::new("of_a_renewal_changes_nothing", |arena| {
            Box::pin(of_a_renewal_changes_nothing(arena))
        }),
        Case::new("of_a_release_frees_nobody_else", |arena| {
            Box::pin(of_a_release_frees_nobody_else(arena))
        }),
    ],
};

/// P7: a holder that asks twice is granted once, with one fence, and one release frees the lock.
async fn gives_the_same_fence(arena: Arena) {
    let [first, second] = arena.clients().await;
    for mode in arena.modes(2) {
        let lock = name(&format!("a {mode}"));
        let request = AcquireRequest { mode, ..first.waiting_request(&lock) };
        let held = first.take(request.clone()).await;
        let again = first.take(request).await;
        assert_eq!(held.fence, again.fence, "{mode}");
        let view = second.view(&lock).await;
        assert_eq!((view.holders.len(), view.waiting), (1, 0), "{mode}: {view:?}");
        assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
        second.take(second.request(&lock)).await;
    }
}

/// P7: a request whose reply was lost, at whichever poll, can be repeated: there is one grant
/// and one release frees it.
async fn after_a_lost_reply_is_one_claim(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut sweep = Sweep::new(Duration::from_millis(200));
    loop {
        let request = first.waiting_request(&name("a"));
        let Some(left) = sweep.advance(|| first.backend.acquire(request.clone())).await else {
            break;
        };
        let held = first.take(request).await;
        if let Left::Ready(answer) = left {
            let AcquireOutcome::Granted(grant) = answer.expect("an answer") else {
                panic!("not granted, although free");
            };
            assert_eq!(grant.fence, held.fence);
        }
        let view = second.view(&held.name).await;
        assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
        assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
        let other = second.take(second.request(&held.name)).await;
        second.release(&other).await;
    }
}

/// P7: a waiter that asks again has one place in the queue.
async fn of_a_waiter_is_one_claim(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let mut lost = Stepper::new(second.backend.acquire(request.clone()));
    assert!(lost.step().is_pending(), "the lock is taken");
    first.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    drop(lost);
    let waiter = second.wait_for(request);
    // Long enough for a second claim to show, had there been one.
    for _ in 0..20 {
        let view = first.view(&held.name).await;
        assert!(view.waiting <= 1, "{view:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.until(&held.name, "the repeated request waits", |view| view.waiting == 1).await;
    first.release(&held).await;
    let next = finish(waiter).await;
    assert_eq!(second.release(&next).await, ReleaseOutcome::Released);
    let view = first.view(&held.name).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
}

/// P7: a holder that has the lock and asks for it in another mode is told so, because waiting
/// for itself would never end; what it has stays.
async fn in_another_mode_is_refused(arena: Arena) {
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    for wait in [lockfast_core::Wait::No, lockfast_core::Wait::Forever] {
        let request = AcquireRequest {
            mode: Mode::Shared,
            holder: held.holder,
            wait,
            ..client.request(&held.name)
        };
        let error = client.backend.acquire(request).await.expect_err("it holds it exclusively");
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    }
    let view = client.view(&held.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(held.fence));
    assert_eq!(view.holders[0].mode, Mode::Exclusive);
    assert_eq!(client.release(&held).await, ReleaseOutcome::Released);
}

/// P7: a renewal that is repeated, in one batch or in two, is answered alike and changes neither
/// fence nor holder.
async fn of_a_renewal_changes_nothing(arena: Arena) {
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    let ttl = client.long_ttl();
    for _ in 0..2 {
        let batch = vec![crate::arena::renewal(&held.name, held.holder, ttl); 2];
        let answers = client.backend.renew(batch).await.expect("an answer");
        let renewed = answers.iter().filter(|answer| matches!(answer, RenewOutcome::Renewed));
        assert_eq!(renewed.count(), 2, "{answers:?}");
    }
    let view = client.view(&held.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(held.fence));
}

/// P7: a release that is repeated says that there is nothing to release, and frees nobody else's
/// lock.
async fn of_a_release_frees_nobody_else(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
    let next = finish(waiter).await;
    assert_eq!(first.release(&held).await, ReleaseOutcome::NotHeld);
    let view = first.view(&held.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(next.fence));
}
