//! One server fails: it crashes, stands still, or has no space left.

use std::time::Duration;

use lockfast::{ErrorKind, Moment, Released};

use crate::kit::{
    Etcd, Server as _, Setup, TIME_MAX, bounded, check_error, connect, eventually, failure, hold,
    queue_for, refusal, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(12);

/// P1, P4, P10: a server that crashes and comes back has every lease and every fence it told of, and
/// those who wait go on waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_crashes() {
    let mut server = Setup::new().durable().start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let fence = guard.fence().get();
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TTL * 4)).await;
    server.restart();
    wait_for_renewal(&guard, TTL).await;
    eventually("it still waits", TTL, async || {
        let mutex = first.mutex(NAME).unwrap();
        first.inspect(mutex.name()).await.is_ok_and(|lock| lock.waiting == 1)
    })
    .await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
}

/// P3: a server that stands still for less than a lease costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_stands_still() {
    let server = Etcd::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.pause();
    // Long enough for a renewal to fail.
    let deadline = guard.deadline();
    eventually("a renewal failed", TTL, async || {
        matches!(guard.status(), lockfast::LeaseStatus::Jeopardy { .. })
    })
    .await;
    server.resume();
    wait_for_renewal(&guard, TTL).await;
    assert!(guard.deadline().since(deadline) > Duration::ZERO);
    refusal(&second, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P2, P3: a server that stands still for longer: the holder is told by its deadline, and when the
/// server goes on nobody has the lock twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_stands_still_for_too_long() {
    let server = Etcd::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let ttl_short = Duration::from_secs(3);
    let guard = hold(&first, NAME, ttl(ttl_short)).await;
    server.pause();
    let cause = crate::kit::loss(&guard, TIME_MAX).await;
    assert!(matches!(cause, lockfast::LossCause::Expired { .. }), "{cause:?}");
    let told = Moment::now();
    assert!(guard.deadline().has_passed(told));
    server.resume();
    let next = hold(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P5, P11: a server without space says so; nothing is left, and what is held can be given back.
/// The user sees: the server's words, and what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_space_is_left() {
    let server = Setup::new().option("--quota-backend-bytes=200000").start();
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let value = "x".repeat(30_000);
    eventually("it is full", TIME_MAX, async || !server.try_ctl(&["put", "filler", &value]).0)
        .await;
    let error = failure(&locker, "another", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &["space exceeded", "compact"]);
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(server.keys(&format!("{NAME}/")), [""; 0]);
    assert_eq!(server.keys("another/"), [""; 0]);
    server.ctl(&["del", "filler"]);
    server.ctl(&["alarm", "disarm"]);
}
