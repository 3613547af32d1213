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
            let (mut takes, mut cycles) = (Vec::new(), Vec::new());
            loop {
                let before = Instant::now();
                if before >= end {
                    return anyhow::Ok((takes, cycles));
                }
                ensure!(contender.acquire().await?, "a free lock was not to be had");
                let taken = before.elapsed();
                contender.release().await?;
                if before >= start {
                    takes.push(taken.as_nanos() as u64);
                    cycles.push(before.elapsed().as_nanos() as u64);
                }
            }
        });
    }
    let (mut takes, mut cycles) = (Vec::new(), Vec::new());
    while let Some(part) = running.join_next().await {
        let (some_takes, some_cycles) = part??;
        takes.extend(some_takes);
        cycles.extend(some_cycles);
    }
    let rate = cycles.len() as f64 / span.as_secs_f64();
    let (takes, cycles) = (Latencies::new(takes), Latencies::new(cycles));
    Ok(json!({
        "cycles_per_s": rate,
        "p50_us": cycles.percentile(50),
        "p99_us": cycles.percentile(99),
        "acquire_p50_us": takes.percentile(50),
    }))
}
