//! What the test kit promises to tests: faults reach the code under test, and time is not waited for.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails the test")]

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use lockfast::testing::TestKit;
use lockfast::{
    ErrorKind, LeaderEvent, LeaseStatus, Locker, LossCause, Moment, Options, Released, Result,
};

const TTL: Duration = Duration::from_secs(600);

/// Far less than any ttl here, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// What a future brings, which must not wait for a lease in real time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let start = Moment::now();
    let value = tokio::time::timeout(SOON, future).await.expect("it waits in real time");
    assert!(Moment::now().since(start) < SOON);
    value
}

/// The future until it waits for something.
async fn begin<F: Future>(mut future: std::pin::Pin<&mut F>) {
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "it waits");
        std::task::Poll::Ready(())
    })
    .await;
}

async fn kit_and_locker() -> Result<(TestKit, Locker)> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    Ok((kit, locker))
}

#[tokio::test]
async fn a_lease_ends_when_the_clock_says_so() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let (other_kit, other) = kit_and_locker().await?;
    let mutex = locker.mutex("job")?.ttl(TTL);
    let guard = mutex.acquire().await?;
    let beside = other.mutex("job")?.ttl(TTL).acquire().await?;
    let mut waiting = pin!(mutex.acquire());
    begin(waiting.as_mut()).await;
    let mut lost = pin!(guard.lost());
    begin(lost.as_mut()).await;
    kit.advance(TTL);
    assert_eq!(soon(lost).await, LossCause::Expired { last_failure: None });
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    // Whoever waits in line has it then.
    let next = soon(waiting).await?;
    assert!(next.fence().get() > guard.fence().get());
    assert!(next.remaining() > TTL / 2, "{:?}", next.remaining());
    beside.check()?;
    other_kit.advance(TTL);
    assert!(!beside.is_held());
    next.check()?;
    Ok(())
}

/// Leases are renewed by the clock of the kit, too.
#[tokio::test]
async fn a_cut_store_puts_leases_in_jeopardy_until_it_is_healed() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let guard = locker.mutex("job")?.ttl(TTL).acquire().await?;
    let mut changes = guard.changes();
    assert_eq!(changes.next().await, LeaseStatus::Held);
    kit.advance(TTL / 2);
    assert_eq!(soon(changes.next()).await, LeaseStatus::Held, "it was renewed");
    assert!(guard.remaining() > TTL * 9 / 10, "{:?}", guard.remaining());
    kit.cut();
    kit.advance(TTL / 2);
    let status = soon(changes.next()).await;
    assert!(matches!(status, LeaseStatus::Jeopardy { .. }), "{status:?}");
    kit.heal();
    kit.advance(TTL / 4);
    while soon(changes.next()).await != LeaseStatus::Held {}
    kit.cut();
    kit.advance(TTL / 2);
    let status = soon(changes.next()).await;
    assert!(matches!(status, LeaseStatus::Jeopardy { .. }), "{status:?}");
    kit.advance(TTL);
    let LossCause::Expired { last_failure: Some(failure) } = soon(guard.lost()).await else {
        panic!("it was lost for another reason")
    };
    assert!(failure.contains("cut by a test"), "{failure}");
    kit.heal();
    assert!(!guard.is_held(), "what was lost stays lost");
    Ok(())
}

#[tokio::test]
async fn who_waits_is_cut_off_and_gives_up_when_its_time_is_over() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let _held = locker.mutex("job")?.ttl(100 * TTL).acquire().await?;
    let mutex = locker.mutex("job")?.ttl(TTL).wait(TTL);
    let mut waiting = pin!(mutex.acquire());
    begin(waiting.as_mut()).await;
    kit.advance(TTL);
    assert_eq!(soon(waiting).await.unwrap_err().kind(), ErrorKind::Taken);
    let once = locker.mutex("job")?.with_options(Options::default().ttl(TTL).wait(TTL).retries(0));
    let mut waiting = pin!(once.acquire());
    begin(waiting.as_mut()).await;
    kit.cut();
    assert_eq!(soon(waiting).await.unwrap_err().kind(), ErrorKind::Unreachable);
    kit.heal();
    Ok(())
}

#[tokio::test]
async fn what_is_paused_goes_on_or_runs_out_of_time() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let job = locker.mutex("job")?.with_options(Options::default().ttl(TTL).retries(0));
    kit.pause();
    {
        let mut asking = pin!(job.acquire());
        begin(asking.as_mut()).await;
        kit.heal();
        soon(asking).await?.release().await?;
    }
    kit.pause();
    let mut trying = pin!(job.try_acquire());
    begin(trying.as_mut()).await;
    kit.advance(TTL); // more than any time limit of a request
    assert_eq!(soon(trying).await.unwrap_err().kind(), ErrorKind::Unreachable);
    kit.heal();
    let guard = soon(job.acquire()).await?;
    kit.pause();
    let mut releasing = pin!(guard.release());
    begin(releasing.as_mut()).await;
    kit.advance(TTL);
    let released = soon(releasing).await?;
    assert!(matches!(released, Released::Unknown { .. }), "{released:?}");
    kit.heal();
    soon(job.acquire()).await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_loss_has_the_cause_that_the_test_gave() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let causes = [
        LossCause::Taken { by: Some("worker 2".into()) },
        LossCause::Forgotten,
        LossCause::SessionEnded,
        LossCause::DataLost,
        LossCause::Revoked { reason: "maintenance".into() },
    ];
    for cause in causes {
        let guard = locker.lock("job").await?;
        kit.lose_with("job", cause.clone())?;
        assert_eq!(soon(guard.lost()).await, cause);
    }
    let readers = locker.rwlock("catalog")?;
    let both = (readers.read().await?, readers.read().await?);
    kit.lose("catalog")?;
    assert!(!both.0.is_held() && !both.1.is_held());
    assert_eq!(kit.lose("job").unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(kit.lose("").unwrap_err().kind(), ErrorKind::InvalidName);
    Ok(())
}

