//! The blocking API does all that the async one does, outside any runtime and where a runtime allows
//! blocking.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::time::Duration;

use lockfast::blocking::{AnyLock, Locker, MultiLock};
use lockfast::{
    Attempt, ErrorKind, Holder, LeaderEvent, Leadership, LeaseStatus, Mode, Options, Ran,
    ReleaseOutcome, Released, Result, RevokeOutcome, WatchKind,
};

const SECOND: Duration = Duration::from_secs(1);

fn take_everything() -> Result<()> {
    let locker = Locker::connect("memory:")?;
    take_locks(&locker)?;
    take_several(&locker)?;
    look_and_revoke(&locker)?;
    keep_without_a_guard(&locker)?;
    lead_and_run_once(&locker)?;
    locker.settled()
}

fn take_locks(locker: &Locker) -> Result<()> {
    let mutex = locker.mutex("mutex")?.ttl(10 * SECOND).wait(SECOND / 10);
    let guard = mutex.acquire_full()?;
    assert_eq!(mutex.acquire().unwrap_err().kind(), ErrorKind::Taken);
    assert!(!mutex.try_acquire()?.is_acquired());
    guard.extend(20 * SECOND)?;
    guard.full()?;
    assert!(guard.remaining() > 10 * SECOND && guard.is_held());
    let mut changes = guard.changes();
    assert_eq!(changes.next()?, LeaseStatus::Held);
    assert!(matches!(guard.release()?, Released::Released));
    assert_eq!(changes.next()?, LeaseStatus::Released);
    assert_eq!(mutex.run(|lease| lease.mode())?, Mode::Exclusive);

    let me = Holder::new();
    let outer = mutex.acquire_as(&me)?;
    let inner = mutex.try_acquire_as(&me)?.acquired().expect("it has it");
    assert!(matches!(inner.release()?, Released::StillHeld));
    outer.release()?;

    let rw = locker.rwlock("rw")?.ttl(10 * SECOND);
    let (one, two) = (rw.read()?, rw.read()?);
    assert!(!rw.try_write()?.is_acquired());
    one.release()?;
    two.release()?;
    rw.write()?.release()?;
    assert_eq!(rw.run_read(|lease| lease.mode())?, Mode::Shared);
    assert_eq!(rw.run_write(|lease| lease.mode())?, Mode::Exclusive);

    let semaphore = locker.semaphore("semaphore", 2)?.ttl(10 * SECOND);
    let (one, two) = (semaphore.acquire()?, semaphore.acquire()?);
    assert!(matches!(semaphore.try_acquire()?, Attempt::Taken(_)));
    one.release()?;
    two.release()?;
    Ok(())
}

fn take_several(locker: &Locker) -> Result<()> {
    let both = locker.multi(["b", "a"])?.ttl(10 * SECOND);
    let guard = both.acquire()?;
    assert_eq!(guard.check()?, guard.tokens());
    assert!(!both.try_acquire()?.is_acquired());
    assert_eq!(guard.release()?.len(), 2);
    assert_eq!(both.run(|guard| guard.fences().len())?, 2);
    let mixed: [AnyLock; 2] = [locker.rwlock("rw")?.reader(), locker.mutex("c")?.into()];
    MultiLock::new(mixed)?.acquire()?.release()?;
    Ok(())
}

fn look_and_revoke(locker: &Locker) -> Result<()> {
    let mut events = locker.watch()?;
    let guard = locker.lock("seen")?;
    let event = events.next()?.expect("the store goes on");
    assert_eq!((event.name.as_str(), event.kind), ("seen", WatchKind::Granted));
    assert_eq!(locker.inspect("seen")?.holders.len(), 1);
    assert_eq!(locker.list("seen", None, 10)?.len(), 1);
    let revoked = locker.revoke_fence("seen", guard.fence(), "maintenance")?;
    assert!(matches!(revoked, RevokeOutcome::Revoked(_)));
    assert!(guard.lost()?.to_string().contains("maintenance"));
    assert!(matches!(guard.release()?, Released::AlreadyLost(_)));
    assert!(matches!(locker.revoke("seen", "again")?, RevokeOutcome::NotHeld));
    Ok(())
}

fn keep_without_a_guard(locker: &Locker) -> Result<()> {
    let lease = locker.mutex("detached")?.acquire_detached()?;
    locker.renew_detached(&lease.name, lease.holder, 60 * SECOND)?;
    let released = locker.release_detached(&lease.name, lease.holder)?;
    assert_eq!(released, ReleaseOutcome::Released);
    Ok(())
}

fn lead_and_run_once(locker: &Locker) -> Result<()> {
    let leader = locker.leader("leader")?.ttl(10 * SECOND);
    let mut campaign = leader.campaign()?;
    let LeaderEvent::Elected { term, .. } = campaign.next()? else { panic!("nobody leads") };
    let seen = leader.observe()?.next()?;
    assert!(matches!(seen, Leadership::Led(leader) if leader.term == Some(term)));
    assert!(matches!(campaign.resign()?, Some(Released::Released)));

    let once = locker.once("once", 60 * SECOND)?.at_least(30 * SECOND);
    assert!(matches!(once.run(|lease| lease.fence())?, Ran::Done(_)));
    assert!(matches!(once.run(|_| ())?, Ran::Skipped(_)));
    let once = locker.once("by hand", 60 * SECOND)?;
    let guard = once.start()?.acquired().expect("nobody runs it");
    guard.extend(120 * SECOND)?;
    assert!(matches!(guard.finish()?, Released::Released));
    Ok(())
}

#[test]
fn everything_works_outside_any_runtime() {
    take_everything().unwrap();
}

#[tokio::test]
async fn everything_works_where_a_runtime_of_one_thread_lets_block() {
    tokio::task::spawn_blocking(take_everything).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_where_a_runtime_of_many_threads_lets_block() {
    tokio::task::spawn_blocking(take_everything).await.unwrap().unwrap();
    tokio::spawn(async { tokio::task::block_in_place(take_everything) }).await.unwrap().unwrap();
}

#[test]
fn a_runtime_that_was_only_entered_is_not_in_the_way() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    take_everything().unwrap();
}

async fn check_refused() {
    // A task that has spent all that it may spend is still one.
    for _ in 0..300 {
        let error = Locker::connect("memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BlockingInAsync, "{error}");
        tokio::task::coop::consume_budget().await;
    }
    let error = lockfast::blocking::diagnose("memory:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BlockingInAsync);
}

#[tokio::test]
async fn a_task_is_not_blocked() {
    check_refused().await;
    tokio::spawn(check_refused()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_among_many_threads_is_not_blocked() {
    check_refused().await;
    tokio::spawn(check_refused()).await.unwrap();
}

#[test]
fn a_guard_given_back_inside_a_task_is_given_back_in_the_background() {
    let locker = Locker::connect("memory:").unwrap();
    let guard = locker.mutex("a").unwrap().with_options(Options::default()).acquire().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { guard.release() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BlockingInAsync);
    locker.settled().unwrap();
    assert!(locker.mutex("a").unwrap().try_acquire().unwrap().is_acquired());
}
