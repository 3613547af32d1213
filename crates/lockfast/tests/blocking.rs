//! The blocking API does all that the async one does, outside any runtime and where a runtime allows
//! blocking.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockfast::blocking::{
    AnyLock, Heard, LeaderEvent, Lease, Locker, MultiLock, RefreshAttempt, retry,
};
use lockfast::optimistic::{Attempts, Step, Update};
use lockfast::{
    Attempt, Ensured, Error, ErrorKind, Expected, Holder, Leadership, LeaseStatus, Mode, Options,
    Ran, ReleaseOutcome, Released, Result, RevokeOutcome, WatchKind, WriteOutcome,
};

const SECOND: Duration = Duration::from_secs(1);

fn take_everything() -> Result<()> {
    let locker = Locker::connect("memory:")?;
    take_locks(&locker)?;
    take_several(&locker)?;
    look_and_revoke(&locker)?;
    keep_without_a_guard(&locker)?;
    lead_and_run_once(&locker)?;
    share_values(&locker)?;
    wait_for_each_other(&locker)?;
    compute_once(&locker)?;
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
    let writer = rw.write()?;
    rw.downgrade(&writer)?;
    assert_eq!(writer.mode(), Mode::Shared);
    rw.read()?.release()?;
    writer.release()?;
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
    guard.leases().try_for_each(|lease: &Lease| lease.extend(20 * SECOND))?;
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
    let LeaderEvent::Elected { term, lease } = campaign.next()? else { panic!("nobody leads") };
    lease.extend(20 * SECOND)?;
    let seen = leader.observe()?.next()?;
    assert!(matches!(seen, Leadership::Led(leader) if leader.term == Some(term)));
    assert!(matches!(campaign.resign()?, Some(Released::Released)));

    let once = locker.once("once", 60 * SECOND)?.at_least(30 * SECOND);
    assert!(matches!(once.run(|lease| lease.fence())?, Ran::Done(_)));
    assert!(matches!(once.run(|_| ())?, Ran::Skipped(_)));
    let once = locker.once("by hand", 60 * SECOND)?;
    let guard = once.start()?.acquired().expect("nobody runs it");
    assert_eq!(guard.lease().fence(), guard.fence());
    guard.extend(120 * SECOND)?;
    assert!(matches!(guard.finish()?, Released::Released));
    Ok(())
}

