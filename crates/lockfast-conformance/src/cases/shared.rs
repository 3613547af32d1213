//! Shared holders are together, exclusive ones alone, and neither kind starves the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast_core::{AcquireRequest, Feature, LockName, Mode, Moment, RenewOutcome};

use crate::arena::{Arena, Client, GRACE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "shared",
    source: include_str!("shared.rs"),
    cases: &[
        Case::new("holders_are_together", |arena| Box::pin(holders_are_together(arena)))
            .using(&[Feature::Shared]),
        Case::new("holders_wait_for_a_writer_that_waits", |arena| {
            Box::pin(holders_wait_for_a_writer_that_waits(arena))
        })
        .using(&[Feature::Shared]),
        Case::new("waiters_enter_together", |arena| Box::pin(waiters_enter_together(arena)))
            .using(&[Feature::Shared]),
        Case::new("holders_do_not_starve_a_writer", |arena| {
            Box::pin(holders_do_not_starve_a_writer(arena))
        })
        .using(&[Feature::Shared]),
        Case::new("holders_that_expire_let_a_writer_in", |arena| {
            Box::pin(holders_that_expire_let_a_writer_in(arena))
        })
        .using(&[Feature::Shared]),
    ],
};

fn reading(client: &Client, lock: &LockName) -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..client.request(lock) }
}

fn waiting_to_read(client: &Client, lock: &LockName) -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..client.waiting_request(lock) }
}

/// P1: many hold a shared lock at once; nobody gets it exclusively until the last has gone, and
/// nobody shares what is held exclusively.
async fn holders_are_together(arena: Arena) {
    let clients = arena.clients::<2>().await;
    let lock = name("a");
    let mut readers = Vec::new();
    for at in 0..5 {
        let client = &clients[at % 2];
        readers.push((client, client.take(reading(client, &lock)).await));
    }
    assert_eq!(clients[0].view(&lock).await.holders.len(), 5);
    for (client, held) in readers {
        clients[1].be_refused(clients[1].request(&lock)).await;
        client.release(&held).await;
    }
    let writer = clients[1].take(clients[1].request(&lock)).await;
    clients[0].be_refused(reading(&clients[0], &lock)).await;
    clients[1].release(&writer).await;
    clients[0].take(reading(&clients[0], &lock)).await;
}

/// P10: whoever wants to share the lock does not overtake a writer that waits.
async fn holders_wait_for_a_writer_that_waits(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let lock = name("a");
    let reader = first.take(reading(&first, &lock)).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    third.be_refused(reading(&third, &lock)).await;
    let late_reader = third.queue_for(waiting_to_read(&third, &lock)).await;
    first.release(&reader).await;
    let writing = finish(writer).await;
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 1), "{view:?}");
    second.release(&writing).await;
    finish(late_reader).await;
}

/// P10: when a writer goes, all who wait to share the lock enter together, up to the next writer.
async fn waiters_enter_together(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let lock = name("a");
    let writing = first.take(first.request(&lock)).await;
    let mut readers = Vec::new();
    for at in 0..4 {
        let client = if at % 2 == 0 { &second } else { &third };
        readers.push(client.queue_for(waiting_to_read(client, &lock)).await);
    }
    let last = first.queue_for(first.waiting_request(&lock)).await;
    first.release(&writing).await;
    let mut reading = Vec::new();
    for reader in readers {
        reading.push(finish(reader).await);
    }
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (4, 1), "{view:?}");
    for held in reading {
        second.release(&held).await;
    }
    finish(last).await;
}

/// P10: a writer gets in although there is a reader at every moment.
async fn holders_do_not_starve_a_writer(arena: Arena) {
    let clients = arena.clients::<2>().await;
    let lock = name("a");
    let written = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for at in 0..4_u64 {
        let (client, lock) = (clients[0].clone(), lock.clone());
        let written = Arc::clone(&written);
        readers.push(tokio::spawn(async move {
            while !written.load(Ordering::SeqCst) {
                let held = client.take(waiting_to_read(&client, &lock)).await;
                tokio::time::sleep(Duration::from_millis(5 + 3 * at)).await;
                client.release(&held).await;
            }
        }));
    }
    clients[1].until(&lock, "there are readers", |view| !view.holders.is_empty()).await;
    let writer = clients[1].wait_for(clients[1].waiting_request(&lock));
    let held = tokio::time::timeout(crate::arena::PATIENCE, writer).await;
    written.store(true, Ordering::SeqCst);
    let held = held.expect("the writer starves").expect("no panic");
    clients[1].release(&held).await;
    for reader in readers {
        finish(reader).await;
    }
}

/// P9 (B191): a writer that waits gets in when the last of those who share the lock has not renewed its
/// lease, within its ttl and one second, also when one whose lease lasts longer has left before.
async fn holders_that_expire_let_a_writer_in(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let released = first.take(reading(&first, &lock)).await;
    let lapsing = first.take(reading(&first, &lock)).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    let (ttl, sent) = (arena.short_ttl(), Moment::now());
    let renewed = first.renew(&lapsing, ttl).await;
    assert!(matches!(renewed, RenewOutcome::Renewed), "{renewed:?}");
    let answered = Moment::now();
    first.release(&released).await;
    let writing = second.finish(&lock, writer).await;
    let early = (sent + ttl).remaining(writing.granted);
    assert!(early.is_zero(), "let in {early:?} before the last lease had ended");
    let took = writing.granted.since(answered);
    assert!(took <= ttl + GRACE, "let in only after {took:?} with a ttl of {ttl:?}");
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
}
