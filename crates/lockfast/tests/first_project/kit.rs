use std::time::Duration;

use lockfast::testing::TestKit;
use lockfast::{Locker, Result};

async fn work(locker: &Locker) -> Result<String> {
    let guard = locker.mutex("job")?.acquire().await?;
    tokio::select! {
        cause = guard.lost() => Ok(format!("stopped: {cause}")),
        () = tokio::time::sleep(Duration::from_secs(3600)) => Ok("done".to_owned()),
    }
}

#[tokio::test]
async fn stops_when_the_lock_is_lost() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let task = tokio::spawn(async move { work(&locker).await });
    kit.until_held("job").await?;
    kit.lose("job")?;
    assert!(task.await.unwrap()?.starts_with("stopped: "));
    Ok(())
}

#[tokio::test]
async fn stops_when_its_time_is_over() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let task = tokio::spawn(async move { work(&locker).await });
    kit.until_held("job").await?;
    kit.cut();
    kit.advance(Duration::from_secs(60));
    kit.heal();
    assert!(task.await.unwrap()?.starts_with("stopped: "));
    Ok(())
}
