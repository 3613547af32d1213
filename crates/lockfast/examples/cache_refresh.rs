//! A hundred readers want a value that takes long to compute, at the same time. The first of them
//! computes it, the others wait for that and read; until it is stale, all just read.
//!
//! ```text
//! cargo run --example cache_refresh
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast::{Error, ErrorKind, Locker, Result};
use tokio::task::JoinSet;

const READERS: usize = 100;

/// How often the value was computed.
static COMPUTED: AtomicUsize = AtomicUsize::new(0);

/// The rates: from the store if they are fresh there, otherwise computed, here or by somebody else.
async fn rates(locker: Locker) -> Result<Vec<u8>> {
    let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
    rates
        .get(|_lease| async {
            tokio::time::sleep(Duration::from_millis(100)).await; // so much to compute
            Ok(format!("rates no. {}", COMPUTED.fetch_add(1, Ordering::Relaxed) + 1).into())
        })
        .await
}

/// Lets all readers ask at once; what they got, without repetition.
async fn read_all(locker: &Locker) -> Result<Vec<String>> {
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(rates(locker.clone()));
    }
    let mut seen = Vec::new();
    while let Some(read) = readers.join_next().await {
        let panicked = |error| Error::new(ErrorKind::Internal, "a reader").with_source(error);
        seen.push(String::from_utf8_lossy(&read.map_err(panicked)??).into_owned());
    }
    seen.sort_unstable();
    seen.dedup();
    Ok(seen)
}

/// What the readers got: at first, a moment later, and after the value was made stale.
pub(crate) async fn read_three_times() -> Result<[Vec<String>; 3]> {
    let locker = Locker::connect("memory:").await?; // any store but redlock: and zookeeper:
    let first = read_all(&locker).await?;
    let again = read_all(&locker).await?;
    locker.refresh("exchange-rates", Duration::from_secs(300))?.invalidate().await?;
    Ok([first, again, read_all(&locker).await?])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    for seen in read_three_times().await? {
        println!("{READERS} readers got {}", seen.join(", "));
    }
    Ok(())
}
