//! Takes a lock in the embedded store, works under it, gives it back. Start it twice at once:
//! the second waits for the first.
//!
//! ```text
//! cargo run --example quick_start
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use lockfast::Locker;
use lockfast::fence::Gate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("embedded:").await?;
    let report =
        locker.mutex("nightly-report")?.ttl(Duration::from_secs(10)).wait(Duration::from_secs(60));

    // What is written to checks fences: here a number, elsewhere a row, a key, a service.
    let gate = Gate::new("nightly-report", 0)?;

    let guard = report.acquire().await?;
    let pages = *gate.open(&guard.token())?;
    let checked = guard.check()?;
    println!("write with fence {}, {:?} left", checked.fence, checked.remaining);
    *gate.check(&guard.token())? = pages + 1;
    println!("release: {:?}", guard.release().await?);
    Ok(())
}
