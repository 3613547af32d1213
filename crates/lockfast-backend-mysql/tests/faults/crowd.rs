//! Thousands wait for one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockfast::{Moment, Options};

use crate::kit::{connect, eventually, hold, prepare, start_server, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(3);
/// What else the machine does slows one round more than another, so there may be several; a line that
/// is slow by itself is slow in each.
const ROUNDS_MAX: usize = 6;
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a second a lock is handed over while so many of one process want it.
async fn rate(url: &str, waiters: usize) -> f64 {
    let locker = connect(url).await;
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
    let start = Moment::now();
    let before = count.load(Ordering::Relaxed);
    tokio::time::sleep(SPAN).await;
    let done = count.load(Ordering::Relaxed) - before;
    let rate = done as f64 / Moment::now().since(start).as_secs_f64();
    tasks.abort_all();
    rate
}

/// B22, P10: a hand-over costs the same however long the line is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_line_is_served_as_fast_as_a_short_one() {
    let (mut short, mut long): (f64, f64) = (0.0, 0.0);
    for _ in 0..ROUNDS_MAX {
        for (waiters, best) in [(10, &mut short), (5000, &mut long)] {
            let server = start_server();
            *best = best.max(rate(&prepare(&server).await, waiters).await);
        }
        if long >= short / 2.0 {
            return;
        }
    }
    panic!("10 waiters: {short:.0} a second, 5000 waiters: {long:.0}");
}
