//! Waiters stand in a queue: woken one at a time, in their order, and gone when they give up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{AcquireOutcome, LockView, Moment};

use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;

pub(super) const GROUP: Group = Group {
    name: "queue",
    source: include_str!("queue.rs"),
    cases: &[
        Case::new("is_first_come_first_served", |arena| {
            Box::pin(is_first_come_first_served(arena))
        }),
        Case::new("wakes_one_waiter_per_release", |arena| {
            Box::pin(wakes_one_waiter_per_release(arena))
        }),
        Case::new("skips_a_waiter_that_gave_up", |arena| {
            Box::pin(skips_a_waiter_that_gave_up(arena))
        }),
        Case::new("wakes_and_does_not_poll", |arena| Box::pin(wakes_and_does_not_poll(arena))),
    ],
};

/// P10: twenty waiters of several connections get the lock in the order in which they came.
async fn is_first_come_first_served(arena: Arena) {
    const WAITERS: usize = 20;
    let clients = arena.clients::<4>().await;
    let held = clients[0].take(clients[0].request(&name("a"))).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for waiter in 0..WAITERS {
        let client = clients[waiter % clients.len()].clone();
        let (request, served) = (client.waiting_request(&name("a")), Arc::clone(&served));
        tasks.push(tokio::spawn({
            let client = client.clone();
            async move {
                let held = client.take(request).await;
                served.lock().expect("no panic").push(waiter);
                client.release(&held).await;
            }
        }));
        client.until(&held.name, "one more waits", |view| view.waiting == waiter + 1).await;
    }
    clients[0].release(&held).await;
    for task in tasks {
        finish(task).await;
    }
    let served = served.lock().expect("no panic").clone();
    assert_eq!(served, (0..WAITERS).collect::<Vec<_>>());
}

/// P10: one release lets exactly one waiter in, and the others are not even woken.
async fn wakes_one_waiter_per_release(arena: Arena) {
    const WAITERS: usize = 10;
    let clients = arena.clients::<3>().await;
    let mut held = clients[0].take(clients[0].request(&name("a"))).await;
    let mut giver = &clients[0];
    let mut waiters = Vec::new();
    for at in 0..WAITERS {
        let client = &clients[at % clients.len()];
        let request = client.waiting_request(&name("a"));
        let holder = request.holder;
        let mut stepper = Stepper::new(client.backend.acquire(request));
        assert!(stepper.step().is_pending(), "the lock is taken");
        giver.until(&held.name, "one more waits", |view| view.waiting == at + 1).await;
        waiters.push((client, holder, stepper));
    }
    for round in 0..3 {
        for (_, _, stepper) in &mut waiters {
            while stepper.is_woken() {
                assert!(stepper.step().is_pending(), "granted while taken");
            }
        }
        giver.release(&held).await;
        // Long enough for a herd to show.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let woken: Vec<usize> = (0..waiters.len()).filter(|at| waiters[*at].2.is_woken()).collect();
        // A slow poll as the net may wake one or the other at any time, a herd wakes them all.
        assert!(woken.len() <= 2, "release {round} woke {} of {}", woken.len(), waiters.len());
        let mut granted = Vec::new();
        let start = Moment::now();
        while granted.is_empty() {
            assert!(Moment::now().since(start) <= PATIENCE, "nobody was let in");
            for (at, (_, _, stepper)) in waiters.iter_mut().enumerate() {
                if stepper.is_woken()
                    && let Poll::Ready(answer) = stepper.step()
                {
                    granted.push((at, answer.expect("an answer")));
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(granted.len(), 1, "{} waiters were let in", granted.len());
        let (at, outcome) = granted.remove(0);
        let AcquireOutcome::Granted(grant) = outcome else {
            panic!("refused, although it was to wait for ever");
        };
        let (client, holder, _) = waiters.remove(at);
        let view = client.view(&held.name).await;
        assert_eq!((view.holders.len(), view.waiting), (1, WAITERS - 1 - round), "{view:?}");
        giver = client;
        held = crate::arena::Held { holder, fence: grant.fence, ..held };
    }
}

/// P5: a waiter that gave up does not hold up those behind it, nor does one whose time ran out.
async fn skips_a_waiter_that_gave_up(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let holder = request.holder;
    let cancelled = second.queue_for(request).await;
    let until = lockfast_core::Wait::Until(Moment::now() + Duration::from_millis(300));
    let impatient = lockfast_core::AcquireRequest { wait: until, ..second.request(&name("a")) };
    let impatient = {
        let second = second.clone();
        tokio::spawn(async move { second.be_refused(impatient).await })
    };
    first.until(&held.name, "two wait", |view| view.waiting == 2 || impatient.is_finished()).await;
    let patient = third.wait_for(third.waiting_request(&name("a")));
    // The impatient one may go at any time: whether it had, is asked before each look.
    let had_gone = AtomicBool::new(false);
    let all_wait = |view: &LockView| {
        let had_gone = had_gone.swap(impatient.is_finished(), Ordering::Relaxed);
        view.waiting == 3 - usize::from(had_gone)
    };
    first.until(&held.name, "the patient one waits", all_wait).await;
    cancelled.abort();
    let _ = cancelled.await;
    second.release_of(&held.name, holder).await;
    finish(impatient).await;
    let view = first.view(&held.name).await;
    assert_eq!(view.waiting, 1, "{view:?}");
    first.release(&held).await;
    finish(patient).await;
}

/// P10: waiters are woken when their turn comes: half of the hand-overs take less than a poll
/// would.
async fn wakes_and_does_not_poll(arena: Arena) {
    const HAND_OVERS: usize = 15;
    let clients = arena.clients::<2>().await;
    let mut held = clients[0].take(clients[0].request(&name("a"))).await;
    let mut times = Vec::new();
    for round in 0..HAND_OVERS {
        let (giver, taker) = (&clients[round % 2], &clients[(round + 1) % 2]);
        let next = taker.queue_for(taker.waiting_request(&name("a"))).await;
        let sent = Moment::now();
        giver.release(&held).await;
        held = finish(next).await;
        times.push(held.granted.since(sent));
    }
    times.sort_unstable();
    let median = times[HAND_OVERS / 2];
    assert!(median < Duration::from_millis(250), "hand-overs took {times:?}");
}
