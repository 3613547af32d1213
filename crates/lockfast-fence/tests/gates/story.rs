//! What must hold for every gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockfast::{Error, ErrorKind, Fence, FencingToken, LockName, Retry};

use crate::account::{LOCK, START, Site};
use crate::process::{self, DEPOSIT};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const WRITERS: usize = 4;
const ROUNDS: usize = 20;

/// A token of the lock.
pub(crate) fn token(fence: u64) -> FencingToken {
    FencingToken { lock: LockName::new(LOCK).unwrap(), fence: Fence::new(fence).unwrap() }
}

/// A holder reads and is stopped before it writes. The next one reads and writes. Then the first
/// one continues, and writes.
pub(crate) async fn a_stopped_holder_writes_late(site: &Site) {
    let mut account = site.connect().await;
    account.prepare().await;
    for is_fenced in [true, false] {
        account.write(None, START).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut first = process::start(directory.path(), site, is_fenced);
        let read = first.wait_for("read ", PATIENCE).unwrap();
        assert_eq!(read, START.to_string());
        first.stop().unwrap();

        let guard = process::lock(directory.path()).await.acquire().await.unwrap();
        let token = guard.token();
        let through = is_fenced.then_some(&token);
        let balance = account.read(through).await.unwrap();
        account.write(through, balance + 10).await.unwrap();

        first.send("go").unwrap();
        first.resume().unwrap();
        if is_fenced {
            let seen = first.wait_for("refused ", PATIENCE).unwrap();
            assert_eq!(seen, token.fence.to_string());
            assert_eq!(account.read(None).await.unwrap(), START + 10);
        } else {
            first.wait_for("written", PATIENCE).unwrap();
            let balance = account.read(None).await.unwrap();
            assert_eq!(balance, START + DEPOSIT, "without a gate the update of 10 is lost");
        }
        assert!(first.finish(PATIENCE).unwrap().success());
    }
}

/// Writers with ever higher fences race. Whatever passes is in the order of the fences.
pub(crate) async fn racing_writers_pass_in_order(site: &Site) {
    let mut account = site.connect().await;
    account.prepare().await;
    let next = Arc::new(AtomicU64::new(1));
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let (site, next) = (site.clone(), Arc::clone(&next));
        writers.push(tokio::spawn(async move { race(&site, &next).await }));
    }
    let mut passed = 0;
    for writer in writers {
        passed += writer.await.unwrap();
    }
    let history = account.history().await;
    assert!(history.is_sorted(), "a lower fence passed after a higher one: {history:?}");
    assert_eq!(history.len(), passed, "what was told is what was written");
    let highest = next.load(Ordering::SeqCst) - 1;
    assert_eq!(history.last(), Some(&highest), "the highest fence always passes");
    let error = account.append(&token(highest - 1)).await.unwrap_err();
    assert_eq!(error.fence_seen().map(Fence::get), Some(highest));
    account.append(&token(highest)).await.unwrap();
}

/// How many writes of one writer passed.
async fn race(site: &Site, next: &AtomicU64) -> usize {
    let mut account = site.connect().await;
    let mut passed = 0;
    for _ in 0..ROUNDS {
        let token = token(next.fetch_add(1, Ordering::SeqCst));
        for _ in 0..2 {
            let outcome = loop {
                match account.append(&token).await {
                    Err(error) if error.retry() == Retry::Later => {}
                    outcome => break outcome,
                }
            };
            match outcome.as_ref().map_err(Error::kind) {
                Ok(()) => passed += 1,
                Err(kind) => assert_eq!(kind, ErrorKind::StaleFence, "{outcome:?}"),
            }
        }
    }
    passed
}
