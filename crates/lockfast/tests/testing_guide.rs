//! The code of the guide to the test kit, `docs/guides/testing.md`, as it stands there.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use lockfast::testing::TestKit;
use lockfast::{Error, ErrorKind, Locker, Result};

async fn work(locker: &Locker) -> Result<String> {
    let guard = locker.mutex("job")?.ttl(Duration::from_secs(30)).acquire().await?;
    tokio::select! {
        cause = guard.lost() => Ok(format!("stopped: {cause}")),
        () = tokio::time::sleep(Duration::from_secs(3600)) => Ok("done".into()), // the work
    }
}

#[tokio::test]
async fn work_stops_when_the_lock_is_lost() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let lose = async {
        kit.until_held("job").await?; // no sleep: it waits for the code under test
        kit.lose("job")
    };
    let (said, lost) = tokio::join!(work(&locker), lose);
    lost?;
    assert_eq!(said?, "stopped: an operator released it by force: the test kit took it");
    Ok(())
}

#[tokio::test]
async fn work_stops_when_the_store_is_gone_for_too_long() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let outage = async {
        kit.until_held("job").await?;
        kit.cut();
        kit.advance(Duration::from_secs(30)); // the lease has ended, and no time has passed
        kit.heal();
        Ok::<_, Error>(())
    };
    let (said, over) = tokio::join!(work(&locker), outage);
    over?;
    assert_eq!(said?, "stopped: its deadline passed before it was renewed");
    Ok(())
}

#[tokio::test]
async fn another_process_has_the_lock_and_sleeps() -> Result<()> {
    let kit = TestKit::new()?;
    let (ours, theirs) = (kit.locker().await?, kit.locker().await?); // two processes
    let busy = theirs.mutex("job")?.ttl(Duration::from_secs(30)).acquire().await?;
    assert!(!ours.mutex("job")?.try_acquire().await?.is_acquired());
    kit.advance(Duration::from_secs(30)); // it slept for longer than its lease lasts
    assert!(!busy.is_held());
    let guard = ours.lock("job").await?;
    assert!(guard.fence().get() > busy.fence().get());
    Ok(())
}

#[test]
fn blocking_work_meets_a_refusal() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.blocking_locker()?;
    kit.refuse();
    assert_eq!(locker.lock("job").unwrap_err().kind(), ErrorKind::Permission);
    kit.heal();
    locker.lock("job")?.release()?;
    Ok(())
}

/// What the guide shows is what runs here.
#[test]
fn the_guide_shows_this_code() {
    let guide = include_str!("../../../docs/guides/testing.md");
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        let code = block.split("```").next().unwrap();
        assert!(include_str!("testing_guide.rs").contains(code), "{code}");
    }
}
