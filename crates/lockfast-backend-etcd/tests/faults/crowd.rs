//! Thousands wait for one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockfast::{Moment, Options};

use crate::kit::{Etcd, connect, eventually, hold, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(120);
/// What a hand-over costs: the claim that is made anew, the one that is given back, and the put that
/// confirms it where its holder does not give it back at once.
const WRITES_MAX: f64 = 3.0;
/// What the server says about it to the one process: claims that are made, given back and confirmed.
const BYTES_MAX: f64 = 4000.0;

/// What was measured while so many of one process wanted a lock.
struct Measured {
    waiters: usize,
    /// Hand-overs in a second.
    rate: f64,
    /// Writes of the server's log for each.
    writes: f64,
    /// Bytes from the server for each.
    bytes: f64,
}

async fn measure(waiters: usize) -> Measured {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let (count, mut tasks) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
    for _ in 0..waiters {
        let options = Options::default().ttl(TTL).wait_forever();
        let lock = locker.mutex(NAME).unwrap().with_options(options);
        let count = Arc::clone(&count);
        tasks.spawn(async move {
            loop {
                lock.acquire().await.unwrap().release().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let name = lockfast::LockName::new(NAME).unwrap();
    eventually("all wait", PATIENCE, async || {
        locker.inspect(&name).await.unwrap().waiting == waiters
    })
    .await;
    guard.release().await.unwrap();
    eventually("it is handed over", PATIENCE, async || count.load(Ordering::Relaxed) > 0).await;
    let seen = || {
        let metric = |name| server.metric(name).unwrap();
        let writes = metric("etcd_server_proposals_committed_total");
        let bytes = metric("etcd_network_client_grpc_sent_bytes_total");
        (count.load(Ordering::Relaxed) as f64, writes, bytes)
    };
    let (before, start) = (seen(), Moment::now());
    tokio::time::sleep(SPAN).await;
    let (after, took) = (seen(), Moment::now().since(start));
    tasks.abort_all();
    let count = after.0 - before.0;
    let (writes, bytes) = ((after.1 - before.1) / count, (after.2 - before.2) / count);
    Measured { waiters, rate: count / took.as_secs_f64(), writes, bytes }
}

/// P10: a hand-over costs the same however long the line is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_in_a_long_line() {
    for waiters in [10, 5000] {
        let Measured { waiters, rate, writes, bytes } = measure(waiters).await;
        let told = format!(
            "{waiters} waiters: {rate:.0} hand-overs a second, {writes:.2} writes and {bytes:.0} \
             bytes for each"
        );
        println!("measured: {told}");
        assert!(writes <= WRITES_MAX && bytes <= BYTES_MAX, "{told}");
    }
}
