//! The server fails: it crashes, is paused, loses data, or somebody deletes nodes.

use std::time::Duration;

use lockfast::{ErrorKind, Locker, LossCause, Released, RevokeOutcome};
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{
    Server as _, TIME_MAX, ZooKeeper, bounded, check_error, claims, connect, delete_claims,
    eventually, failure, hold, loss, queue_for, refusal, ttl, url_at, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

async fn start() -> (ZooKeeper, Locker, Locker) {
    let server = ZooKeeper::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    (server, first, second)
}

/// P1, P4: a server that crashes and comes back has every session and every lease. A waiter keeps its
/// place if it is back within the short session of those who wait, and queues again otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_crashes() {
    let (mut server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let fence = guard.fence().get();
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    server.restart();
    wait_for_renewal(&guard, TTL).await;
    refusal(&second, NAME).await;
    eventually("both are in line", TIME_MAX, async || claims(&server, NAME).len() == 2).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
    next.release().await.unwrap();
    assert_eq!(claims(&server, NAME).len(), 0);
}

/// P1, P3: a server that stands still for a while costs nothing.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_paused() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    server.pause();
    tokio::time::sleep(TTL / 3).await;
    server.resume();
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    bounded(waiter).await.unwrap().release().await.unwrap();
}

/// P1, P3: a server that stands still for longer than the ttl: the holder is told, and whoever comes
/// next has a greater fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_paused_for_long() {
    const TTL: Duration = Duration::from_secs(2);
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.pause();
    loss(&guard, TTL * 2).await;
    server.resume();
    let next = hold(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(guard.check().is_err());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P3, P8: somebody deletes the holder's node. The holder is told at once, and its release does not
/// touch whoever came next.
/// The user sees: the loss `Forgotten`, or `Taken`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_deletes_the_node_of_the_holder() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    delete_claims(&server, NAME);
    // Before any renewal: it is watched.
    let cause = loss(&guard, TTL / 3).await;
    assert!(matches!(cause, LossCause::Forgotten | LossCause::Taken { .. }), "{cause:?}");
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
    refusal(&first, NAME).await;
}

/// P10: somebody deletes the node of a waiter, which gets in all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_deletes_the_node_of_a_waiter() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let held = claims(&server, NAME);
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let mut session = server.session();
    let of_waiter = claims(&server, NAME).into_iter().find(|node| !held.contains(node)).unwrap();
    session.try_delete(&format!("/{NAME}/{of_waiter}")).unwrap();
    assert!(guard.check().is_ok());
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap();
    assert!(next.check().is_ok());
    next.release().await.unwrap();
    eventually("nothing is left", TTL, async || claims(&server, NAME).is_empty()).await;
}

/// B136: P1. Somebody writes to the node of a waiter, as Curator's `Revoker` does, and the waiter goes. A
/// node that was changed and is deleted tells whoever waits behind it nothing about those ahead.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_writes_to_the_node_of_a_waiter() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let held = claims(&server, NAME);
    let leaving = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let of_waiter = claims(&server, NAME).into_iter().find(|node| !held.contains(node)).unwrap();
    let third = connect(&server.url()).await;
    let waiter = queue_for(&third, NAME, ttl(TTL).wait(TIME_MAX)).await;
    // It has looked at those ahead by then.
    tokio::time::sleep(TTL / 10).await;
    server.session().try_write(&format!("/{NAME}/{of_waiter}"), b"__REVOKE__").unwrap();
    leaving.abort();
    eventually("it has left", TTL, async || !claims(&server, NAME).contains(&of_waiter)).await;
    tokio::time::sleep(TTL / 10).await;
    assert!(!waiter.is_finished(), "held twice: {:?}", guard.status());
    let fence = guard.fence().get();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
    next.release().await.unwrap();
    eventually("nothing is left", TTL, async || claims(&server, NAME).is_empty()).await;
}

/// P4: a server that comes back with nothing is not used by a process that has seen more: fences
/// would go back. The holder is told by its deadline, and a new process starts anew.
/// The user sees: the loss `Expired`, then `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_loses_its_data() {
    let (mut server, first, _) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.restart_empty();
    let cause = loss(&guard, TTL * 2).await;
    assert!(matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    let error = failure(&first, NAME, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &[]);
    let other = connect(&server.url()).await;
    hold(&other, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// B112: P1. A server counts the children that a lock's node had in 31 bits, and then gives the same
/// number to all. No claim has such a number: the lock's node is made anew when nobody is in line.
/// The user sees: nothing, or a lock that cannot be had as long as somebody has it who was in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_of_a_lock_are_used_up() {
    const LAST: i32 = i32::MAX - (1 << 20) - 1;
    for number in [LAST, i32::MAX] {
        let mut server = ZooKeeper::start();
        let path = format!("/{NAME}");
        server.session().create(&path, b"");
        server.restart_with_number(&path, number);
        let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
        let guard = hold(&first, NAME, ttl(TTL)).await;
        let told = claims(&server, NAME);
        assert!(told[0].ends_with(if number == LAST { "2146435070" } else { "0000000000" }));
        if number == LAST {
            let error = failure(&second, NAME, ttl(TTL)).await;
            check_error(&error, ErrorKind::Unreachable, &["used up"]);
        } else {
            refusal(&second, NAME).await;
        }
        let waiting = hold(&second, NAME, ttl(TTL).wait(TIME_MAX));
        let releasing = async {
            tokio::time::sleep(TTL / 10).await;
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        };
        let (next, ()) = tokio::join!(bounded(waiting), releasing);
        assert_eq!(claims(&server, NAME).len(), 1);
        next.release().await.unwrap();
    }
}

/// B111: P12. Who waited for a lock with a lock-delay has it in full when it is told so, and not for as
/// long as the session of those who wait lives, which ends without a delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_has_its_lock_delay_from_the_start() {
    let (server, first, second) = start().await;
    let delay = Duration::from_secs(1);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = queue_for(&second, NAME, ttl(TTL).lock_delay(delay).wait(TIME_MAX)).await;
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap();
    assert!(next.is_full());
    assert_eq!(claims(&server, NAME).len(), 1);
    next.release().await.unwrap();
}

/// P3: an operator takes the lock away just after a hand-over, while the holder's node moves from one
/// session to another. The reason is not lost on the way.
/// The user sees: the loss `Revoked`, with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_taken_away_during_a_hand_over() {
    const ROUNDS: u64 = 6;
    let (server, first, _) = start().await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    let second = connect(&url_at(proxy.address())).await;
    // The move takes a while, all the more as its session has to be opened first.
    proxy.set(Link::Delay(Duration::from_millis(40)));
    let mut causes = Vec::new();
    for round in 0..ROUNDS {
        let guard = hold(&first, NAME, ttl(TTL)).await;
        let length = TTL + Duration::from_millis(round * 10);
        let waiter = queue_for(&second, NAME, ttl(length).wait(TIME_MAX)).await;
        guard.release().await.unwrap();
        let next = bounded(waiter).await.unwrap();
        let revoked = first.revoke(NAME, "needed elsewhere").await.unwrap();
        assert!(matches!(revoked, RevokeOutcome::Revoked(_)), "{revoked:?}");
        causes.push(loss(&next, TTL).await);
        eventually("nothing is left", TTL, async || claims(&server, NAME).is_empty()).await;
    }
    // Who is too late on a busy machine, half a second, is told only that it has lost it.
    let is_told = |cause: &LossCause| matches!(cause, LossCause::Revoked { .. });
    assert!(causes.iter().any(is_told), "{causes:?}");
}
