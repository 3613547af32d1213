//! Renewing prolongs what is there and never makes anything.

use lockfast_core::{AcquireRequest, Moment, RenewOutcome};

use crate::arena::{Arena, Client, GRACE, Held, finish, name, renewal};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "renewal",
    source: include_str!("renewal.rs"),
    cases: &[
        Case::new("of_nothing_creates_nothing", |arena| {
            Box::pin(of_nothing_creates_nothing(arena))
        }),
        Case::new("after_release_creates_nothing", |arena| {
            Box::pin(after_release_creates_nothing(arena))
        }),
        Case::new("after_expiry_creates_nothing", |arena| {
            Box::pin(after_expiry_creates_nothing(arena))
        }),
        Case::new("of_a_waiting_claim_grants_nothing", |arena| {
            Box::pin(of_a_waiting_claim_grants_nothing(arena))
        }),
        Case::new("by_another_holder_changes_nothing", |arena| {
            Box::pin(by_another_holder_changes_nothing(arena))
        }),
        Case::new("of_a_batch_is_answered_in_order", |arena| {
            Box::pin(of_a_batch_is_answered_in_order(arena))
        }),
        Case::new("of_a_large_batch_keeps_all", |arena| {
            Box::pin(of_a_large_batch_keeps_all(arena))
        }),
    ],
};

/// P8: renewing a lease that never was answers that it is lost, and the lock stays free.
async fn of_nothing_creates_nothing(arena: Arena) {
    let client = arena.client().await;
    let never = Held {
        name: name("a"),
        holder: client.holder(),
        fence: lockfast_core::Fence::new(1).expect("a fence"),
        until: Moment::now(),
        granted: Moment::now(),
    };
    assert_lost_and_free(&client, &never).await;
    let answers = client.backend.renew(Vec::new()).await.expect("an answer");
    assert!(answers.is_empty(), "{answers:?}");
}

/// P8: renewing after the release answers that it is lost, and the lock stays free.
async fn after_release_creates_nothing(arena: Arena) {
    let client = arena.client().await;
    let held = client.take(client.request(&name("a"))).await;
    client.release(&held).await;
    assert_lost_and_free(&client, &held).await;
}

/// P8: renewing after the expiry answers that it is lost, and the lock stays free.
async fn after_expiry_creates_nothing(arena: Arena) {
    let client = arena.client().await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..client.request(&name("a")) };
    let held = client.take(request).await;
    // The store may take its grace; by then it must not know the lease any more.
    tokio::time::sleep(arena.short_ttl() + GRACE).await;
    assert_lost_and_free(&client, &held).await;
}

async fn assert_lost_and_free(client: &Client, held: &Held) {
    let outcome = client.renew_long(held).await;
    assert!(matches!(outcome, RenewOutcome::Lost(_)), "{outcome:?}");
    let view = client.view(&held.name).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
    let next = client.take(client.request(&held.name)).await;
    client.release(&next).await;
}

/// P8: renewing for somebody who still waits answers that it is lost and grants nothing.
async fn of_a_waiting_claim_grants_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let holder = request.holder;
    let waiter = second.queue_for(request).await;
    let claim = Held { holder, ..held.clone() };
    let outcome = second.renew_long(&claim).await;
    assert!(matches!(outcome, RenewOutcome::Lost(_)), "{outcome:?}");
    let view = first.view(&held.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(held.fence));
    first.release(&held).await;
    finish(waiter).await;
}

/// P8: whoever is not the holder cannot prolong its lease.
async fn by_another_holder_changes_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("a")) };
    let held = first.take(request).await;
    let other = Held { holder: second.holder(), ..held.clone() };
    let outcome = second.renew_long(&other).await;
    assert!(matches!(outcome, RenewOutcome::Lost(_)), "{outcome:?}");
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    let took = next.granted.since(held.granted);
    assert!(took <= arena.short_ttl() + GRACE, "prolonged to {took:?}");
}

/// P8: a lost lease in a batch does not disturb the others, and the answers are in the order of
/// the questions.
async fn of_a_batch_is_answered_in_order(arena: Arena) {
    let client = arena.client().await;
    let mut helds = Vec::new();
    for at in 0..5 {
        helds.push(client.take(client.request(&name(&format!("lock {at}")))).await);
    }
    client.release(&helds[1]).await;
    let stranger = Held { holder: client.holder(), ..helds[3].clone() };
    let asked = [&helds[1], &helds[4], &helds[0], &stranger, &helds[2], &helds[3]];
    let ttl = client.long_ttl();
    let batch = asked.iter().map(|held| renewal(&held.name, held.holder, ttl)).collect();
    let answers = client.backend.renew(batch).await.expect("an answer");
    let kept: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, RenewOutcome::Renewed)).collect();
    assert_eq!(kept, [false, true, true, false, true, true], "{answers:?}");
}

/// P8: a batch may be large.
async fn of_a_large_batch_keeps_all(arena: Arena) {
    const LEASES: usize = 600;
    let client = arena.client().await;
    let mut tasks = Vec::new();
    for at in 0..LEASES {
        tasks.push(client.wait_for(client.request(&name(&format!("lock {at}")))));
    }
    let mut batch = Vec::new();
    for task in tasks {
        let held = finish(task).await;
        batch.push(renewal(&held.name, held.holder, client.long_ttl()));
    }
    let answers = client.backend.renew(batch).await.expect("an answer");
    let kept = answers.iter().filter(|answer| matches!(answer, RenewOutcome::Renewed));
    assert_eq!((kept.count(), answers.len()), (LEASES, LEASES));
}
