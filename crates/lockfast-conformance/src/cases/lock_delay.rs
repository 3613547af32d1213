//! The store keeps a lock for the lock-delay longer than its holder believes.

use std::time::Duration;

use lockfast_core::{AcquireRequest, Feature, Moment, RenewOutcome, RenewRequest};

use crate::arena::{Arena, GRACE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "lock_delay",
    source: include_str!("lock_delay.rs"),
    cases: &[
        Case::new("keeps_the_lock_after_expiry", |arena| {
            Box::pin(keeps_the_lock_after_expiry(arena))
        })
        .using(&[Feature::LockDelay]),
        Case::new("is_kept_by_renewals", |arena| Box::pin(is_kept_by_renewals(arena)))
            .using(&[Feature::LockDelay]),
        Case::new("does_not_matter_after_a_release", |arena| {
            Box::pin(does_not_matter_after_a_release(arena))
        })
        .using(&[Feature::LockDelay]),
    ],
};

const DELAY: Duration = Duration::from_millis(600);

/// P12: after an expiry the lock stays taken for the lock-delay, and then the next gets in within
/// a second.
async fn keeps_the_lock_after_expiry(arena: Arena) {
    let [first, second] = arena.clients().await;
    let ttl = arena.short_ttl();
    let request = AcquireRequest { ttl, lock_delay: DELAY, ..first.request(&name("a")) };
    let lapsed = first.take(request).await;
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    let early = (lapsed.until + DELAY).remaining(next.granted);
    assert!(early.is_zero(), "let in {early:?} before the lock-delay was over");
    let took = next.granted.since(lapsed.granted);
    assert!(took <= ttl + DELAY + GRACE, "free only after {took:?}");
}

/// P12: a renewal brings its lock-delay along.
async fn is_kept_by_renewals(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let sent = Moment::now();
    let renewal = RenewRequest {
        name: held.name.clone(),
        holder: held.holder,
        ttl: arena.short_ttl(),
        lock_delay: DELAY,
    };
    let answers = first.backend.renew(vec![renewal]).await.expect("an answer");
    assert!(matches!(answers[..], [RenewOutcome::Renewed]), "{answers:?}");
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    let early = (sent + arena.short_ttl() + DELAY).remaining(next.granted);
    assert!(early.is_zero(), "let in {early:?} before the lock-delay was over");
}

/// P12: after a release the lock is free at once, whatever its lock-delay.
async fn does_not_matter_after_a_release(arena: Arena) {
    let [first, second] = arena.clients().await;
    let request =
        AcquireRequest { lock_delay: Duration::from_secs(60), ..first.request(&name("a")) };
    let held = first.take(request).await;
    first.release(&held).await;
    second.take(second.request(&held.name)).await;
}
