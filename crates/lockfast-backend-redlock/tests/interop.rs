//! Lockfast and node-redlock 4.2 and 5 take the same locks on the same three servers and keep
//! each other out, both ways round.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::foreign;
use kit::{Nodes, bounded, connect, hold, hold_detached, hold_on_all, refusal, ttl};
use lockfast::{Moment, Released};
use lockfast_faults::lateness::Lateness;

const NAME: &str = "shared-with-others";
const LONG: Duration = Duration::from_secs(60);
/// What a wake-up and a round trip may take on a busy machine.
const SLACK: Duration = Duration::from_secs(1);
const POLL_MAX: Duration = Duration::from_secs(1);

/// P1: a lock that Lockfast holds is taken for the other, whose own waiting ends with its release.
async fn lockfast_holds_and_the_other_waits(version: &str) {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let mut other = foreign::start(version, &nodes);
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(LONG)).await;
    assert!(!other.try_acquire(NAME, LONG));
    other.begin_acquire(NAME, LONG, LONG);
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(other.was_granted());
    refusal(&locker, NAME).await;
    assert!(other.release());
}

/// P1, P10, P11: a lock that the other holds is taken for Lockfast, whose refusal says that the
/// holder is unknown; a waiter gets in soon after the other's release, which calls nobody.
async fn the_other_holds_and_lockfast_waits(version: &str) {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let mut other = foreign::start(version, &nodes);
    assert!(other.try_acquire(NAME, LONG));
    let refused = refusal(&locker, NAME).await;
    let [holder] = refused.lock.holders.as_slice() else { panic!("{refused:?}") };
    assert!(holder.label.is_none() && holder.fence.is_none(), "{holder:?}");
    assert!(holder.remaining <= LONG && holder.remaining > LONG / 2, "{holder:?}");
    assert!(refused.to_string().contains("another program"), "{refused}");
    let mutex = locker.mutex(NAME).unwrap();
    let mutex = mutex.ttl(LONG).wait(LONG);
    let waiter = tokio::spawn(async move { (mutex.acquire().await.unwrap(), Moment::now()) });
    assert!(other.extend(LONG), "a waiter must not disturb the holder");
    assert!(!waiter.is_finished());
    assert!(other.release());
    let (machine, released) = (Lateness::watch(), Moment::now());
    let (guard, granted) = bounded(waiter).await.unwrap();
    machine.check("to get in", POLL_MAX + SLACK, released, granted);
    assert!(!other.try_acquire(NAME, LONG));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P1, P9: when either dies, the other gets in once its time is over: not before, and soon.
async fn an_expiry_lets_the_other_in(version: &str) {
    const TTL: Duration = Duration::from_secs(2);
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let mut other = foreign::start(version, &nodes);
    let (machine, before) = (Lateness::watch(), Moment::now());
    assert!(other.try_acquire(NAME, TTL));
    let after = Moment::now();
    other.kill();
    let guard = hold(&locker, NAME, ttl(LONG).wait(LONG)).await;
    let granted = Moment::now();
    assert!(granted.since(before) >= TTL, "{:?}", granted.since(before));
    machine.check("to get in", SLACK, after + TTL, granted);
    assert!(guard.release().await.is_ok());
    let mut other = foreign::start(version, &nodes);
    let lease = hold_detached(&locker, NAME, TTL).await;
    other.begin_acquire(NAME, LONG, LONG);
    assert!(other.was_granted());
    assert!(lease.deadline.has_passed(Moment::now()), "let in before the holder's deadline");
    let late = locker.release_detached(&lease.name, lease.holder).await.unwrap();
    assert_eq!(late, lockfast::ReleaseOutcome::NotHeld);
    assert!(other.release(), "a late release must not touch it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_4_waits_for_lockfast() {
    lockfast_holds_and_the_other_waits("4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_5_waits_for_lockfast() {
    lockfast_holds_and_the_other_waits("5").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lockfast_waits_for_node_redlock_4() {
    the_other_holds_and_lockfast_waits("4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lockfast_waits_for_node_redlock_5() {
    the_other_holds_and_lockfast_waits("5").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_4_expires() {
    an_expiry_lets_the_other_in("4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_5_expires() {
    an_expiry_lets_the_other_in("5").await;
}
