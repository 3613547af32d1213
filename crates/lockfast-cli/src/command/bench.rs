//! `lockfast bench`: how fast a store is for locks. All numbers of one run come from one process,
//! so they compare with each other, not with other machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lockfast::{Guard, Locker, Moment};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::task::JoinSet;

use crate::args::{BenchKind, Global};
use crate::exit::{Failure, Outcome};
use crate::output::{Output, write_out};
use crate::plan::Store;

/// How many acquisitions are in flight while the leases to be renewed are taken.
const AT_ONCE: u32 = 256;

/// Measures.
///
/// # Errors
/// When the store fails.
///
/// # Cancel safety
/// Nothing stays locked.
pub(crate) async fn run(what: &BenchKind, global: &Global, output: &Output) -> Outcome {
    let store = Store::choose(global, output)?;
    match *what {
        BenchKind::Cycle { tasks, seconds } => cycle(&store, tasks, seconds, output).await,
        BenchKind::Handover { waiters, seconds } => {
            handover(&store, waiters, seconds, output).await
        }
        BenchKind::Renew { leases, seconds } => renew(&store, leases, seconds, output).await,
    }
}

/// Names that no other user of the store, nor another bench, has.
fn name(kind: &str, number: u32) -> String {
    format!("lockfast-bench/{kind}/{}/{number}", std::process::id())
}

async fn cycle(store: &Store, tasks: u32, seconds: u64, output: &Output) -> Outcome {
    let locker = store.connect(Locker::builder()).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let start = Moment::now();
    let mut running = JoinSet::new();
    for number in 0..tasks {
        let lock = locker.mutex(name("cycle", number))?;
        let stop = Arc::clone(&stop);
        running.spawn(async move {
            let mut latencies = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let before = Moment::now();
                lock.acquire().await?.release().await?;
                latencies.push(micros(Moment::now().since(before)));
                // A store that never has to wait would keep the clock from running out.
                if latencies.len().is_multiple_of(64) {
                    tokio::task::yield_now().await;
                }
            }
            Ok(latencies)
        });
    }
    let per_task = gather(running, &stop, seconds, output).await?;
    let elapsed = Moment::now().since(start);
    let latencies = Latencies::new(per_task.into_iter().flatten().collect());
    let rate = latencies.count() as f64 / elapsed.as_secs_f64();
    let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
    if output.json() {
        let value = json!({ "cycles_per_s": round(rate), "p50_us": p50, "p99_us": p99 });
        output.value(&value)?;
    } else {
        write_out(&format!(
            "{rate:.0} cycles/s with {tasks} at once, p50 {p50} us, p99 {p99} us\n"
        ))?;
    }
    Ok(0)
}

async fn handover(store: &Store, waiters: u32, seconds: u64, output: &Output) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    // When the lock was let go last: whoever gets it next was waiting since.
    let released_at = Arc::new(AtomicU64::new(0));
    // All are there before the first begins, or it would pass the lock to itself.
    let mut locks = Vec::new();
    for _ in 0..waiters {
        let locker = store.connect(Locker::builder()).await?;
        locks.push(locker.mutex(name("handover", 0))?);
    }
    let mut running = JoinSet::new();
    let start = Moment::now();
    for lock in locks {
        let (stop, released_at) = (Arc::clone(&stop), Arc::clone(&released_at));
        running.spawn(async move {
            let mut latencies = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.acquire().await?;
                let now = Moment::now().host_ns();
                let before = released_at.load(Ordering::Acquire);
                if before > 0 {
                    latencies.push(now.saturating_sub(before) / 1000);
                }
                released_at.store(Moment::now().host_ns(), Ordering::Release);
                guard.release().await?;
            }
            Ok(latencies)
        });
    }
    let per_waiter = gather(running, &stop, seconds, output).await?;
    let elapsed = Moment::now().since(start);
    let most = per_waiter.iter().map(Vec::len).max().unwrap_or(0);
    let least = per_waiter.iter().map(Vec::len).min().unwrap_or(0);
    let fairness = most as f64 / least.max(1) as f64;
    let latencies = Latencies::new(per_waiter.into_iter().flatten().collect());
    let rate = latencies.count() as f64 / elapsed.as_secs_f64();
    let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
    if output.json() {
        output.value(&json!({
            "handovers_per_s": round(rate),
            "p50_us": p50,
            "p99_us": p99,
            "most_over_least": round(fairness),
        }))?;
    } else {
        write_out(&format!(
            "{rate:.0} handovers/s between {waiters}, p50 {p50} us, p99 {p99} us, the luckiest got \
             it {fairness:.2} times as often as the unluckiest\n"
        ))?;
    }
    Ok(0)
}

