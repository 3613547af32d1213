//! Two workers, of which one works at a time: the one that was elected. When it goes, the other takes
//! over, with a higher term. The first one here resigns; if it died, the other would be elected when
//! its lease has ended.
//!
//! ```text
//! cargo run --example elected_worker
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;

use lockfast::fence::Gate;
use lockfast::{Fence, LeaderEvent, Locker, Result};

/// What was done, by whom and in which term. It refuses a leader from before, see `fence::Gate`.
type Log = Gate<Vec<(&'static str, Fence)>>;

/// Waits to be elected, does so many pieces of work, and makes room for the next.
async fn work(store: &str, name: &'static str, pieces: usize, log: &Log) -> Result<()> {
    let locker = Locker::connect(store).await?; // each worker has a connection of its own
    let mut campaign = locker.leader("worker")?.campaign()?;
    let mut left = pieces;
    while left > 0 {
        // The next event: an election now, or, after a deposal, some time later.
        let LeaderEvent::Elected { term, lease } = campaign.next().await? else { continue };
        // A worker that has lost its term leaves the loop and stands for election again.
        while left > 0 && lease.is_held() {
            log.check(&lease.token())?.push((name, term));
            left -= 1;
        }
    }
    campaign.resign().await?;
    Ok(())
}

/// Lets two workers do their pieces of work; what was done, in this order.
pub(crate) async fn work_in_turns(directory: &Path) -> Result<Vec<(&'static str, Fence)>> {
    let store = format!("embedded:{}", directory.display());
    let log = Log::new("worker", Vec::new())?;
    let (one, other) = tokio::join!(work(&store, "one", 3, &log), work(&store, "other", 3, &log));
    one?;
    other?;
    Ok(log.into_inner())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    for (name, term) in work_in_turns(directory.path()).await? {
        println!("worker {name} worked in term {term}");
    }
    Ok(())
}
