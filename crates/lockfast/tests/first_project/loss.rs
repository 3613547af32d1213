use std::time::Duration;

use lockfast::{Guard, Locker};

async fn work(time: Duration) -> u32 {
    tokio::time::sleep(time).await;
    42
}

async fn unless_lost(guard: &Guard, time: Duration) -> Option<u32> {
    tokio::select! {
        cause = guard.lost() => {
            println!("stopped: {cause}");
            None
        }
        result = work(time) => Some(result),
    }
}

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let guard = locker.mutex("job")?.acquire().await?;
    assert_eq!(unless_lost(&guard, Duration::from_millis(10)).await, Some(42));

    // An operator takes it away.
    let (result, revoked) = tokio::join!(
        unless_lost(&guard, Duration::from_secs(3600)),
        locker.revoke("job", "maintenance"),
    );
    revoked?;
    assert_eq!(result, None);
    assert!(guard.check().is_err());

    // The same without select!
    let mutex = locker.mutex("job")?;
    let result = mutex.run(|_lease| work(Duration::from_millis(10))).await?;
    assert_eq!(result, 42);
    Ok(())
}
