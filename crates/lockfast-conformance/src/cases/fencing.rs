//! Every grant's fence is greater than every earlier grant's of the lock.

use std::time::Duration;

use lockfast_core::{AcquireRequest, Feature, Fence, Mode, RevokeOutcome};

use crate::arena::{Arena, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "fencing",
    source: include_str!("fencing.rs"),
    cases: &[
        Case::new("rises_across_release", |arena| Box::pin(rises_across_release(arena))),
        Case::new("rises_across_expiry", |arena| Box::pin(rises_across_expiry(arena))),
        Case::new("rises_across_revocation", |arena| Box::pin(rises_across_revocation(arena))),
        Case::new("rises_across_reconnection", |arena| Box::pin(rises_across_reconnection(arena))),
        Case::new("rises_in_hand_overs", |arena| Box::pin(rises_in_hand_overs(arena))),
        Case::new("is_shared_by_nobody", |arena| Box::pin(is_shared_by_nobody(arena)))
            .using(&[Feature::Shared]),
        Case::new("rises_above_the_floor", |arena| Box::pin(rises_above_the_floor(arena)))
            .using(&[Feature::Floor]),
        Case::new("never_wraps", |arena| Box::pin(never_wraps(arena))).using(&[Feature::Floor]),
    ],
};

/// P4: the fence after a release is higher, whichever connection asks.
async fn rises_across_release(arena: Arena) {
    let clients = arena.clients::<2>().await;
    let mut fences = Vec::new();
    for round in 0..10 {
        let client = &clients[round % 2];
        let held = client.take(client.request(&name("a"))).await;
        client.release(&held).await;
        fences.push(held.fence);
    }
    assert_rising(&fences);
}

/// P4: the fence after an expiry is higher.
async fn rises_across_expiry(arena: Arena) {
    let [first, second] = arena.clients().await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("a")) };
    let lapsed = first.take(request).await;
    let next = second.take(second.waiting_request(&name("a"))).await;
    assert_rising(&[lapsed.fence, next.fence]);
}

/// P4: the fence after an operator took the lock away is higher.
async fn rises_across_revocation(arena: Arena) {
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    let outcome = client.revoke(&held.name, None).await;
    assert!(matches!(outcome, RevokeOutcome::Revoked(_)), "{outcome:?}");
    let next = client.take(client.request(&held.name)).await;
    assert_rising(&[held.fence, next.fence]);
}

/// P4: the fence after every connection was closed and the store opened again is higher, also
/// for a lock that was idle meanwhile.
async fn rises_across_reconnection(arena: Arena) {
    let mut fences = Vec::new();
    for _ in 0..3 {
        let client = arena.client().await;
        let held = client.take(client.request(&name("a"))).await;
        fences.push(held.fence);
        client.release(&held).await;
        drop(client);
        // What a store closes in the background is given the time to be closed.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_rising(&fences);
}

/// P4: a waiter's fence is higher than that of the holder it waited for.
async fn rises_in_hand_overs(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut held = first.take(first.request(&name("a"))).await;
    let mut fences = vec![held.fence];
    for round in 0..6 {
        let (giver, taker) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let next = taker.queue_for(taker.waiting_request(&name("a"))).await;
        giver.release(&held).await;
        held = finish(next).await;
        fences.push(held.fence);
    }
    assert_rising(&fences);
}

/// P4: holders who share a lock have a fence each.
async fn is_shared_by_nobody(arena: Arena) {
    let clients = arena.clients::<2>().await;
    for mode in arena.modes(6).into_iter().filter(|mode| *mode != Mode::Exclusive) {
        let mut fences = Vec::new();
        for round in 0..6 {
            let client = &clients[round % 2];
            let lock = name(&format!("a {mode}"));
            let request = AcquireRequest { mode, ..client.request(&lock) };
            fences.push(client.take(request).await.fence);
        }
        assert_rising(&fences);
    }
}

/// P4: the fence is above the floor that the caller knows of, and stays so for the next.
async fn rises_above_the_floor(arena: Arena) {
    let client = arena.client().await;
    let lock = name("a");
    let first = client.take(client.request(&lock)).await;
    client.release(&first).await;
    let floor = Fence::new(first.fence.get() + 1_000_000).expect("below the limit");
    let request = AcquireRequest { floor: Some(floor), ..client.request(&lock) };
    let second = client.take(request).await;
    client.release(&second).await;
    let third = client.take(client.request(&lock)).await;
    assert_rising(&[first.fence, floor, second.fence, third.fence]);
}

/// P4: a floor that no fence can be above is refused, and leaves nothing behind.
async fn never_wraps(arena: Arena) {
    let client = arena.client().await;
    let lock = name("a");
    let request = AcquireRequest {
        floor: Some(Fence::new(Fence::LIMIT - 1).expect("the last fence")),
        ..client.request(&lock)
    };
    let outcome = client.backend.acquire(request).await;
    assert!(outcome.is_err(), "there is no higher fence: {outcome:?}");
    let view = client.view(&lock).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
    let other = client.take(client.request(&name("b"))).await;
    let next = client.take(client.request(&lock)).await;
    assert!(next.fence != other.fence, "{:?} twice", next.fence);
}

fn assert_rising(fences: &[Fence]) {
    let rising = fences.windows(2).all(|pair| pair[0].get() < pair[1].get());
    assert!(rising, "fences did not rise: {fences:?}");
}
