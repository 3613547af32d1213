//! A holder never believes in its lease for longer than the store keeps it, and the store does
//! not keep it for much longer.

use std::task::Poll;
use std::time::Duration;

use lockfast_core::{AcquireOutcome, AcquireRequest, Moment, RenewOutcome, Result};

use crate::arena::{Arena, Client, GRACE, Held, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;

pub(super) const GROUP: Group = Group {
    name: "deadline",
    source: include_str!("deadline.rs"),
    cases: &[
        Case::new("starts_before_the_request", |arena| Box::pin(starts_before_the_request(arena))),
        Case::new("of_a_waiter_starts_before_it_hears", |arena| {
            Box::pin(of_a_waiter_starts_before_it_hears(arena))
        }),
        Case::new("is_not_after_the_store_lets_go", |arena| {
            Box::pin(is_not_after_the_store_lets_go(arena))
        }),
        Case::new("of_a_waiter_is_not_after_the_store_lets_go", |arena| {
            Box::pin(of_a_waiter_is_not_after_the_store_lets_go(arena))
        }),
        Case::new("frees_the_lock", |arena| Box::pin(frees_the_lock(arena))),
        Case::new("starts_again_with_a_renewal", |arena| {
            Box::pin(starts_again_with_a_renewal(arena))
        }),
        Case::new("comes_sooner_with_a_shorter_ttl", |arena| {
            Box::pin(comes_sooner_with_a_shorter_ttl(arena))
        }),
        Case::new("starts_again_with_a_repetition", |arena| {
            Box::pin(starts_again_with_a_repetition(arena))
        }),
    ],
};

/// A lease long enough for a busy machine to act while it lasts.
const UNHURRIED_TTL: Duration = Duration::from_secs(2);

/// P2: the deadline of a grant counts from before the store began to count, however late its
/// answer is read.
async fn starts_before_the_request(arena: Arena) {
    let [client, observer] = arena.clients().await;
    let before = Moment::now();
    let mut stepper = Stepper::new(client.backend.acquire(client.request(&name("a"))));
    let answer = match stepper.step() {
        Poll::Ready(answer) => answer,
        Poll::Pending => read_late(stepper, &observer).await,
    };
    let AcquireOutcome::Granted(grant) = answer.expect("an answer") else {
        panic!("not granted, although free");
    };
    assert!(grant.from.has_passed(Moment::now()), "it counts from the future");
    // A store may take the moment a little before the call, but not in the distant past.
    let age = before.since(grant.from);
    assert!(age < Duration::from_secs(1), "the ttl starts {age:?} before the call");
}

/// P2: the deadline of a waiter counts from before it was granted, however late it hears.
async fn of_a_waiter_starts_before_it_hears(arena: Arena) {
    let [first, second, observer] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let mut waiter = Stepper::new(second.backend.acquire(second.waiting_request(&name("a"))));
    assert!(waiter.step().is_pending(), "the lock is taken");
    observer.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    first.release(&held).await;
    let answer = read_late(waiter, &observer).await;
    assert!(matches!(answer, Ok(AcquireOutcome::Granted(_))), "{answer:?}");
}

/// Reads the answer of a request only long after the lock was seen to be held: the grant must not
/// count from later than that.
async fn read_late(
    mut request: Stepper<'_, Result<AcquireOutcome>>,
    observer: &Client,
) -> Result<AcquireOutcome> {
    let start = Moment::now();
    let is_held = async || !observer.view(&name("a")).await.holders.is_empty();
    loop {
        let was_woken = request.is_woken();
        if is_held().await {
            break;
        }
        // An answer that was there before the look would have shown: the future must be polled to
        // get there.
        if was_woken && let Poll::Ready(answer) = request.step() {
            let is_granted = matches!(answer, Ok(AcquireOutcome::Granted(_)));
            assert!(!is_granted || is_held().await, "granted, but nobody is seen to hold it");
            return answer;
        }
        assert!(Moment::now().since(start) < PATIENCE, "nobody was ever seen to hold it");
    }
    let seen = Moment::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = request.finish_within(PATIENCE).await.expect("an answer");
    let Ok(AcquireOutcome::Granted(grant)) = &answer else {
        panic!("held, but the answer is {answer:?}");
    };
    assert!(
        grant.from.has_passed(seen),
        "the ttl is counted from {:?} after the lock was seen to be held",
        grant.from.since(seen)
    );
    answer
}

/// P2: no second holder gets in before `Grant::from` and the ttl have passed.
async fn is_not_after_the_store_lets_go(arena: Arena) {
    let [first, second] = arena.clients().await;
    for _ in 0..3 {
        let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("a")) };
        let held = first.take(request).await;
        let next = second.take(second.waiting_request(&name("a"))).await;
        assert_not_before(next.granted, held.until);
        second.release(&next).await;
    }
}

