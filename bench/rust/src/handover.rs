//! Passing one lock around.
//!
//! *Held* keeps it for a while, so that all others really wait, and comes back only after somebody
//! else has had it: every acquisition is then a hand-over. *Greedy* keeps it for no time and comes
//! back at once, which shows who is favoured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use crate::Latencies;
use crate::contender::Contender;

/// What all contenders share.
struct Ring {
    start: Instant,
    stop: AtomicBool,
    /// When it was given back last, since the start.
    released_ns: AtomicU64,
    /// Who had it last.
    last: AtomicUsize,
    inside: AtomicUsize,
    /// How often it was taken.
    turn: watch::Sender<u64>,
    ready: Barrier,
}

/// What one contender got.
#[derive(Default)]
struct Share {
    acquired: u64,
    /// Those after the stop too, which cost the store as much.
    taken: u64,
    gave_up: u64,
    latencies: Vec<u64>,
}

/// Passes the lock around for so long.
pub(crate) async fn measure(
    contenders: Vec<Contender>,
    hold: Option<Duration>,
    span: Duration,
) -> Result<Value> {
    let ring = Arc::new(Ring {
        start: Instant::now(),
        stop: AtomicBool::new(false),
        released_ns: AtomicU64::new(0),
        last: AtomicUsize::new(usize::MAX),
        inside: AtomicUsize::new(0),
        turn: watch::channel(0).0,
        ready: Barrier::new(contenders.len() + 1),
    });
    let mut running = JoinSet::new();
    for (number, contender) in contenders.into_iter().enumerate() {
        running.spawn(compete(Arc::clone(&ring), number, contender, hold));
    }
    ring.ready.wait().await;
    let before = Instant::now();
    tokio::time::sleep(span).await;
    ring.stop.store(true, SeqCst);
    let elapsed = before.elapsed().as_secs_f64();
    let mut shares = Vec::new();
    while let Some(share) = running.join_next().await {
        shares.push(share??);
    }
    let most = shares.iter().map(|share| share.acquired).max().unwrap_or(0);
    let least = shares.iter().map(|share| share.acquired).min().unwrap_or(0);
    let gave_up: u64 = shares.iter().map(|share| share.gave_up).sum();
    let acquired: u64 = shares.iter().map(|share| share.acquired).sum();
    let taken: u64 = shares.iter().map(|share| share.taken).sum();
    let latencies = shares.into_iter().flat_map(|share| share.latencies).collect();
    let latencies = Latencies::new(latencies);
    Ok(json!({
        "handovers": latencies.0.len(),
        "handovers_per_s": latencies.0.len() as f64 / elapsed,
        "acquired": acquired,
        "taken": taken,
        "p50_us": latencies.percentile(50),
        "p99_us": latencies.percentile(99),
        "most_over_least": most as f64 / least.max(1) as f64,
        "gave_up": gave_up,
    }))
}

async fn compete(
    ring: Arc<Ring>,
    number: usize,
    mut contender: Contender,
    hold: Option<Duration>,
) -> Result<Share> {
    let mut share = Share::default();
    let mut turns = ring.turn.subscribe();
    ring.ready.wait().await;
    while !ring.stop.load(SeqCst) {
        if !contender.acquire().await? {
            share.gave_up += 1;
            continue;
        }
        let now_ns = ring.start.elapsed().as_nanos() as u64;
        share.taken += 1;
        ensure!(ring.inside.fetch_add(1, SeqCst) == 0, "two had the lock at once");
        let released_ns = ring.released_ns.load(SeqCst);
        let last = ring.last.swap(number, SeqCst);
        // Those that end after the stop find nobody waiting and are not counted.
        if !ring.stop.load(SeqCst) {
            share.acquired += 1;
            if last != number && last != usize::MAX {
                share.latencies.push(now_ns.saturating_sub(released_ns));
            }
        }
        let mut turn = 0;
        ring.turn.send_modify(|count| {
            *count += 1;
            turn = *count;
        });
        if let Some(hold) = hold {
            tokio::time::sleep(hold).await;
        }
        ring.inside.fetch_sub(1, SeqCst);
        ring.released_ns.store(ring.start.elapsed().as_nanos() as u64, SeqCst);
        contender.release().await?;
        if hold.is_some() && !ring.stop.load(SeqCst) {
            // The last one waits for nobody, so not for ever.
            let other = turns.wait_for(|count| *count > turn);
            let _ = tokio::time::timeout(Duration::from_millis(500), other).await;
        }
    }
    Ok(share)
}
