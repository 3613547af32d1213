//! Readers and writers of Curator's `InterProcessReadWriteLock` beside those of Lockfast.

use std::time::Duration;

use lockfast::{Guard, Locker, Options};

use crate::kit::foreign::{self, Kind};
use crate::kit::{TIME_MAX, ZooKeeper, bounded, claims, connect, eventually};

const NAME: &str = "nightly";
const PATH: &str = "/nightly";
const TTL: Duration = Duration::from_secs(5);

async fn start() -> (ZooKeeper, Locker) {
    let server = ZooKeeper::start();
    let locker = connect(&format!("{}?exclusive=writer", server.url())).await;
    (server, locker)
}

async fn read(locker: &Locker) -> Guard {
    let options = Options::default().ttl(TTL).wait(TIME_MAX);
    bounded(locker.rwlock(NAME).unwrap().with_options(options).read()).await.unwrap()
}

async fn write(locker: &Locker) -> Guard {
    let options = Options::default().ttl(TTL).wait(TIME_MAX);
    bounded(locker.rwlock(NAME).unwrap().with_options(options).write()).await.unwrap()
}

async fn is_free_to_write(locker: &Locker) -> bool {
    bounded(locker.rwlock(NAME).unwrap().try_write()).await.unwrap().is_acquired()
}

async fn until_claims(server: &ZooKeeper, count: usize) {
    eventually("so many claims", TIME_MAX, async || claims(server, NAME).len() == count).await;
}

/// P1: readers of both share, and keep writers of both out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share() {
    let (server, locker) = start().await;
    let mut reader = foreign::start(Kind::CuratorReader, &server, TTL);
    let mut writer = foreign::start(Kind::CuratorWriter, &server, TTL);
    let guard = read(&locker).await;
    assert!(reader.try_acquire(PATH, TTL), "readers share");
    assert!(!writer.try_acquire(PATH, TTL), "ours keeps it out");
    guard.release().await.unwrap();
    assert!(!writer.try_acquire(PATH, TTL), "the other keeps it out");
    assert!(!is_free_to_write(&locker).await);
    let again = read(&locker).await;
    assert!(reader.release());
    assert!(!writer.try_acquire(PATH, TTL));
    again.release().await.unwrap();
    assert!(writer.try_acquire(PATH, TTL));
    assert!(!is_free_to_write(&locker).await);
    assert!(writer.release());
    assert!(is_free_to_write(&locker).await);
    until_claims(&server, 0).await;
}

/// P10: a writer that waits keeps later readers waiting, whichever program it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_are_served_in_order() {
    let (server, locker) = start().await;
    let mut reader = foreign::start(Kind::CuratorReader, &server, TTL * 2);
    let mut writer = foreign::start(Kind::CuratorWriter, &server, TTL * 2);
    let first = read(&locker).await;
    writer.begin_acquire(PATH, TTL, TIME_MAX);
    until_claims(&server, 2).await;
    let ours = tokio::spawn({
        let locker = locker.clone();
        async move { write(&locker).await }
    });
    until_claims(&server, 3).await;
    reader.begin_acquire(PATH, TTL, TIME_MAX);
    until_claims(&server, 4).await;
    first.release().await.unwrap();
    assert!(writer.was_granted());
    assert_eq!(claims(&server, NAME).len(), 3, "all behind it wait");
    assert!(writer.release());
    let second = bounded(ours).await.unwrap();
    assert_eq!(claims(&server, NAME).len(), 2);
    second.release().await.unwrap();
    assert!(reader.was_granted());
    assert!(!is_free_to_write(&locker).await);
    assert!(reader.release());
}
