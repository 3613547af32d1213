//! What people write at first try, without having read the documentation: it compiles and does what
//! it looks like.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use lockfast::testing::TestKit;
use lockfast::{
    AnyLock, Attempt, ErrorKind, Holder, LockName, Locker, LossCause, Mode, MultiLock, Mutex,
    Options, Result, RevokeOutcome, RwLock, Semaphore,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_lock_with_a_ttl() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let guard = locker.mutex("job")?.ttl(10 * SECOND).wait(5 * SECOND).acquire().await?;
    assert!(guard.remaining() <= 10 * SECOND);
    guard.release().await?;
    let guard = locker.lock("job").await?;
    assert_eq!(guard.mode(), Mode::Exclusive);
    Ok(())
}

#[tokio::test]
async fn a_try_is_an_option_or_a_match() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let mutex: Mutex = locker.mutex("job")?;
    let Some(guard) = mutex.try_acquire().await?.acquired() else { panic!("nobody has it") };
    assert!(mutex.try_acquire().await?.acquired().is_none());
    assert!(!mutex.try_acquire().await?.is_acquired());
    match mutex.try_acquire().await? {
        Attempt::Acquired(_) => panic!("it is held"),
        Attempt::Taken(refusal) => assert_eq!(refusal.lock.holders[0].fence, Some(guard.fence())),
    }
    let error = mutex.clone().wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken);
    Ok(())
}

#[tokio::test]
async fn readers_and_writers() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let rw: RwLock = locker.rwlock("catalog")?.ttl(10 * SECOND);
    let one = rw.read().await?;
    let two = rw.read().await?;
    assert!(!rw.try_write().await?.is_acquired());
    drop((one, two));
    locker.settled().await;
    let writer = rw.write().await?;
    assert!(!rw.try_read().await?.is_acquired());
    writer.release().await?;
    assert_eq!(rw.run_read(|lease| async move { lease.mode() }).await?, Mode::Shared);
    assert_eq!(rw.run_write(|lease| async move { lease.mode() }).await?, Mode::Exclusive);
    Ok(())
}

#[tokio::test]
async fn a_semaphore_is_no_mutex() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let builds: Semaphore = locker.semaphore("build", 2)?.ttl(10 * SECOND);
    let _two = (builds.acquire().await?, builds.acquire().await?);
    assert!(!builds.try_acquire().await?.is_acquired());
    Ok(())
}

#[tokio::test]
async fn several_locks_at_once() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let both: MultiLock = locker.multi(["b", "a"])?.ttl(10 * SECOND).wait(SECOND);
    let guard = both.acquire().await?;
    let names: Vec<_> = guard.tokens().into_iter().map(|token| token.lock.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(guard.fences().len(), 2);
    assert_eq!(guard.check()?, guard.tokens());
    assert!(!both.try_acquire().await?.is_acquired());
    guard.release().await?;
    assert_eq!(both.run(|leases| async move { leases.len() }).await?, 2);

    let names: Vec<String> = vec!["c".into(), "d".into()];
    drop(locker.multi(&names)?.acquire().await?);
    let mixed: [AnyLock; 3] = [
        locker.rwlock("catalog")?.reader(),
        locker.mutex("order")?.into(),
        locker.semaphore("build", 2)?.into(),
    ];
    let guard = MultiLock::new(mixed)?.acquire().await?;
    let modes: Vec<_> = guard.leases().map(|lease| lease.mode()).collect();
    assert_eq!(modes, [Mode::permit(2)?, Mode::Shared, Mode::Exclusive]);
    Ok(())
}

/// One waiting time counts for all together, and it is the shortest.
#[tokio::test]
async fn several_locks_have_one_deadline() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let _held = locker.lock("z").await?;
    let start = lockfast::Moment::now();
    let patient: AnyLock = locker.mutex("a")?.wait_forever().into();
    let hasty: AnyLock = locker.mutex("z")?.wait(SECOND / 10).into();
    let error = MultiLock::new([patient, hasty])?.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken);
    assert!(lockfast::Moment::now().since(start) < 10 * SECOND);
    locker.settled().await;
    assert!(locker.inspect("a").await?.holders.is_empty(), "the first was given back");
    Ok(())
}

#[tokio::test]
async fn names_are_text() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let name: LockName = "job".parse()?;
    assert_eq!("".parse::<LockName>().unwrap_err().kind(), ErrorKind::InvalidName);
    let guard = locker.lock(&name).await?;
    assert_eq!(locker.inspect("job").await?.holders.len(), 1);
    assert_eq!(locker.inspect(name.to_string()).await?.holders.len(), 1);
    assert_eq!(locker.inspect(&name).await?.name, name);
    let revoked = locker.revoke("job", "maintenance").await?;
    assert!(matches!(revoked, RevokeOutcome::Revoked(_)), "{revoked:?}");
    assert_eq!(guard.lost().await, LossCause::Revoked { reason: "maintenance".into() });
    let next = locker.lock("job").await?;
    let other = locker.revoke_fence("job", guard.fence(), "too late").await?;
    assert!(matches!(other, RevokeOutcome::OtherFence(_)), "{other:?}");
    next.check()?;
    assert_eq!(locker.inspect("").await.unwrap_err().kind(), ErrorKind::InvalidName);
    Ok(())
}

