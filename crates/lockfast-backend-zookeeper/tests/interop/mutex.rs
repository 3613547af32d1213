//! One lock, two kinds of programs: who holds, who waits, who comes next.

use std::time::Duration;

use lockfast::{Guard, Locker, Moment, Released};
use lockfast_faults::lateness::Lateness;
use tokio::task::JoinHandle;

use crate::kit::foreign::{self, Kind};
use crate::kit::{
    TIME_MAX, ZooKeeper, bounded, claims, connect, eventually, hold, queue_for, refusal, ttl,
};

const NAME: &str = "nightly";
const PATH: &str = "/nightly";
const TTL: Duration = Duration::from_secs(5);

async fn start() -> (ZooKeeper, Locker) {
    let server = ZooKeeper::start();
    let locker = connect(&server.url()).await;
    (server, locker)
}

async fn until_claims(server: &ZooKeeper, count: usize) {
    eventually("so many claims", TIME_MAX, async || claims(server, NAME).len() == count).await;
}

fn stamped(waiter: JoinHandle<Guard>) -> JoinHandle<(Guard, Moment)> {
    tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) })
}

/// P1, P10: Lockfast holds, the other is refused, waits, and gets in after the release.
async fn lockfast_holds_and_the_other_waits(kind: Kind) {
    let (server, locker) = start().await;
    let mut other = foreign::start(kind, &server, TTL);
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(!other.try_acquire(PATH, TTL), "both have it");
    other.begin_acquire(PATH, TTL, TIME_MAX);
    until_claims(&server, 2).await;
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(other.was_granted());
    refusal(&locker, NAME).await;
    assert!(other.release());
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    until_claims(&server, 0).await;
}

/// P1, P10: the other holds, Lockfast is refused, waits and is woken by the release.
async fn the_other_holds_and_lockfast_waits(kind: Kind) {
    let (server, locker) = start().await;
    let mut other = foreign::start(kind, &server, TTL);
    assert!(other.try_acquire(PATH, TTL));
    let seen = refusal(&locker, NAME).await;
    assert_eq!(seen.lock.holders.len(), 1, "{seen:?}");
    let waiter = stamped(queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await);
    let (machine, released) = (Lateness::watch(), Moment::now());
    assert!(other.release());
    let (guard, granted) = bounded(waiter).await.unwrap();
    machine.check("to wake", Duration::from_secs(2), released, granted);
    assert!(!other.try_acquire(PATH, TTL));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P9: the other dies, and its lock is free when its session has ended.
async fn the_other_dies(kind: Kind) {
    const SESSION: Duration = Duration::from_secs(2);
    let (server, locker) = start().await;
    let mut other = foreign::start(kind, &server, SESSION);
    assert!(other.try_acquire(PATH, SESSION));
    let waiter = stamped(queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await);
    let (machine, killed) = (Lateness::watch(), Moment::now());
    other.kill();
    let (guard, granted) = bounded(waiter).await.unwrap();
    // The server looks once a tick.
    machine.check("to end", SESSION + Duration::from_secs(2), killed, granted);
    guard.release().await.unwrap();
}

/// P10: whoever came first is served first, whichever program it is.
async fn mixed_waiters_are_served_in_order(kind: Kind) {
    let (server, locker) = start().await;
    let mut others = [(); 2].map(|()| foreign::start(kind, &server, TTL * 2));
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let mut waiters = Vec::new();
    for (at, other) in others.iter_mut().enumerate() {
        waiters.push(queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await);
        other.begin_acquire(PATH, TTL, TIME_MAX);
        until_claims(&server, 1 + 2 * (at + 1)).await;
    }
    let mut left = claims(&server, NAME).len();
    guard.release().await.unwrap();
    for (waiter, other) in waiters.into_iter().zip(&mut others) {
        let guard = bounded(waiter).await.unwrap();
        left -= 1;
        // All behind it still wait.
        assert_eq!(claims(&server, NAME).len(), left);
        guard.release().await.unwrap();
        assert!(other.was_granted());
        left -= 1;
        assert_eq!(claims(&server, NAME).len(), left);
        assert!(other.release());
    }
    until_claims(&server, 0).await;
}

/// P8: when the other's session has ended and Lockfast holds the lock, the late release of the other
/// does not touch it.
async fn a_late_release_of_the_other_has_no_effect(kind: Kind) {
    let (server, locker) = start().await;
    let mut other = foreign::start(kind, &server, TTL);
    assert!(other.try_acquire(PATH, TTL));
    crate::kit::delete_claims(&server, NAME);
    let guard = hold(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    // Whatever it answers.
    other.release();
    assert!(guard.check().is_ok());
    assert_eq!(claims(&server, NAME).len(), 1);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

macro_rules! with_every_program {
    ($($scenario:ident)*) => {
        with_every_program!(@ kazoo Kazoo: $($scenario)*);
        with_every_program!(@ curator CuratorMutex: $($scenario)*);
    };
    (@ $program:ident $kind:ident: $($scenario:ident)*) => {
        mod $program {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario(super::Kind::$kind).await;
                }
            )*
        }
    };
}

with_every_program! {
    lockfast_holds_and_the_other_waits
    the_other_holds_and_lockfast_waits
    the_other_dies
    mixed_waiters_are_served_in_order
    a_late_release_of_the_other_has_no_effect
}