/// P2: the same for a holder that had waited.
async fn of_a_waiter_is_not_after_the_store_lets_go(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..second.waiting_request(&name("a")) };
    let waiter = second.queue_for(request).await;
    let last = third.queue_for(third.waiting_request(&name("a"))).await;
    first.release(&held).await;
    let lapsed = finish(waiter).await;
    let next = finish(last).await;
    assert_not_before(next.granted, lapsed.until);
}

/// P9: a lease that nobody renews is over within its ttl and one second, and those who wait get
/// in by themselves.
async fn frees_the_lock(arena: Arena) {
    let [first, second] = arena.clients().await;
    let ttl = arena.short_ttl();
    let lapsed = lapse(&first, ttl).await;
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    let took = next.granted.since(lapsed.granted);
    assert!(took <= ttl + GRACE, "free only after {took:?} with a ttl of {ttl:?}");
    let view = second.view(&name("a")).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
}

async fn lapse(client: &Client, ttl: Duration) -> Held {
    let request = AcquireRequest { ttl, ..client.request(&name("a")) };
    client.take(request).await
}

/// P2: a renewal lets the ttl begin again, from when it is sent.
async fn starts_again_with_a_renewal(arena: Arena) {
    let [first, second] = arena.clients().await;
    let ttl = arena.ttl(UNHURRIED_TTL);
    let held = lapse(&first, ttl).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    tokio::time::sleep(ttl / 4).await;
    let sent = Moment::now();
    let outcome = first.renew(&held, ttl).await;
    assert!(matches!(outcome, RenewOutcome::Renewed), "{outcome:?}");
    let answered = Moment::now();
    let next = finish(waiter).await;
    assert_not_before(next.granted, sent + ttl);
    let took = next.granted.since(answered);
    assert!(took <= ttl + GRACE, "free only {took:?} after a renewal for {ttl:?}");
}

/// P2: a renewal with a shorter ttl lets the lease end sooner.
async fn comes_sooner_with_a_shorter_ttl(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = lapse(&first, first.long_ttl()).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    let sent = Moment::now();
    let outcome = first.renew(&held, arena.short_ttl()).await;
    assert!(matches!(outcome, RenewOutcome::Renewed), "{outcome:?}");
    let answered = Moment::now();
    let next = finish(waiter).await;
    assert_not_before(next.granted, sent + arena.short_ttl());
    let took = next.granted.since(answered);
    assert!(took <= arena.short_ttl() + GRACE, "free only after {took:?}");
}

/// P7: a repeated acquisition lets the ttl begin again.
async fn starts_again_with_a_repetition(arena: Arena) {
    let [first, second] = arena.clients().await;
    let ttl = arena.ttl(UNHURRIED_TTL);
    let request = AcquireRequest { ttl, ..first.request(&name("a")) };
    let held = first.take(request.clone()).await;
    tokio::time::sleep(ttl / 4).await;
    let again = first.take(request).await;
    assert_eq!(again.fence, held.fence, "the same holder's lease had not ended");
    let next = finish(second.wait_for(second.waiting_request(&name("a")))).await;
    assert_not_before(next.granted, again.until);
}

#[track_caller]
fn assert_not_before(granted: Moment, bound: Moment) {
    let early = bound.remaining(granted);
    assert!(early.is_zero(), "let in {early:?} before the holder's lease had ended");
}
