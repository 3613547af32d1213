//! A lock of N permits is held by N at once, never by more.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireRequest, ErrorKind, Feature, LockName, Mode, Moment, RenewOutcome, Wait,
};

use crate::arena::{Arena, Client, GRACE, finish, name};
use crate::case::{Case, Group};
use crate::history::{History, most_at_once};

pub(super) const GROUP: Group = Group {
    name: "permits",
    source: include_str!("permits.rs"),
    cases: &[
        Case::new("are_all_given_out", |arena| Box::pin(are_all_given_out(arena)))
            .using(&[Feature::Permits]),
        Case::new("are_never_more_than_the_limit", |arena| {
            Box::pin(are_never_more_than_the_limit(arena))
        })
        .using(&[Feature::Permits]),
        Case::new("have_one_limit", |arena| Box::pin(have_one_limit(arena)))
            .using(&[Feature::Permits]),
        Case::new("and_exclusive_holders_exclude_each_other", |arena| {
            Box::pin(and_exclusive_holders_exclude_each_other(arena))
        })
        .using(&[Feature::Permits]),
        Case::new("that_expire_let_the_next_in", |arena| {
            Box::pin(that_expire_let_the_next_in(arena))
        })
        .using(&[Feature::Permits]),
    ],
};

fn permit(client: &Client, lock: &LockName, limit: u32) -> AcquireRequest {
    AcquireRequest { mode: Mode::permit(limit).expect("a valid limit"), ..client.request(lock) }
}

/// P1: of N permits N can be held at once, the next is refused, and one that comes back lets
/// exactly one waiter in.
async fn are_all_given_out(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(first.take(permit(&first, &lock, 3)).await);
    }
    let refusal = second.be_refused(permit(&second, &lock, 3)).await;
    assert_eq!(refusal.lock.holders.len(), 3, "{refusal:?}");
    let waiting = || AcquireRequest { wait: Wait::Forever, ..permit(&second, &lock, 3) };
    let (next, last) = (second.queue_for(waiting()).await, second.queue_for(waiting()).await);
    first.release(&held[1]).await;
    finish(next).await;
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (3, 1), "{view:?}");
    first.release(&held[0]).await;
    finish(last).await;
}

/// P1: many tasks over several connections never hold more permits than there are.
async fn are_never_more_than_the_limit(arena: Arena) {
    const LIMIT: u32 = 3;
    let lock = name("a");
    let history = Arc::new(History::default());
    let mut tasks = Vec::new();
    for client in arena.clients::<3>().await {
        for _ in 0..4 {
            let (client, lock, history) = (client.clone(), lock.clone(), Arc::clone(&history));
            tasks.push(tokio::spawn(async move {
                for _ in 0..6 {
                    let request =
                        AcquireRequest { wait: Wait::Forever, ..permit(&client, &lock, LIMIT) };
                    let held = client.take(request).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    history.record(held.granted, held.fence, false);
                    client.release(&held).await;
                }
            }));
        }
    }
    for task in tasks {
        finish(task).await;
    }
    let most = most_at_once(&history.intervals());
    assert!(most <= LIMIT as usize, "{most} permits of {LIMIT} were held at once");
}

/// P11: who gives another limit than those who hold or wait is told that it conflicts.
async fn have_one_limit(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let held = first.take(permit(&first, &lock, 3)).await;
    for limit in [2, 4] {
        for wait in [Wait::No, Wait::Forever] {
            let request = AcquireRequest { wait, ..permit(&second, &lock, limit) };
            let error = second.backend.acquire(request).await.expect_err("another limit");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
    }
    let view = second.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
    first.release(&held).await;
}

/// P1: an exclusive holder and the holders of permits exclude each other.
async fn and_exclusive_holders_exclude_each_other(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let held = first.take(permit(&first, &lock, 2)).await;
    second.be_refused(second.request(&lock)).await;
    first.release(&held).await;
    let alone = second.take(second.request(&lock)).await;
    first.be_refused(permit(&first, &lock, 2)).await;
    second.release(&alone).await;
    first.take(permit(&first, &lock, 2)).await;
}

/// P9: a permit that nobody renews goes to the first who waits, within its ttl and one second, and
/// leaves those of the others as they are.
async fn that_expire_let_the_next_in(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let kept = first.take(permit(&first, &lock, 2)).await;
    let lapsing = first.take(permit(&first, &lock, 2)).await;
    let waiting = || AcquireRequest { wait: Wait::Forever, ..permit(&second, &lock, 2) };
    let (next, last) = (second.queue_for(waiting()).await, second.queue_for(waiting()).await);
    let (ttl, sent) = (arena.short_ttl(), Moment::now());
    let renewed = first.renew(&lapsing, ttl).await;
    assert!(matches!(renewed, RenewOutcome::Renewed), "{renewed:?}");
    let answered = Moment::now();
    let next = second.finish(&lock, next).await;
    let early = (sent + ttl).remaining(next.granted);
    assert!(early.is_zero(), "let in {early:?} before the permit had ended");
    let took = next.granted.since(answered);
    assert!(took <= ttl + GRACE, "let in only after {took:?} with a ttl of {ttl:?}");
    assert!(next.fence.get() > lapsing.fence.get(), "the fence did not rise");
    let view = second.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (2, 1), "{view:?}");
    let renewed = first.renew_long(&kept).await;
    assert!(matches!(renewed, RenewOutcome::Renewed), "the other permit is {renewed:?}");
    first.release(&kept).await;
    second.finish(&lock, last).await;
}
