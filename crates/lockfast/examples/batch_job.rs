//! A batch job that works through a list under one lock. It looks at its lease before each item, stops
//! when the lock was taken from it, and the next run goes on where it stopped. Nothing is done twice:
//! what is written to checks the fence.
//!
//! ```text
//! cargo run --example batch_job
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lockfast::fence::Gate;
use lockfast::{Error, Locker, Result};

const INVOICES: [&str; 5] = ["2041", "2042", "2043", "2044", "2045"];

/// The invoices that were sent. It refuses a holder from before, see `fence::Gate`.
type Sent = Gate<Vec<&'static str>>;

/// Sends what has not been sent; how many that were. `after_each` is told how many are sent in all.
async fn send_invoices(
    locker: &Locker,
    sent: &Sent,
    after_each: impl AsyncFn(usize) -> Result<()>,
) -> Result<usize> {
    let guard = locker.lock("invoices").await?; // renewed in the background from here on
    let first = sent.open(&guard.token())?.len(); // raise the fence first, then read
    for (count, invoice) in (first + 1..).zip(&INVOICES[first..]) {
        guard.check()?; // ends the run when the lock is lost
        sent.check(&guard.token())?.push(invoice);
        after_each(count).await?;
    }
    guard.release().await?;
    Ok(INVOICES.len() - first)
}

/// Lets an operator take the lock away after two invoices, and runs the job again; how the first run
/// ended, how many the second one sent, and all that was sent.
pub(crate) async fn send_in_two_runs() -> Result<(Error, usize, Vec<&'static str>)> {
    let locker = Locker::connect("memory:").await?;
    let sent = Sent::new("invoices", Vec::new())?;
    let operator = async |count| {
        if count == 2 {
            locker.revoke("invoices", "the printer burns").await?;
        }
        Ok(())
    };
    let stopped = match send_invoices(&locker, &sent, operator).await {
        Err(error) => error,
        Ok(count) => unreachable!("{count} invoices were sent without the lock"),
    };
    let rest = send_invoices(&locker, &sent, async |_| Ok(())).await?;
    let guard = locker.lock("invoices").await?;
    let all = sent.open(&guard.token())?.clone();
    Ok((stopped, rest, all))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (stopped, rest, all) = send_in_two_runs().await?;
    println!("first run: {stopped}\nsecond run: {rest} invoices\nsent: {}", all.join(", "));
    Ok(())
}
