//! Nodes are killed, paused, cut off and started again at random, one at a time, while several
//! clients hold a lock in turn and write with its fence. They keep what they grant on disk, so
//! that none forgets: then no two holds overlap, fences rise, and no update is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockfast::fence::Gate;
use lockfast::{FencingToken, Locker, Moment, Options};
use lockfast_conformance::Seed;
use lockfast_conformance::history::{History, assert_excluded};
use lockfast_faults::server::Server as _;

use crate::kit::{Nodes, bounded, connect};

const NAME: &str = "account";
const SPAN: Duration = Duration::from_secs(12);

/// What the lock guards.
struct Account {
    balance: Gate<u64>,
    acknowledged: AtomicU64,
    history: History,
    is_over: AtomicBool,
}

impl Account {
    /// Whether the write was let through.
    fn set(&self, token: &FencingToken, to: u64) -> bool {
        let Ok(mut balance) = self.balance.check(token) else { return false };
        *balance = to;
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        true
    }
}

async fn write(locker: Locker, account: Arc<Account>) {
    let options = Options::default().ttl(Duration::from_secs(2)).wait(Duration::from_secs(5));
    let mutex = locker.mutex(NAME).unwrap().with_options(options);
    while !account.is_over.load(Ordering::SeqCst) {
        // No quorum for a while is a part of the game.
        let Ok(guard) = mutex.acquire().await else { continue };
        let start = Moment::now();
        let token = guard.token();
        if let Ok(balance) = account.balance.open(&token).map(|balance| *balance) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if guard.check().is_ok() && account.set(&token, balance + 1) && guard.check().is_ok() {
                account.history.record(start, guard.fence(), true);
            }
        }
        drop(guard.release().await);
    }
}

async fn storm(count: usize, at_once: usize) {
    let seed = Seed::of_run();
    let mut dice = seed.dice();
    let mut nodes = Nodes::start_durable(count);
    let account = Arc::new(Account {
        balance: Gate::new(NAME, 0).unwrap(),
        acknowledged: AtomicU64::default(),
        history: History::default(),
        is_over: AtomicBool::default(),
    });
    let mut writers = Vec::new();
    for _ in 0..3 {
        let locker = connect(&nodes.url()).await;
        for _ in 0..2 {
            writers.push(tokio::spawn(write(locker.clone(), Arc::clone(&account))));
        }
    }
    let start = Moment::now();
    while Moment::now().since(start) < SPAN {
        let first = dice.below(count as u64) as usize;
        let victims: Vec<usize> = (0..at_once).map(|at| (first + at) % count).collect();
        let kills = dice.below(2) == 0;
        for victim in &victims {
            match kills {
                true => nodes.0[*victim].kill(),
                false => nodes.0[*victim].pause(),
            }
        }
        tokio::time::sleep(dice.time_below(Duration::from_millis(1500))).await;
        for victim in &victims {
            match kills {
                true => nodes.0[*victim].restart(),
                false => nodes.0[*victim].resume(),
            }
        }
        tokio::time::sleep(dice.time_below(Duration::from_millis(500))).await;
    }
    account.is_over.store(true, Ordering::SeqCst);
    for writer in writers {
        bounded(writer).await.unwrap();
    }
    let written = account.acknowledged.load(Ordering::SeqCst);
    assert_excluded(&account.history.intervals());
    let account = Arc::into_inner(account).expect("all writers have ended");
    assert_eq!(account.balance.into_inner(), written, "updates were lost");
    assert!(written > 100, "only {written} updates came through ({seed:?})");
}

/// P1, P4: one of three nodes at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_nodes() {
    storm(3, 1).await;
}

/// P1, P4: two of five nodes at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_five_nodes() {
    storm(5, 2).await;
}
