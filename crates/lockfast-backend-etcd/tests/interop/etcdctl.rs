//! `etcdctl lock`, both ways round.

use std::time::Duration;

use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::foreign::{EtcdctlLock, claims};
use crate::kit::{
    Etcd, TIME_MAX, bounded, connect, eventually, hold, loss, queue_for, refusal, ttl, url_at,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(5);
/// Long enough that whoever is not kept out gets in.
const A_WHILE: Duration = Duration::from_millis(700);

/// P1, P10: Lockfast holds and etcdctl waits, until the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_for_us() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let other = EtcdctlLock::start(&server, NAME, TTL);
    assert!(other.waits_for(A_WHILE), "etcdctl was let in");
    guard.release().await.unwrap();
    other.wait();
    other.end();
    eventually("it is free", TIME_MAX, async || claims(&server, NAME) == 0).await;
}

/// P1, P10, P11: etcdctl holds and Lockfast waits, until the release; a refusal says that somebody has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_wait_for_it() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let other = EtcdctlLock::start(&server, NAME, TTL);
    other.wait();
    assert_eq!(refusal(&locker, NAME).await.lock.holders.len(), 1);
    let waiter = queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    other.end();
    let guard = bounded(waiter).await.unwrap();
    assert!(guard.check().is_ok());
}

/// P9: etcdctl dies, and its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_dies() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let other = EtcdctlLock::start(&server, NAME, Duration::from_secs(2));
    other.wait();
    let waiter = queue_for(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    other.kill();
    let guard = bounded(waiter).await.unwrap();
    assert!(guard.check().is_ok());
}

/// P1, P9: Lockfast is cut off, and etcdctl gets in when the lease has ended, not before the holder
/// knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_are_cut_off() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let locker = connect(&url_at(proxy.address())).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let other = EtcdctlLock::start(&server, NAME, TTL);
    proxy.set(Link::Close);
    let watching = tokio::task::spawn_blocking(move || {
        other.wait();
        other
    });
    loss(&guard, TIME_MAX).await;
    assert!(!watching.is_finished(), "etcdctl was let in before the holder knew");
    bounded(watching).await.unwrap().end();
}

/// P10: first come, first served, whoever they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_waiters_are_served_in_order() {
    let server = Etcd::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let options = || ttl(TTL).wait(TIME_MAX);
    let foreign_1 = EtcdctlLock::start(&server, NAME, TTL);
    let ours_2 = queue_for(&second, NAME, options()).await;
    let foreign_3 = EtcdctlLock::start(&server, NAME, TTL);
    let ours_4 = queue_for(&first, NAME, options()).await;
    let ours_5 = queue_for(&second, NAME, options()).await;
    guard.release().await.unwrap();
    foreign_1.wait();
    tokio::time::sleep(A_WHILE).await;
    assert!(!ours_2.is_finished() && !ours_4.is_finished() && !ours_5.is_finished());
    foreign_1.end();
    let guard_2 = bounded(ours_2).await.unwrap();
    assert!(foreign_3.waits_for(A_WHILE), "etcdctl overtook");
    guard_2.release().await.unwrap();
    foreign_3.wait();
    assert!(!ours_4.is_finished() && !ours_5.is_finished());
    foreign_3.end();
    let guard_4 = bounded(ours_4).await.unwrap();
    assert!(!ours_5.is_finished());
    guard_4.release().await.unwrap();
    bounded(ours_5).await.unwrap().release().await.unwrap();
    assert_eq!(claims(&server, NAME), 0);
}

/// P1: a counter that both kinds change loses no update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_kinds_change_a_counter() {
    const EACH: usize = 10;
    let server = std::sync::Arc::new(Etcd::start());
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("n");
    std::fs::write(&counter, "0").unwrap();
    let script = format!("n=$(cat {0}); sleep 0.01; echo $((n + 1)) > {0}", counter.display());
    let foreign = tokio::task::spawn_blocking({
        let server = std::sync::Arc::clone(&server);
        move || {
            for _ in 0..EACH {
                server.ctl(&["lock", "--ttl=10", "--", NAME, "sh", "-c", &script]);
            }
        }
    });
    let locker = connect(&server.url()).await;
    for _ in 0..EACH {
        let guard = hold(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
        let seen: usize = std::fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        std::fs::write(&counter, (seen + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
    bounded(foreign).await.unwrap();
    let seen = std::fs::read_to_string(&counter).unwrap();
    assert_eq!(seen.trim(), (2 * EACH).to_string());
}
