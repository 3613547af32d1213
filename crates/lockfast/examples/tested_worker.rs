//! A worker, and what is tested of it with the test kit: that it stops when its lock is taken away, when
//! its lease ends because the store cannot be reached, and that it skips what another one does. No
//! server is needed, and nothing waits until a lease has ended.
//!
//! ```text
//! cargo run --example tested_worker --features testing
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use lockfast::testing::TestKit;
use lockfast::{Locker, LossCause, Result};

const TTL: Duration = Duration::from_secs(30);

/// How a run of the worker ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Run {
    Done,
    Skipped,
    Stopped(LossCause),
}

/// The worker: it takes a locker and does not know of the kit.
async fn work(locker: &Locker, work: impl Future<Output = ()>) -> Result<Run> {
    let Some(guard) = locker.mutex("job")?.ttl(TTL).try_acquire().await?.acquired() else {
        return Ok(Run::Skipped);
    };
    let run = tokio::select! {
        cause = guard.lost() => return Ok(Run::Stopped(cause)),
        () = work => Run::Done,
    };
    guard.release().await?;
    Ok(run)
}

/// Starts a worker that never ends by itself, and does something to its lock once it has it.
async fn disturb(
    kit: &TestKit,
    locker: &Locker,
    fault: impl FnOnce() -> Result<()>,
) -> Result<Run> {
    let disturbing = async {
        kit.until_held("job").await?;
        fault()
    };
    let (run, disturbed) = tokio::join!(work(locker, std::future::pending()), disturbing);
    disturbed?;
    run
}

/// How the worker's runs ended: one after the other on the same store.
pub(crate) async fn try_everything() -> Result<[Run; 4]> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let taken_away = disturb(&kit, &locker, || kit.lose("job")).await?;
    let outage = || {
        kit.cut();
        kit.advance(TTL); // until the lease has ended
        Ok(())
    };
    let cut_off = disturb(&kit, &locker, outage).await?;
    kit.heal();
    let busy = kit.locker().await?.lock("job").await?; // another process has it
    let skipped = work(&locker, async {}).await?;
    busy.release().await?;
    let done = work(&locker, async {}).await?;
    Ok([taken_away, cut_off, skipped, done])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    for run in try_everything().await? {
        println!("{run:?}");
    }
    Ok(())
}
