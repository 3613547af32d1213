//! A lock whose name extends another's is another lock.

use std::time::Duration;

use crate::kit::foreign::EtcdctlLock;
use crate::kit::{Etcd, bounded, connect, hold, queue_for, refusal, ttl};

const TTL: Duration = Duration::from_secs(10);

/// P1: who holds or waits for `a/b` does not keep anybody from `a`, whoever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_name_is_another_lock() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let theirs = EtcdctlLock::start(&server, "a/b", TTL);
    theirs.wait();
    let waiter = queue_for(&locker, "a/b", ttl(TTL).wait(TTL * 3)).await;
    let ours = hold(&locker, "a/b/c", ttl(TTL)).await;
    let guard = hold(&locker, "a", ttl(TTL)).await;
    assert!(guard.check().is_ok());
    // And neither is taken for a holder of `a`.
    assert_eq!(refusal(&locker, "a").await.lock.holders.len(), 1);
    assert_eq!(refusal(&locker, "a").await.lock.waiting, 0);
    guard.release().await.unwrap();
    ours.release().await.unwrap();
    theirs.end();
    bounded(waiter).await.unwrap().release().await.unwrap();
}
