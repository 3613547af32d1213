//! A request that is dropped, at whichever await point, leaves nothing once its holder was
//! released.

use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Feature, HolderId, LockName, Moment, ReleaseRequest, Wait,
};

use crate::arena::{Arena, Client, finish, name, renewal};
use crate::case::{Case, Group};
use crate::stepper::{Left, Stepper, Sweep};

pub(super) const GROUP: Group = Group {
    name: "cancellation",
    source: include_str!("cancellation.rs"),
    cases: &[
        Case::new("of_an_acquisition_at_every_poll", |arena| {
            Box::pin(of_an_acquisition_at_every_poll(arena))
        }),
        Case::new("of_a_waiter_at_every_poll", |arena| Box::pin(of_a_waiter_at_every_poll(arena))),
        Case::new("of_a_waiter_that_was_just_granted", |arena| {
            Box::pin(of_a_waiter_that_was_just_granted(arena))
        }),
        Case::new("of_a_waiter_during_the_hand_over", |arena| {
            Box::pin(of_a_waiter_during_the_hand_over(arena))
        }),
        Case::new("of_a_waiter_that_asks_again", |arena| {
            Box::pin(of_a_waiter_that_asks_again(arena))
        }),
        Case::new("of_a_release_at_every_poll", |arena| {
            Box::pin(of_a_release_at_every_poll(arena))
        }),
        Case::new("of_a_renewal_at_every_poll", |arena| {
            Box::pin(of_a_renewal_at_every_poll(arena))
        }),
        Case::new("does_not_disturb_other_requests", |arena| {
            Box::pin(does_not_disturb_other_requests(arena))
        }),
        Case::new("works_outside_any_runtime", |arena| Box::pin(works_outside_any_runtime(arena))),
    ],
};

/// No answer of a store takes this long on an idle machine.
const QUIET: Duration = Duration::from_millis(200);

/// P5: an acquisition of a free lock that is dropped after any number of polls leaves the lock
/// free once its holder was released.
async fn of_an_acquisition_at_every_poll(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut sweep = Sweep::new(QUIET);
    loop {
        let request = first.waiting_request(&name("a"));
        let holder = request.holder;
        let Some(left) = sweep.advance(|| first.backend.acquire(request)).await else {
            break;
        };
        let polls = match left {
            Left::Pending { polls } => format!("dropped after {polls} polls"),
            Left::Ready(_) => "granted".into(),
        };
        assert_undone(&first, &second, &name("a"), holder, &polls).await;
    }
}

async fn assert_undone(
    first: &Client,
    second: &Client,
    lock: &LockName,
    holder: HolderId,
    story: &str,
) {
    first.release_of(lock, holder).await;
    let view = second.view(lock).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{story}: {view:?}");
    let other = second.take(second.request(lock)).await;
    second.release(&other).await;
}

/// P5: a waiter that is dropped after any number of polls has left the queue once its holder was
/// released, and does not get the lock later.
async fn of_a_waiter_at_every_poll(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let mut sweep = Sweep::new(QUIET);
    loop {
        let held = first.take(first.request(&name("a"))).await;
        let request = second.waiting_request(&name("a"));
        let holder = request.holder;
        let left = sweep.advance(|| second.backend.acquire(request)).await;
        if left.is_some() {
            second.release_of(&held.name, holder).await;
            assert_eq!(third.view(&held.name).await.waiting, 0);
        }
        first.release(&held).await;
        let other = third.take(third.request(&held.name)).await;
        third.release(&other).await;
        match left {
            None => break,
            Some(Left::Ready(answer)) => panic!("answered while taken: {answer:?}"),
            Some(Left::Pending { .. }) => {}
        }
    }
}

/// P5: a waiter that was granted the lock but dropped before it heard leaves it free once its
/// holder was released.
async fn of_a_waiter_that_was_just_granted(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    for _ in 0..5 {
        let held = first.take(first.request(&name("a"))).await;
        let request = second.waiting_request(&name("a"));
        let holder = request.holder;
        let mut waiter = Stepper::new(second.backend.acquire(request));
        assert!(waiter.step().is_pending(), "the lock is taken");
        third.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
        first.release(&held).await;
        drop(waiter);
        assert_undone(&second, &third, &held.name, holder, "granted and dropped").await;
    }
}

/// P5: a waiter that is dropped at any moment of a hand-over leaves the lock free once its holder
/// was released.
async fn of_a_waiter_during_the_hand_over(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let mut dice = arena.seed.dice();
    for _ in 0..25 {
        let held = first.take(first.request(&name("a"))).await;
        let request = second.waiting_request(&name("a"));
        let holder = request.holder;
        let waiter = second.queue_for(request).await;
        let giver = {
            let (first, held) = (first.clone(), held.clone());
            tokio::spawn(async move { first.release(&held).await })
        };
        tokio::time::sleep(dice.time_below(Duration::from_millis(3))).await;
        waiter.abort();
        // Only when the task has ended is its future dropped.
        let _ = waiter.await;
        let undo = second.release_of(&held.name, holder);
        let (_, _) = tokio::join!(undo, finish(giver));
        let view = third.view(&held.name).await;
        assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
        let other = third.take(third.request(&held.name)).await;
        third.release(&other).await;
    }
}

