//! A line of waiters of one process, who all wait before the first of them is served.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Latencies;
use crate::contender::Connection;

const HOLD: Duration = Duration::from_millis(2);
/// How many of them are looked at.
const LOOKS: usize = 200;

/// Lets so many of one process stand in line first, and then serves some of them.
pub(crate) async fn serve(url: &str, line: usize) -> Result<Value> {
    let locker = lockfast::Locker::connect(url).await?;
    let name = format!("line-of-{line}");
    let connection = Connection::Lockfast(locker.clone());
    let mut first = connection.contender(name.clone())?;
    first.acquire().await?;
    let (start, released) = (Instant::now(), Arc::new(Mutex::new(None)));
    let looks = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for _ in 0..line {
        let mut contender = connection.contender(name.clone())?;
        let (released, looks) = (Arc::clone(&released), Arc::clone(&looks));
        waiting.spawn(async move {
            contender.acquire().await?;
            let now = start.elapsed();
            let last: Option<Duration> = *released.lock().ok().context("a thread panicked")?;
            let took = now.saturating_sub(last.unwrap_or(now)).as_nanos() as u64;
            looks.lock().ok().context("a thread panicked")?.push(took);
            tokio::time::sleep(HOLD).await;
            *released.lock().ok().context("a thread panicked")? = Some(start.elapsed());
            contender.release().await
        });
    }
    while locker.inspect(&name).await?.waiting < line {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    *released.lock().ok().context("a thread panicked")? = Some(start.elapsed());
    first.release().await?;
    for _ in 0..line.min(LOOKS) {
        waiting.join_next().await.context("nobody waits")???;
    }
    waiting.abort_all();
    let looks = Latencies::new(looks.lock().ok().context("a thread panicked")?.clone());
    Ok(json!({ "p50_us": looks.percentile(50), "p99_us": looks.percentile(99) }))
}
