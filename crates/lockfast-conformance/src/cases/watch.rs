//! Whoever watches sees what happens to the locks, in order.

use std::time::Duration;

use lockfast_core::capability::Order;
use lockfast_core::{
    AcquireRequest, EventStream, Feature, Fence, LockName, Moment, Wait, WatchKind,
};

use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "watch",
    source: include_str!("watch.rs"),
    cases: &[
        Case::new("tells_of_a_hand_over", |arena| Box::pin(tells_of_a_hand_over(arena)))
            .using(&[Feature::Events]),
        Case::new("tells_of_an_expiry", |arena| Box::pin(tells_of_an_expiry(arena)))
            .using(&[Feature::Events]),
        Case::new("tells_of_a_revocation", |arena| Box::pin(tells_of_a_revocation(arena)))
            .using(&[Feature::Events]),
        Case::new("tells_who_gave_up", |arena| Box::pin(tells_who_gave_up(arena)))
            .using(&[Feature::Events]),
    ],
};

/// What is seen of a lock: what happened, and the fence of whom it happened to.
type Seen = (WatchKind, Option<Fence>);

/// Reads events of one lock until as many as expected were seen, and compares. Where nobody stands
/// in line, whoever waits is not in one order with the others: nodes tell of it one by one.
async fn assert_events(
    arena: &Arena,
    events: &mut EventStream,
    lock: &LockName,
    expected: &[Seen],
) {
    let start = Moment::now();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let left = (start + PATIENCE).remaining(Moment::now());
        match tokio::time::timeout(left, events.next()).await {
            Ok(Some(event)) if event.name == *lock => seen.push((event.kind, event.fence)),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended after {seen:?}"),
            Err(_) => panic!("only {seen:?} was told, expected was {expected:?}"),
        }
    }
    let mut expected = expected.to_vec();
    if arena.profile.order == Order::None {
        let kind_of_waiter = |(kind, fence): &Seen| fence.is_none().then(|| kind.as_str());
        expected.sort_by_key(kind_of_waiter);
        seen.sort_by_key(kind_of_waiter);
    }
    assert_eq!(seen, expected);
}

/// P11: a hand-over is seen as queued, released and granted, with the fences, by every
/// connection.
async fn tells_of_a_hand_over(arena: Arena) {
    let [first, second, watcher] = arena.clients().await;
    let mut streams = [
        watcher.backend.watch().await.expect("a stream"),
        first.backend.watch().await.expect("a stream"),
    ];
    let held = first.take(first.request(&name("a"))).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    first.release(&held).await;
    let next = finish(waiter).await;
    second.release(&next).await;
    for stream in &mut streams {
        let expected = [
            (WatchKind::Granted, Some(held.fence)),
            (WatchKind::Queued, None),
            (WatchKind::Released, Some(held.fence)),
            (WatchKind::Granted, Some(next.fence)),
            (WatchKind::Released, Some(next.fence)),
        ];
        assert_events(&arena, stream, &held.name, &expected).await;
    }
}

/// P11: an expiry is seen with the fence that ended, although nobody waits.
async fn tells_of_an_expiry(arena: Arena) {
    let [first, watcher] = arena.clients().await;
    let mut events = watcher.backend.watch().await.expect("a stream");
    let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("a")) };
    let held = first.take(request).await;
    let expected = [(WatchKind::Granted, Some(held.fence)), (WatchKind::Expired, Some(held.fence))];
    assert_events(&arena, &mut events, &held.name, &expected).await;
}

/// P11: a revocation is seen with the fence that was taken away.
async fn tells_of_a_revocation(arena: Arena) {
    let [first, watcher] = arena.clients().await;
    let mut events = watcher.backend.watch().await.expect("a stream");
    let held = first.take(first.request(&name("a"))).await;
    watcher.revoke(&held.name, None).await;
    let expected = [(WatchKind::Granted, Some(held.fence)), (WatchKind::Revoked, Some(held.fence))];
    assert_events(&arena, &mut events, &held.name, &expected).await;
}

/// P11: a waiter that gave up, or whose time ran out, is seen to have gone.
async fn tells_who_gave_up(arena: Arena) {
    let [first, second, watcher] = arena.clients().await;
    let mut events = watcher.backend.watch().await.expect("a stream");
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let holder = request.holder;
    let cancelled = second.queue_for(request).await;
    cancelled.abort();
    let _ = cancelled.await;
    second.release_of(&held.name, holder).await;
    let impatient = AcquireRequest {
        wait: Wait::Until(Moment::now() + Duration::from_millis(100)),
        ..second.request(&name("a"))
    };
    second.be_refused(impatient).await;
    let expected = [
        (WatchKind::Granted, Some(held.fence)),
        (WatchKind::Queued, None),
        (WatchKind::Abandoned, None),
        (WatchKind::Queued, None),
        (WatchKind::Abandoned, None),
    ];
    assert_events(&arena, &mut events, &held.name, &expected).await;
}