async fn renew(store: &Store, leases: u32, seconds: u64, output: &Output) -> Outcome {
    let locker = store.connect(Locker::builder()).await?;
    let guards = take_many(&locker, leases).await?;
    let mut census = Census::new(&guards);
    let (start, cpu_before) = (Moment::now(), cpu_time(ClockId::ProcessCPUTime));
    let bar = progress(seconds, output);
    for tick in 1..=seconds * 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bar.inc(1);
        if tick.is_multiple_of(20) || tick == seconds * 10 {
            census.take(&guards);
        }
    }
    bar.finish_and_clear();
    let elapsed = Moment::now().since(start).as_secs_f64();
    let cpu = cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu_before + census.cost);
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    release_all(guards).await;
    if lost > 0 {
        return Err(Failure::internal("leases were lost", format!("{lost} of {leases}")));
    }
    let rate = census.renewals as f64 / elapsed;
    let cpu_ms_per_10k = cpu.as_secs_f64() * 1e7 / (census.renewals.max(1) as f64);
    let core_percent = cpu.as_secs_f64() / elapsed * 100.0;
    if output.json() {
        output.value(&json!({
            "renewals_per_s": round(rate),
            "cpu_ms_per_10k": round(cpu_ms_per_10k),
            "core_percent": round(core_percent),
        }))?;
    } else {
        write_out(&format!(
            "{rate:.0} renewals/s for {leases} leases, {cpu_ms_per_10k:.2} ms of CPU for 10000, \
             {core_percent:.2} % of a core\n"
        ))?;
    }
    Ok(0)
}

/// Counts renewals by looking at the deadlines more often than a lease is renewed.
struct Census {
    deadlines: Vec<u64>,
    renewals: u64,
    /// The CPU time that counting took, which is not the keeper's.
    cost: Duration,
}

impl Census {
    fn new(guards: &[Guard]) -> Self {
        let deadlines = guards.iter().map(|guard| guard.deadline().host_ns()).collect();
        Self { deadlines, renewals: 0, cost: Duration::ZERO }
    }

    fn take(&mut self, guards: &[Guard]) {
        let before = cpu_time(ClockId::ThreadCPUTime);
        for (known, guard) in self.deadlines.iter_mut().zip(guards) {
            let deadline = guard.deadline().host_ns();
            self.renewals += u64::from(*known != deadline);
            *known = deadline;
        }
        self.cost += cpu_time(ClockId::ThreadCPUTime).saturating_sub(before);
    }
}

async fn take_many(locker: &Locker, leases: u32) -> Result<Vec<Guard>, Failure> {
    let mut guards = Vec::with_capacity(leases as usize);
    let mut taking = JoinSet::new();
    for number in 0..leases {
        let lock = locker.mutex(name("renew", number))?;
        taking.spawn(async move { lock.acquire().await });
        while taking.len() >= AT_ONCE as usize {
            guards.extend(next(&mut taking).await?);
        }
    }
    while !taking.is_empty() {
        guards.extend(next(&mut taking).await?);
    }
    Ok(guards)
}

async fn release_all(guards: Vec<Guard>) {
    let mut releasing = JoinSet::new();
    for guard in guards {
        releasing.spawn(guard.release());
        if releasing.len() >= AT_ONCE as usize {
            releasing.join_next().await;
        }
    }
    while releasing.join_next().await.is_some() {}
}

async fn next<T: 'static>(set: &mut JoinSet<lockfast::Result<T>>) -> Result<Option<T>, Failure> {
    match set.join_next().await {
        None => Ok(None),
        Some(Ok(result)) => Ok(Some(result?)),
        Some(Err(error)) => Err(Failure::internal("a task failed", error)),
    }
}

/// Lets the tasks run for so long, then collects what each measured.
async fn gather<T: 'static>(
    mut running: JoinSet<lockfast::Result<T>>,
    stop: &AtomicBool,
    seconds: u64,
    output: &Output,
) -> Result<Vec<T>, Failure> {
    let bar = progress(seconds, output);
    let mut results = Vec::new();
    for _ in 0..seconds * 10 {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => bar.inc(1),
            // A task that ends early has failed.
            result = next(&mut running), if !running.is_empty() => results.extend(result?),
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(result) = next(&mut running).await? {
        results.push(result);
    }
    bar.finish_and_clear();
    Ok(results)
}

fn progress(seconds: u64, output: &Output) -> ProgressBar {
    if !output.is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seconds * 10);
    if let Ok(style) = ProgressStyle::with_template("measuring [{bar:30}] {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// The CPU time that this process (all threads together) or this thread has used.
fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Measured times in microseconds, sorted.
struct Latencies(Vec<u64>);

impl Latencies {
    fn new(mut micros: Vec<u64>) -> Self {
        micros.sort_unstable();
        Self(micros)
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn percentile(&self, percent: usize) -> u64 {
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let latencies = Latencies::new((1..=100).rev().collect());
        assert_eq!((latencies.percentile(50), latencies.percentile(99)), (51, 100));
        assert_eq!(Latencies::new(Vec::new()).percentile(50), 0);
    }
}
