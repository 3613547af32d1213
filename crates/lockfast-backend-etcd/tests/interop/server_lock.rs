//! The lock that the server itself has, over its JSON gateway, both ways round.

use std::sync::Arc;
use std::time::Duration;

use crate::kit::foreign::{claims, grant_lease, lock_by_server, unlock_by_server};
use crate::kit::{Etcd, TIME_MAX, bounded, connect, eventually, hold, queue_for, refusal, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(5);

/// P1, P10: the server's lock is held and Lockfast waits; its release, and its lease's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_wait_for_it() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let lease = grant_lease(&server, TTL * 10);
    let key = lock_by_server(&server, NAME, &lease).unwrap();
    refusal(&locker, NAME).await;
    let waiter = queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    unlock_by_server(&server, &key);
    bounded(waiter).await.unwrap().release().await.unwrap();
    // Nobody keeps this one alive.
    let lease = grant_lease(&server, Duration::from_secs(2));
    lock_by_server(&server, NAME, &lease).unwrap();
    let waiter = queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    bounded(waiter).await.unwrap().release().await.unwrap();
}

/// P1, P10: Lockfast holds and the server's lock waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_for_us() {
    let server = Arc::new(Etcd::start());
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let lease = grant_lease(&server, TTL * 10);
    let waiting = tokio::task::spawn_blocking({
        let server = Arc::clone(&server);
        move || lock_by_server(&server, NAME, &lease).unwrap()
    });
    eventually("it stands in line", TIME_MAX, async || claims(&server, NAME) == 2).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "the server's lock was granted");
    guard.release().await.unwrap();
    let key = bounded(waiting).await.unwrap();
    refusal(&locker, NAME).await;
    unlock_by_server(&server, &key);
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}
