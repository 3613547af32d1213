use std::time::Duration;

use lockfast::{Locker, Ran};

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let job =
        locker.once("nightly-report", Duration::from_secs(600))?.at_least(Duration::from_secs(60));
    match job.run(|lease| async move { lease.fence() }).await? {
        Ran::Done(fence) => println!("done with fence {fence}"),
        Ran::Skipped(refusal) => println!("skipped: {refusal}"),
    }
    match job.run(|_| async {}).await? {
        Ran::Done(()) => unreachable!("it just ran"),
        Ran::Skipped(refusal) => println!("skipped: {refusal}"),
    }
    Ok(())
}
