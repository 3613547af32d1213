//! A wait ends when its caller said, whatever other processes do with the store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use std::fs::File;
use std::time::Duration;

use kit::{Asker, acquire, bounded, name, poll_once, refused, request};
use lockfast_core::{LockView, Mode, Moment, Query, Wait};
use rusqlite::Connection;
use tempfile::TempDir;

fn fresh() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", dir.path().join("store").display());
    (dir, url)
}

fn database(dir: &TempDir) -> Connection {
    Connection::open(dir.path().join("store/lockfast.db")).unwrap()
}

async fn view(asker: &Asker) -> LockView {
    asker.backend.inspect(Query::Name(name("x"))).await.unwrap().remove(0)
}

/// B44: another client's transaction removes a claim whose wait is over, and tells nobody. The
/// slow poll would find out half a second later.
#[tokio::test]
async fn a_wait_ends_in_time_although_another_removed_its_claim() {
    const WAIT: Duration = Duration::from_millis(100);
    let (dir, url) = fresh();
    let holder = Asker::connect(&url).await;
    let held = acquire(&holder, "x", Mode::Exclusive, Wait::No).await;
    let mut late = Vec::new();
    // On a busy machine one try in three must be on time.
    for _ in 0..3 {
        let waiter = Asker::connect(&url).await;
        let end = Moment::now() + WAIT;
        let mut wait = waiter.backend.acquire(request(&waiter, "x", Wait::Until(end)));
        assert!(poll_once(&mut wait).await.is_none());
        kit::eventually("it is in line", async || view(&holder).await.waiting == 1).await;
        database(&dir).execute("DELETE FROM claim WHERE stage = 0", []).unwrap();
        let refusal = refused(bounded(wait).await);
        assert_eq!(refusal.lock.holders[0].fence, Some(held.grant.fence));
        let now = Moment::now();
        assert!(end.has_passed(now), "it ended {:?} early", end.remaining(now));
        late.push(now.since(end));
        if late.last() < Some(&Duration::from_millis(200)) {
            return;
        }
    }
    panic!("the waits ended by the slow poll: {late:?}");
}

/// B44: a process that is stopped in the middle of a write keeps everybody from writing. What it
/// grants when it goes on, after the wait was over, goes on to the next.
#[tokio::test]
async fn a_wait_ends_in_time_while_nobody_can_write() {
    let (dir, url) = fresh();
    let holder = Asker::connect(&url).await;
    acquire(&holder, "x", Mode::Exclusive, Wait::No).await;
    let waiter = Asker::connect(&url).await;
    let end = Moment::now() + Duration::from_millis(300);
    let mut wait = waiter.backend.acquire(request(&waiter, "x", Wait::Until(end)));
    assert!(poll_once(&mut wait).await.is_none());
    kit::eventually("it is in line", async || view(&holder).await.waiting == 1).await;
    let stopped = File::options().write(true).open(dir.path().join("store/write.lock")).unwrap();
    stopped.lock().unwrap();
    refused(bounded(wait).await);
    assert!(end.has_passed(Moment::now()));
    let db = database(&dir);
    let now_ns = Moment::now().host_ns() as i64;
    db.execute("DELETE FROM claim WHERE stage = 1", []).unwrap();
    let granted = db.execute(
        "UPDATE claim SET stage = 1, fence = 1, from_ns = ?1, ends_ns = ?1 + 60000000000",
        [now_ns],
    );
    assert_eq!(granted, Ok(1), "its claim is gone");
    stopped.unlock().unwrap();
    kit::eventually("the lock is free", async || view(&holder).await.holders.is_empty()).await;
}
