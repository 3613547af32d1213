//! Taking and giving back locks that nobody else wants.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Latencies;
use crate::contender::Contender;

/// What happens before this is not counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// Lets all go round at once for so long.
pub(crate) async fn measure(contenders: Vec<Contender>, span: Duration) -> Result<Value> {
    let start = Instant::now() + WARM_UP;
    let end = start + span;
    let mut running = JoinSet::new();
    for mut contender in contenders {
        running.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let before = Instant::now();
                if before >= end {
                    return anyhow::Ok(latencies);
                }
                ensure!(contender.acquire().await?, "a free lock was not to be had");
                contender.release().await?;
                if before >= start {
                    latencies.push(before.elapsed().as_nanos() as u64);
                }
            }
        });
    }
    let mut latencies = Vec::new();
    while let Some(part) = running.join_next().await {
        latencies.extend(part??);
    }
    let rate = latencies.len() as f64 / span.as_secs_f64();
    let latencies = Latencies::new(latencies);
    let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
    Ok(json!({ "cycles_per_s": rate, "p50_us": p50, "p99_us": p99 }))
}
