//! Nobody holds a lock beside somebody who has it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockfast::fence::Gate;
use lockfast_core::{AcquireRequest, Feature, FencingToken, LockName, Mode, Moment};
use tokio::task::JoinSet;

use crate::arena::{Arena, Client, name};
use crate::case::{Case, Group};
use crate::history::{History, assert_excluded};

pub(super) const GROUP: Group = Group {
    name: "exclusion",
    source: include_str!("exclusion.rs"),
    cases: &[
        Case::new("one_holder_at_a_time", |arena| Box::pin(one_holder_at_a_time(arena))),
        Case::new("readers_and_writers_exclude_each_other", |arena| {
            Box::pin(readers_and_writers_exclude_each_other(arena))
        })
        .using(&[Feature::Shared]),
        Case::new("a_paused_holder_cannot_write", |arena| {
            Box::pin(a_paused_holder_cannot_write(arena))
        }),
        Case::new("other_locks_are_not_in_the_way", |arena| {
            Box::pin(other_locks_are_not_in_the_way(arena))
        }),
    ],
};

const CLIENTS: usize = 4;
const TASKS_PER_CLIENT: u64 = 6;
const ROUNDS: u64 = 8;

/// P1: many tasks over several connections never hold an exclusive lock together, no update of a
/// counter that it guards is lost, and their fences rise in the order of their holds.
async fn one_holder_at_a_time(arena: Arena) {
    let lock = name("counter");
    let counter = Arc::new(AtomicU64::new(0));
    let history = Arc::new(History::default());
    let mut tasks = JoinSet::new();
    for client in arena.clients::<CLIENTS>().await {
        for _ in 0..TASKS_PER_CLIENT {
            let (client, lock) = (client.clone(), lock.clone());
            let (counter, history) = (Arc::clone(&counter), Arc::clone(&history));
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let held = client.take(client.waiting_request(&lock)).await;
                    // Not one step, so that a second holder would undo it.
                    let value = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(value + 1, Ordering::SeqCst);
                    history.record(held.granted, held.fence, true);
                    client.release(&held).await;
                }
            });
        }
    }
    join(tasks).await;
    assert_excluded(&history.intervals());
    let expected = CLIENTS as u64 * TASKS_PER_CLIENT * ROUNDS;
    assert_eq!(counter.load(Ordering::SeqCst), expected, "updates were lost");
}

/// P1: an exclusive holder is alone also among shared ones.
async fn readers_and_writers_exclude_each_other(arena: Arena) {
    let lock = name("document");
    let history = Arc::new(History::default());
    let mut tasks = JoinSet::new();
    for (at, client) in arena.clients::<CLIENTS>().await.into_iter().enumerate() {
        for task in 0..3 {
            let (client, lock) = (client.clone(), lock.clone());
            let history = Arc::clone(&history);
            let exclusive = (at + task) % 3 == 0;
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    read_or_write(&client, &lock, &history, exclusive).await;
                }
            });
        }
    }
    join(tasks).await;
    assert_excluded(&history.intervals());
}

async fn read_or_write(client: &Client, lock: &LockName, history: &History, exclusive: bool) {
    let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
    let request = AcquireRequest { mode, ..client.waiting_request(lock) };
    let held = client.take(request).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    history.record(held.granted, held.fence, exclusive);
    client.release(&held).await;
}

/// P4: a counter that checks the fence loses no acknowledged update, although holders go on
/// writing long after their leases have expired.
async fn a_paused_holder_cannot_write(arena: Arena) {
    let lock = name("account");
    let ttl = arena.short_ttl();
    let balance = Arc::new(Gate::new(&lock, 0_u64).expect("the name of a lock"));
    let mut tasks = JoinSet::new();
    for (at, client) in arena.clients::<3>().await.into_iter().enumerate() {
        let (lock, balance) = (lock.clone(), Arc::clone(&balance));
        tasks.spawn(async move {
            let mut acknowledged = 0;
            for round in 0..2 {
                let request = AcquireRequest { ttl, ..client.waiting_request(&lock) };
                let held = client.take(request).await;
                let token = FencingToken { lock: lock.clone(), fence: held.fence };
                let Ok(value) = balance.open(&token).map(|balance| *balance) else { continue };
                if (at + round) % 2 == 0 {
                    // Longer than the lease: somebody else writes meanwhile, or nobody wanted to.
                    tokio::time::sleep(ttl * 2).await;
                }
                if let Ok(mut balance) = balance.check(&token) {
                    *balance = value + 1;
                    acknowledged += 1;
                }
                client.release(&held).await;
            }
            acknowledged
        });
    }
    let mut acknowledged = 0;
    while let Some(count) = tasks.join_next().await {
        acknowledged += count.expect("no panic");
    }
    assert!(acknowledged > 0, "nobody could write");
    let balance = Arc::into_inner(balance).expect("all writers have ended").into_inner();
    assert_eq!(balance, acknowledged, "updates were lost");
}

/// P1: a lock that somebody holds is in nobody's way who wants another one.
async fn other_locks_are_not_in_the_way(arena: Arena) {
    let [first, second] = arena.clients().await;
    let start = Moment::now();
    let held = first.take(first.request(&name("left"))).await;
    let other = second.take(second.request(&name("right"))).await;
    second.be_refused(second.request(&held.name)).await;
    first.be_refused(first.request(&other.name)).await;
    first.release(&held).await;
    second.take(second.request(&held.name)).await;
    assert!(Moment::now().since(start) < Duration::from_secs(10));
}

async fn join(mut tasks: JoinSet<()>) {
    while let Some(outcome) = tasks.join_next().await {
        if let Err(error) = outcome {
            panic!("a task failed: {error}");
        }
    }
}