#[tokio::test]
async fn jobs_and_elections_go_by_the_same_clock() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let job = locker.once("report", TTL)?.at_least(TTL / 2);
    let run = job.start().await?.acquired().unwrap();
    run.finish().await?;
    assert!(!job.start().await?.is_acquired(), "it has just run");
    kit.advance(TTL);
    assert!(job.start().await?.is_acquired());

    let mut campaign = locker.leader("scheduler")?.ttl(TTL).campaign()?;
    let LeaderEvent::Elected { term, .. } = soon(campaign.next()).await? else {
        panic!("nobody else stands")
    };
    kit.lose("scheduler")?;
    let deposed = soon(campaign.next()).await?;
    assert!(matches!(deposed, LeaderEvent::Deposed { .. }), "{deposed:?}");
    let LeaderEvent::Elected { term: next, .. } = soon(campaign.next()).await? else {
        panic!("it stands again")
    };
    assert!(next.get() > term.get());
    Ok(())
}

/// The paused time of tokio is for the caller's own timers, and does not disturb leases.
#[tokio::test(start_paused = true)]
async fn a_kit_works_under_paused_time() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let guard = locker.mutex("job")?.ttl(TTL).acquire().await?;
    tokio::time::advance(2 * TTL).await;
    guard.check()?;
    kit.advance(TTL);
    assert_eq!(guard.lost().await, LossCause::Expired { last_failure: None });
    Ok(())
}

#[test]
fn code_without_an_executor_has_the_same_kit() -> Result<()> {
    let kit = TestKit::new()?;
    let (ours, theirs) = (kit.blocking_locker()?, kit.clone().blocking_locker()?);
    let guard = ours.mutex("job")?.ttl(TTL).acquire()?;
    assert!(!theirs.mutex("job")?.try_acquire()?.is_acquired());
    kit.advance(TTL);
    assert_eq!(guard.lost_within(SOON)?, Some(LossCause::Expired { last_failure: None }));
    theirs.lock("job")?.release()?;
    Ok(())
}

#[tokio::test]
async fn a_test_that_waits_for_nothing_is_told() -> Result<()> {
    let kit = TestKit::new()?;
    let error = kit.until_held("job").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    assert!(error.to_string().contains("within 10s"), "{error}");
    Ok(())
}

/// Who has a guard or waits goes on, however many shut down what they were made from.
#[tokio::test]
async fn a_shutdown_leaves_guards_and_those_who_wait() -> Result<()> {
    let (kit, ours) = kit_and_locker().await?;
    let theirs = kit.locker().await?;
    let guard = ours.mutex("job")?.ttl(TTL).acquire().await?;
    let busy = theirs.mutex("other")?.ttl(100 * TTL).acquire().await?;
    let mutex = ours.mutex("other")?.ttl(TTL);
    let mut waiting = pin!(mutex.acquire());
    begin(waiting.as_mut()).await;
    soon(ours.clone().shutdown()).await;
    soon(ours.shutdown()).await;
    assert!(!theirs.mutex("job")?.try_acquire().await?.is_acquired());
    let mut changes = guard.changes();
    assert_eq!(changes.next().await, LeaseStatus::Held);
    kit.advance(TTL / 2);
    assert_eq!(soon(changes.next()).await, LeaseStatus::Held, "it is still renewed");
    busy.release().await?;
    soon(waiting).await?.release().await?;
    assert!(matches!(guard.release().await?, Released::Released));
    assert!(theirs.mutex("job")?.try_acquire().await?.is_acquired());
    Ok(())
}

/// A store that is gone is waited for until what was dropped has ended by itself, and no longer.
#[tokio::test]
async fn a_shutdown_ends_although_the_store_is_gone() -> Result<()> {
    let (kit, locker) = kit_and_locker().await?;
    let guard = locker.mutex("job")?.ttl(TTL).acquire().await?;
    kit.cut();
    drop(guard);
    let mut shutdown = pin!(locker.shutdown());
    begin(shutdown.as_mut()).await;
    kit.advance(2 * TTL);
    soon(shutdown).await;
    kit.heal();
    Ok(())
}

/// Leases are kept by threads of their own, so a runtime that ends first takes nothing along.
#[test]
fn a_runtime_that_ends_first_loses_nothing() -> Result<()> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (kit, first) = (TestKit::new()?, runtime());
    let (locker, guard) = first.block_on(async {
        let locker = kit.locker().await?;
        let guard = locker.mutex("job")?.ttl(TTL).acquire().await?;
        Ok::<_, lockfast::Error>((locker, guard))
    })?;
    drop(first);
    let mut changes = guard.changes();
    runtime().block_on(async {
        assert_eq!(changes.next().await, LeaseStatus::Held);
        kit.advance(TTL / 2);
        assert_eq!(soon(changes.next()).await, LeaseStatus::Held, "it is still renewed");
    });
    drop(guard);
    // The last locker waits until that is given back.
    drop(locker);
    let other = kit.blocking_locker()?;
    assert!(other.mutex("job")?.try_acquire()?.acquired().is_some());
    Ok(())
}