fn share_values(locker: &Locker) -> Result<()> {
    let value = locker.value("value")?.attempts(Attempts::default().most(1_000));
    assert_eq!((value.name().as_str(), value.read()?), ("value", None));
    let written = value.write(Expected::Nothing, b"0")?;
    let WriteOutcome::Written(Some(version)) = written else { panic!("{written:?}") };
    assert!(matches!(value.write(Expected::Nothing, b"1")?, WriteOutcome::Conflict(Some(_))));
    std::thread::scope(|scope| {
        let counting = [(); 4].map(|()| scope.spawn(|| (0..25).try_for_each(|_| count(&value))));
        counting.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    let counted = value.read()?.expect("a value");
    assert_eq!(counted.bytes, b"100", "an update was lost");
    assert!(matches!(value.remove(version)?, WriteOutcome::Conflict(Some(_))));
    assert!(matches!(value.remove(counted.version)?, WriteOutcome::Written(None)));
    let short = locker.value("short")?.keep(SECOND)?;
    short.update(|_| Ok(Update::Put(b"soon gone".to_vec())))?;
    assert!(short.read()?.expect("a value").remaining.is_some_and(|left| left <= SECOND));

    let mut made = 0;
    let third = retry(Attempts::default(), || {
        made += 1;
        Ok(if made < 3 { Step::Conflict } else { Step::Done(made) })
    });
    assert_eq!(third?, 3);
    Ok(())
}

fn count(value: &lockfast::blocking::SharedValue) -> Result<()> {
    let counted = value.update(|there| {
        let number = there.and_then(|value| String::from_utf8(value.bytes).ok());
        let number: u32 = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Update::Put((number + 1).to_string().into_bytes()))
    });
    counted.map(drop)
}

fn wait_for_each_other(locker: &Locker) -> Result<()> {
    let latch = locker.latch("latch", 2)?;
    std::thread::scope(|scope| {
        let waiting = [(); 3].map(|()| scope.spawn(|| latch.wait()));
        assert_eq!((latch.name().as_str(), latch.left()?), ("latch", 2));
        assert_eq!(latch.count_down()?, 1);
        assert_eq!(latch.count_down()?, 0);
        waiting.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    assert_eq!(latch.count_down().unwrap_err().kind(), ErrorKind::Conflict);
    latch.reset()?;
    assert_eq!(latch.left()?, 2);
    latch.reset()?;

    let barrier = locker.barrier("barrier", 3)?;
    assert_eq!(barrier.name().as_str(), "barrier");
    let before = std::thread::scope(|scope| {
        let rounds = || [barrier.wait(), barrier.wait()].into_iter().collect::<Result<Vec<_>>>();
        let waiting = [(); 3].map(|()| scope.spawn(rounds));
        waiting.map(|thread| thread.join().unwrap())
    });
    for rounds in before {
        assert_eq!(rounds?, [0, 1]);
    }
    Ok(())
}

fn compute_once(locker: &Locker) -> Result<()> {
    let rates = locker.refresh("rates", 300 * SECOND)?.stale_for(SECOND)?;
    let computed = AtomicU32::new(0);
    let compute = || {
        rates.get(|lease| {
            computed.fetch_add(1, Ordering::Relaxed);
            lease.check()?;
            std::thread::sleep(SECOND / 20); // until all others wait
            Ok(b"1.08".to_vec())
        })
    };
    std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(compute));
        threads.into_iter().try_for_each(|thread| {
            assert_eq!(thread.join().unwrap()?, b"1.08");
            Ok(())
        })
    })?;
    assert_eq!(computed.into_inner(), 1, "computed more than once");
    rates.invalidate()?;
    assert_eq!(rates.get(|_| Ok(b"1.09".to_vec()))?, b"1.09");

    let table = locker.refresh("table", 300 * SECOND)?;
    let failed = table.ensure(|_| Err::<(), _>(Error::new(ErrorKind::Permission, "a test")));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Permission);
    assert_eq!(table.ensure(|lease| Ok(lease.mode()))?, Ensured::Now(Mode::Exclusive));
    assert_eq!(table.ensure(|_| Ok(Mode::Shared))?, Ensured::Before);

    let by_hand = locker.refresh("by hand", 300 * SECOND)?;
    let RefreshAttempt::Granted(guard) = by_hand.start()? else { panic!("nobody computed it") };
    assert_eq!(guard.lease().name(), by_hand.name());
    guard.fail(&Error::new(ErrorKind::Permission, "a test"))?;
    let RefreshAttempt::Granted(guard) = by_hand.start()? else { panic!("it failed") };
    assert_eq!(guard.finish(b"done".to_vec())?, b"done");
    assert!(matches!(by_hand.start()?, RefreshAttempt::Fresh(bytes) if bytes == b"done"));
    Ok(())
}

#[test]
fn what_is_computed_after_a_loss_is_thrown_away() {
    let locker = Locker::connect("memory:").unwrap();
    let rates = locker.refresh("rates", 300 * SECOND).unwrap();
    for computed in [Ok(b"late".to_vec()), Err(Error::new(ErrorKind::Permission, "late"))] {
        let lost = rates.get(|lease| {
            locker.revoke(rates.name(), "maintenance")?;
            lease.lost()?;
            computed
        });
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(rates.get(|_| Ok(b"next".to_vec())).unwrap(), b"next");
}

#[test]
fn who_waits_for_a_computation_is_told_why_it_failed() {
    let locker = Locker::connect("memory:").unwrap();
    let rates = locker.refresh("rates", 300 * SECOND).unwrap();
    let RefreshAttempt::Granted(guard) = rates.start().unwrap() else { panic!("nobody has it") };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rates.get(|_| Ok(b"not asked".to_vec())));
        while locker.inspect(rates.name()).unwrap().waiting == 0 {
            std::thread::sleep(SECOND / 1_000);
        }
        guard.fail(&Error::new(ErrorKind::Permission, "no rates today")).unwrap();
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Computation);
        assert!(error.message().contains("no rates today"), "{error}");
    });
}