/// P1, P7: a waiter that is dropped and asked for again keeps what it is then granted (B57): whoever
/// drops a request repeats it or releases its holder, and nobody else does.
async fn of_a_waiter_that_asks_again(arena: Arena) {
    let [first, second] = arena.clients().await;
    for _ in 0..5 {
        let held = first.take(first.request(&name("a"))).await;
        let wait = Wait::Until(Moment::now() + 2 * QUIET);
        let request = AcquireRequest { wait, ..first.request(&name("a")) };
        let again = AcquireRequest { wait: Wait::No, ..request.clone() };
        let holder = request.holder;
        let mut waiter = Stepper::new(first.backend.acquire(request));
        assert!(waiter.step().is_pending(), "the lock is taken");
        second.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
        drop(waiter);
        let (_, answer) = tokio::join!(first.release(&held), first.backend.acquire(again));
        if let Ok(AcquireOutcome::Granted(grant)) = answer {
            // Longer than the dropped request would have waited.
            tokio::time::sleep(3 * QUIET).await;
            let view = second.view(&held.name).await;
            let fences: Vec<_> = view.holders.iter().map(|holder| holder.fence).collect();
            assert_eq!(fences, [Some(grant.fence)], "the lock was given back behind its holder");
        }
        first.release_of(&held.name, holder).await;
    }
}

/// P5: a release that is dropped after any number of polls can be repeated, and then the lock is
/// free.
async fn of_a_release_at_every_poll(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut sweep = Sweep::new(QUIET);
    loop {
        let held = first.take(first.request(&name("a"))).await;
        let request = ReleaseRequest { name: held.name.clone(), holder: held.holder };
        let left = sweep.advance(|| first.backend.release(request)).await;
        assert_undone(&first, &second, &held.name, held.holder, "release").await;
        if left.is_none() {
            break;
        }
    }
}

/// P5: a renewal that is dropped after any number of polls costs the holder nothing.
async fn of_a_renewal_at_every_poll(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let mut sweep = Sweep::new(QUIET);
    loop {
        let batch = vec![renewal(&held.name, held.holder, first.long_ttl())];
        let left = sweep.advance(|| first.backend.renew(batch)).await;
        let view = second.view(&held.name).await;
        assert_eq!(view.holders.len(), 1, "{view:?}");
        assert_eq!(view.holders[0].fence, Some(held.fence));
        if left.is_none() {
            break;
        }
    }
    assert_undone(&first, &second, &held.name, held.holder, "renewal").await;
}

/// P5: dropping some of many requests that are under way does not disturb the others.
async fn does_not_disturb_other_requests(arena: Arena) {
    let client = arena.client().await;
    let has_detached = arena.profile.lack_of(Feature::Detached).is_none();
    let mut dice = arena.seed.dice();
    for round in 0..4 {
        let mut kept = Vec::new();
        let mut dropped = Vec::new();
        for at in 0..40 {
            let request = AcquireRequest {
                detached: has_detached && at % 5 == 0,
                ..client.waiting_request(&name(&format!("lock {round} {at}")))
            };
            if at % 2 == 0 {
                kept.push(client.wait_for(request));
                continue;
            }
            let (lock, holder) = (request.name.clone(), request.holder);
            let mut stepper = Stepper::new(client.backend.acquire(request));
            for _ in 0..dice.below(3) {
                if stepper.step().is_ready() {
                    break;
                }
            }
            drop(stepper);
            dropped.push((lock, holder));
        }
        for (lock, holder) in dropped {
            client.release_of(&lock, holder).await;
            let held = client.take(client.request(&lock)).await;
            client.release(&held).await;
        }
        for task in kept {
            let held = finish(task).await;
            assert_eq!(client.release(&held).await, lockfast_core::ReleaseOutcome::Released);
        }
    }
    assert!(client.list("", None, 10).await.is_empty(), "something was left");
}

/// P3: a store's futures need no particular executor: they also make progress on a plain thread.
async fn works_outside_any_runtime(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let plain = {
        let (second, lock) = (second.clone(), held.name.clone());
        std::thread::spawn(move || {
            let request = second.waiting_request(&lock);
            let next = block_on(second.take(request));
            block_on(second.renew_long(&next));
            block_on(second.release(&next))
        })
    };
    first.until(&held.name, "somebody waits", |view| view.waiting == 1).await;
    first.release(&held).await;
    let outcome = tokio::task::spawn_blocking(move || plain.join());
    let outcome = finish(outcome).await.expect("no panic outside a runtime");
    assert_eq!(outcome, lockfast_core::ReleaseOutcome::Released);
}

/// The smallest executor there is.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