#[tokio::test]
async fn a_lock_within_the_lock() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let mutex = locker.mutex("job")?;
    let me = Holder::new();
    let outer = mutex.acquire_as(&me).await?;
    let inner = mutex.acquire_as(&me).await?;
    assert_eq!(outer.fence(), inner.fence());
    Ok(())
}

#[tokio::test]
async fn errors_go_through_anything() {
    async fn work() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let locker = Locker::connect("memory:").await?;
        drop(locker.mutex("job")?.ttl(Duration::ZERO).acquire().await?);
        Ok(())
    }
    let error = work().await.unwrap_err();
    assert!(error.to_string().contains("a ttl of 0ns is not possible"), "{error}");
    let error = Locker::connect("memory").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
}

#[tokio::test]
async fn a_loss_ends_the_work() -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    let guard = locker.lock("job").await?;
    let work = async {
        locker.revoke("job", "maintenance").await?;
        std::future::pending::<Result<()>>().await
    };
    let lost = tokio::select! {
        cause = guard.lost() => cause,
        done = work => panic!("it does not end by itself: {done:?}"),
    };
    assert_eq!(lost, LossCause::Revoked { reason: "maintenance".into() });
    assert_eq!(guard.check().unwrap_err().loss(), Some(&lost));
    assert!(!guard.is_held());
    Ok(())
}

#[tokio::test]
async fn a_test_of_the_loss() -> Result<()> {
    let kit = TestKit::new()?;
    let locker = kit.locker().await?;
    let guard = locker.lock("job").await?;
    kit.lose("job")?;
    guard.lost().await;
    assert!(guard.check().is_err());
    Ok(())
}

#[test]
fn without_async() -> Result<()> {
    use lockfast::blocking::Locker;
    let locker = Locker::connect("memory:")?;
    let guard = locker.mutex("job")?.ttl(10 * SECOND).acquire()?;
    assert!(locker.mutex("job")?.try_acquire()?.acquired().is_none());
    assert_eq!(locker.inspect("job")?.holders[0].fence, Some(guard.fence()));
    guard.release()?;
    let rw = locker.rwlock("catalog")?;
    let readers = (rw.read()?, rw.read()?);
    assert!(rw.try_write()?.acquired().is_none());
    drop(readers);
    let _permit = locker.semaphore("build", 2)?.acquire()?;
    assert_eq!(locker.multi(["b", "a"])?.acquire()?.fences().len(), 2);
    locker.shutdown()
}

/// One locker for the whole program, connected when it is first needed.
#[tokio::test]
async fn a_locker_that_connects_later() -> Result<()> {
    static LOCKER: tokio::sync::OnceCell<Locker> = tokio::sync::OnceCell::const_new();
    async fn locker() -> Result<&'static Locker> {
        LOCKER.get_or_try_init(|| Locker::connect("memory:")).await
    }
    locker().await?.lock("job").await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_program() -> Result<()> {
    let locker = Locker::connect("memory:the-end").await?;
    let other = Locker::connect("memory:the-end").await?;
    drop(locker.lock("job").await?);
    locker.shutdown().await;
    assert!(other.inspect("job").await?.holders.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_prefix_holds_everywhere() -> Result<()> {
    let locker = Locker::builder().prefix("billing/").connect("memory:").await?;
    let guard = locker.lock("report").await?;
    assert_eq!(locker.inspect("report").await?.holders[0].fence, Some(guard.fence()));
    let names: Vec<_> = locker.list("", None, 10).await?.into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["report".parse()?]);
    Ok(())
}

/// A store that was not compiled in says how to have it.
#[tokio::test]
async fn a_feature_that_is_off() {
    let known = lockfast::known_schemes();
    for feature in ["redis", "redlock", "postgres", "mysql", "etcd", "zookeeper"] {
        if known.contains(&format!("{feature}:")) {
            continue; // other members of the workspace may have it
        }
        let error = Locker::connect(&format!("{feature}://localhost/x")).await.unwrap_err();
        assert!(error.to_string().contains(&format!("enable feature \"{feature}\"")), "{error}");
    }
}

/// What is made in one task is used in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_moves_between_tasks() -> Result<()> {
    let locker =
        Locker::builder().options(Options::default().ttl(SECOND)).connect("memory:").await?;
    let (mutex, me) = (locker.mutex("job")?, Holder::new());
    assert_eq!(mutex.lease_time(), SECOND);
    let task = tokio::spawn(async move { mutex.acquire_as(&me).await?.release().await });
    task.await.unwrap()?;
    let multi = locker.multi(["a", "b"])?;
    tokio::spawn(async move { multi.run(|_| async {}).await }).await.unwrap()
}
