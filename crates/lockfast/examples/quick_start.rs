//! Takes a lock in the embedded store, works under it, gives it back. Start it twice at once:
//! the second waits for the first.
//!
//! ```text
//! cargo run --example quick_start
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use lockfast::{FenceGate, Locker, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("embedded:").await?;
    let report = locker
        .mutex("nightly-report")?
        .with(Options::default().ttl(Duration::from_secs(10)).wait(Duration::from_secs(60)))?;

    // It stands for whatever checks fences where you write: a row, a key, a service.
    let gate = FenceGate::new();

    let guard = report.acquire().await?;
    gate.admit(&guard.token())?;
    let checked = guard.check()?;
    println!("write with fence {}, {:?} left", checked.fence, checked.remaining);
    println!("release: {:?}", guard.release().await?);
    Ok(())
}
