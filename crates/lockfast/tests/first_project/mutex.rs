use std::time::Duration;

use lockfast::Locker;

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let guard = locker
        .mutex("nightly-report")?
        .ttl(Duration::from_secs(10))
        .wait(Duration::from_secs(60))
        .acquire()
        .await?;
    let checked = guard.check()?;
    println!("fence {}, {:?} left", checked.fence, checked.remaining);
    guard.release().await?;
    locker.shutdown().await;
    Ok(())
}
