//! An operator can take a lock away, and its holder is told.

use lockfast_core::{
    AcquireOutcome, AcquireRequest, ErrorKind, Feature, Fence, LossCause, Mode, ReleaseOutcome,
    RenewOutcome, RevokeOutcome, Wait,
};

use crate::arena::{Arena, GRACE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "revoke",
    source: include_str!("revoke.rs"),
    cases: &[
        Case::new("is_told_to_the_holder", |arena| Box::pin(is_told_to_the_holder(arena))),
        Case::new("is_told_to_a_holder_that_asks_again", |arena| {
            Box::pin(is_told_to_a_holder_that_asks_again(arena))
        }),
        Case::new("of_another_fence_does_nothing", |arena| {
            Box::pin(of_another_fence_does_nothing(arena))
        }),
        Case::new("of_a_free_lock_is_not_held", |arena| {
            Box::pin(of_a_free_lock_is_not_held(arena))
        }),
        Case::new("lets_the_next_in", |arena| Box::pin(lets_the_next_in(arena))),
        Case::new("takes_it_from_all_holders", |arena| Box::pin(takes_it_from_all_holders(arena)))
            .using(&[Feature::Shared]),
    ],
};

/// P3: a holder whose lock was taken away is told at once or at its next renewal, with the
/// operator's reason, and has it no more.
async fn is_told_to_the_holder(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let outcome = second.revoke(&held.name, None).await;
    let RevokeOutcome::Revoked(views) = outcome else {
        panic!("it was held: {outcome:?}");
    };
    assert_eq!(views.len(), 1, "{views:?}");
    assert_eq!(views[0].fence, Some(held.fence));
    let pushed = first.loss_of(held.holder, GRACE).await;
    let renewed = first.renew_long(&held).await;
    let RenewOutcome::Lost(found) = renewed else {
        panic!("renewed, although taken away");
    };
    let told = pushed.unwrap_or(found);
    let expected = LossCause::Revoked { reason: "the case says so".into() };
    assert_eq!(told, expected);
    assert_eq!(first.release(&held).await, ReleaseOutcome::NotHeld);
}

/// P7 (B59): a holder whose lock was taken away and that repeats its request, as one does that has
/// not heard the first answer, is told so with the reason, or is granted it anew with a higher fence.
async fn is_told_to_a_holder_that_asks_again(arena: Arena) {
    let [first, second] = arena.clients().await;
    for wait in [Wait::No, Wait::Forever] {
        let request = AcquireRequest { wait, ..first.request(&name(&format!("a {wait:?}"))) };
        let held = first.take(request.clone()).await;
        second.revoke(&held.name, None).await;
        let error = match first.backend.acquire(request).await {
            Err(error) => error,
            Ok(AcquireOutcome::Granted(grant)) if grant.fence.get() > held.fence.get() => continue,
            Ok(outcome) => panic!("{outcome:?} after fence {:?} was taken away", held.fence),
        };
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        let expected = LossCause::Revoked { reason: "the case says so".into() };
        assert_eq!(error.loss(), Some(&expected), "{error}");
        let view = second.view(&held.name).await;
        assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
    }
}

/// P8: an operator who expects another fence than the holder's takes nothing away.
async fn of_another_fence_does_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let other = Fence::new(held.fence.get() + 1).expect("below the limit");
    let outcome = second.revoke(&held.name, Some(other)).await;
    let RevokeOutcome::OtherFence(views) = outcome else {
        panic!("another fence was expected: {outcome:?}");
    };
    assert_eq!(views[0].fence, Some(held.fence), "{views:?}");
    let renewed = first.renew_long(&held).await;
    assert!(matches!(renewed, RenewOutcome::Renewed), "{renewed:?}");
    let outcome = second.revoke(&held.name, Some(held.fence)).await;
    assert!(matches!(outcome, RevokeOutcome::Revoked(_)), "{outcome:?}");
    second.take(second.request(&held.name)).await;
}

/// P11: taking away what nobody has says so.
async fn of_a_free_lock_is_not_held(arena: Arena) {
    let client = arena.client().await;
    let fence = Fence::new(7).expect("a fence");
    for expected in [None, Some(fence)] {
        let outcome = client.revoke(&name("a"), expected).await;
        assert!(matches!(outcome, RevokeOutcome::NotHeld), "{outcome:?}");
    }
}

/// P10: the next waiter gets what was taken away, and the former holder cannot release it.
async fn lets_the_next_in(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    first.revoke(&held.name, Some(held.fence)).await;
    let next = finish(waiter).await;
    assert_eq!(first.release(&held).await, ReleaseOutcome::NotHeld);
    let view = first.view(&held.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(next.fence));
}

/// P3: a shared lock is taken away from all who hold it.
async fn takes_it_from_all_holders(arena: Arena) {
    let [first, second] = arena.clients().await;
    let reading = |client: &crate::arena::Client| AcquireRequest {
        mode: Mode::Shared,
        ..client.request(&name("a"))
    };
    let one = first.take(reading(&first)).await;
    let two = second.take(reading(&second)).await;
    let outcome = first.revoke(&one.name, None).await;
    let RevokeOutcome::Revoked(views) = outcome else {
        panic!("it was held: {outcome:?}");
    };
    assert_eq!(views.len(), 2, "{views:?}");
    for (client, held) in [(&first, &one), (&second, &two)] {
        let renewed = client.renew_long(held).await;
        assert!(matches!(renewed, RenewOutcome::Lost(_)), "{renewed:?}");
    }
    first.take(first.request(&one.name)).await;
}