#[tokio::main]
async fn program() -> Result<()> {
    let error = Locker::connect("memory:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BlockingInAsync);
    let locker = lockfast::Locker::connect("memory:").await?;
    let value = Locker::from(locker.clone()).value("value")?;
    assert_eq!(value.read().unwrap_err().kind(), ErrorKind::BlockingInAsync);
    let latch = Locker::from(locker).latch("latch", 2)?;
    let waiting = latch.clone();
    let waiting = tokio::task::spawn_blocking(move || waiting.wait());
    let counting = latch.clone();
    std::thread::spawn(move || counting.count_down()).join().unwrap()?;
    tokio::task::block_in_place(|| latch.count_down())?;
    waiting.await.unwrap()
}

#[test]
fn a_program_with_an_async_main_shares_what_its_threads_share() {
    program().unwrap();
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

/// Every wait has a limit, and what happens after it is not missed.
#[test]
fn waits_have_a_limit() {
    const SHORT: Duration = Duration::from_millis(20);
    let locker = Locker::connect("memory:").unwrap();
    let mut events = locker.watch().unwrap();
    assert!(matches!(events.next_within(SHORT).unwrap(), Heard::Nothing));
    let guard = locker.lock("a").unwrap();
    let mut changes = guard.changes();
    assert_eq!(changes.next_within(SECOND).unwrap(), Some(LeaseStatus::Held));
    assert_eq!(changes.next_within(SHORT).unwrap(), None);
    assert_eq!(guard.lost_within(SHORT).unwrap(), None);
    let several = locker.multi(["b", "c"]).unwrap().acquire().unwrap();
    assert_eq!(several.lost_within(SHORT).unwrap(), None);
    locker.revoke("a", "maintenance").unwrap();
    locker.revoke("b", "maintenance").unwrap();
    assert!(guard.lost_within(10 * SECOND).unwrap().is_some());
    assert!(several.lost_within(10 * SECOND).unwrap().is_some());
    assert!(matches!(changes.next_within(10 * SECOND).unwrap(), Some(LeaseStatus::Lost(_))));
    let Heard::Event(event) = events.next_within(Duration::MAX).unwrap() else { panic!("none") };
    assert_eq!((event.name.as_str(), event.kind), ("a", WatchKind::Granted));

    let leader = locker.leader("leader").unwrap();
    let mut observer = leader.observe().unwrap();
    assert!(matches!(observer.next_within(SECOND).unwrap(), Some(Leadership::Vacant)));
    assert!(observer.next_within(SHORT).unwrap().is_none());
    let mut campaign = leader.campaign().unwrap();
    let elected = campaign.next_within(10 * SECOND).unwrap();
    assert!(matches!(elected, Some(LeaderEvent::Elected { .. })), "{elected:?}");
    assert!(campaign.next_within(SHORT).unwrap().is_none());
    assert!(matches!(observer.next_within(10 * SECOND).unwrap(), Some(Leadership::Led(_))));

    let latch = locker.latch("latch", 1).unwrap();
    assert!(!latch.wait_within(SHORT).unwrap());
    latch.count_down().unwrap();
    assert!(latch.wait_within(10 * SECOND).unwrap());

    let barrier = locker.barrier("barrier", 2).unwrap().ttl(10 * SECOND);
    assert_eq!(barrier.wait_within(SHORT).unwrap(), None);
    assert_eq!(barrier.wait_within(SHORT).unwrap(), None, "the first time does not count");
    let other = barrier.clone();
    let other = std::thread::spawn(move || other.wait_within(10 * SECOND));
    assert_eq!(barrier.wait_within(10 * SECOND).unwrap(), Some(0));
    assert_eq!(other.join().unwrap().unwrap(), Some(0));
}
