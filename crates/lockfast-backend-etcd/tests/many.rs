//! What thousands of locks cost that one process holds and renews.

#![allow(clippy::print_stdout, reason = "what was measured is on the page of the store")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use lockfast::{Guard, Options};
use lockfast_conformance::shorthand::{connect, hold};
use lockfast_faults::etcd::Etcd;
use lockfast_faults::wait::eventually;
use tokio::task::JoinSet;

const LOCKS: usize = 10_000;
const TTL: Duration = Duration::from_secs(30);
/// Long enough for every lock to be renewed.
const SPAN: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(60);
/// The part of a core that they cost: without optimisation everything costs several times as much.
const SHARE_MAX: f64 = if cfg!(debug_assertions) { 0.1 } else { 0.02 };
/// Two leases, each prolonged when it is due, and once for each batch of renewals.
const PROLONGED_MAX: f64 = 120.0;

/// The processor time of this process so far.
fn used() -> Duration {
    const TICKS_A_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_A_SECOND)
}

/// P3: ten thousand locks of one process are kept alive by one stream, for next to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_cost_next_to_nothing() {
    let server = Etcd::start();
    let locker = connect(&server.url(), lockfast_backend_etcd::connect).await;
    let mut taking = JoinSet::new();
    for number in 0..LOCKS {
        let locker = locker.clone();
        let options = Options::default().ttl(TTL).no_wait().retries(10);
        taking.spawn(async move { hold(&locker, &format!("lock-{number}"), options).await });
    }
    let guards: Vec<Guard> = taking.join_all().await;
    eventually("their ends are watched for", PATIENCE, async || {
        server.metric("etcd_debugging_mvcc_watcher_total").unwrap() >= LOCKS as f64
    })
    .await;
    // What remains to be done once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let prolonged = || server.metric("etcd_debugging_lease_renewed_total").unwrap();
    let (before, prolonged_before) = (used(), prolonged());
    tokio::time::sleep(SPAN).await;
    let share = (used() - before).as_secs_f64() / SPAN.as_secs_f64();
    let prolonged = prolonged() - prolonged_before;
    println!("measured: {LOCKS} locks: {:.1} % of a core, {prolonged} keep-alives", share * 100.0);
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    assert_eq!(server.metric("etcd_debugging_mvcc_slow_watcher_total"), Some(0.0));
    assert!(prolonged <= PROLONGED_MAX, "{prolonged} keep-alives in {SPAN:?}");
    assert!(share < SHARE_MAX, "{:.1} % of a core", share * 100.0);
}
