//! A writer of a read–write lock that becomes a reader, as callers see it.

use std::time::Duration;

use lockfast::{
    ErrorKind, Feature, Guard, Holder, Locker, Mode, Moment, Options, Released, RwLock,
};

use super::{long_lease, short_lease};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::stepper::Stepper;
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

pub(super) const GROUP: Group = Group {
    name: "writer",
    source: include_str!("writer.rs"),
    cases: &[
        Case::new("becomes_a_reader", |arena| Box::pin(becomes_a_reader(arena)))
            .using(&[Feature::Downgrade]),
        Case::new("that_became_a_reader_is_kept", |arena| {
            Box::pin(that_became_a_reader_is_kept(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("without_an_answer_asks_again", |arena| {
            Box::pin(without_an_answer_asks_again(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("that_stops_asking_leaves_nothing", |arena| {
            Box::pin(that_stops_asking_leaves_nothing(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("is_checked_before_anything_is_touched", |arena| {
            Box::pin(is_checked_before_anything_is_touched(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("with_other_guards_stays_one", |arena| {
            Box::pin(with_other_guards_stays_one(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("that_has_lost_its_lease_asks_nothing", |arena| {
            Box::pin(that_has_lost_its_lease_asks_nothing(arena))
        })
        .using(&[Feature::Downgrade]),
    ],
};

fn rwlock(locker: &Locker, options: &Options) -> RwLock {
    locker.rwlock("a").expect("a valid name").with_options(options.clone())
}

async fn write(lock: &RwLock) -> Guard {
    lock.write().await.expect("a grant")
}

/// P15: a writer becomes a reader under the same guard: readers that waited come in, a writer that
/// waits does not before all of them have left.
async fn becomes_a_reader(arena: Arena) {
    let first = arena.locker(&FaultSwitch::default()).await;
    let second = arena.locker(&FaultSwitch::default()).await;
    let client = arena.client().await;
    let lock = rwlock(&first, &long_lease(&arena).wait_forever());
    let other = rwlock(&second, &long_lease(&arena).wait_forever());
    let guard = write(&lock).await;
    let fence = guard.fence();
    let waits = |count| move |view: &lockfast::LockView| view.waiting == count;
    let reader = tokio::spawn({
        let other = other.clone();
        async move { other.read().await }
    });
    client.until(&name("a"), "a reader waits", waits(1)).await;
    let writer = tokio::spawn(async move { write(&other).await });
    client.until(&name("a"), "a writer waits", waits(2)).await;
    lock.downgrade(&guard).await.expect("it is a writer's");
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let reader = finish(reader).await.expect("a grant");
    reader.release().await.expect("an answer");
    let view = client.view(&name("a")).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 1), "{view:?}");
    assert!(!writer.is_finished(), "a writer came in beside a reader");
    let released = guard.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    let writer = finish(writer).await;
    assert!(writer.fence().get() > fence.get());
    assert_eq!(writer.mode(), Mode::Exclusive);
}

/// P2: the keeper renews a lease that was downgraded as before, also when a renewal was on its way
/// meanwhile, in either order.
async fn that_became_a_reader_is_kept(arena: Arena) {
    // Longer than other short leases: each renewal is slow, and the machine may be, too.
    let ttl = arena.ttl(Duration::from_secs(2));
    let options = Options::default().ttl(ttl).request_timeout(ttl * 3 / 10).retries(10);
    let slow = ttl / 10;
    for fault in [Fault::DelayRequest(slow), Fault::DelayReply(slow)] {
        let switch = FaultSwitch::default();
        let locker = arena.locker(&switch).await;
        let client = arena.client().await;
        let lock = rwlock(&locker, &options);
        let guard = write(&lock).await;
        let (fence, granted) = (guard.fence(), Moment::now());
        switch.set(Operation::Renew, fault);
        let renewals = switch.count(Operation::Renew);
        while switch.count(Operation::Renew) == renewals {
            assert!(Moment::now().since(granted) < PATIENCE, "never renewed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lock.downgrade(&guard).await.expect("it is a writer's");
        while Moment::now().since(granted) < ttl * 3 / 2 {
            assert_eq!(guard.check().expect("it is kept").fence, fence);
            client.be_refused(client.request(&name("a"))).await;
            tokio::time::sleep(ttl / 20).await;
        }
        assert_eq!(guard.mode(), Mode::Shared);
        let released = guard.release().await.expect("an answer");
        assert!(matches!(released, Released::Released), "{released:?}");
    }
}

/// P7: a downgrade without an answer leaves the lock held, and is relied on as shared; asking again
/// tells. Answers that are lost now and then are asked for again without being told.
async fn without_an_answer_asks_again(arena: Arena) {
    for fault in [Fault::SwallowReply, Fault::Fail] {
        let switch = FaultSwitch::default();
        let locker = arena.locker(&switch).await;
        let reader = rwlock(&arena.locker(&FaultSwitch::default()).await, &long_lease(&arena));
        let lock = rwlock(&locker, &long_lease(&arena).retries(1));
        let guard = write(&lock).await;
        switch.set(Operation::Downgrade, fault);
        let error = lock.downgrade(&guard).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert_eq!(switch.count(Operation::Downgrade), 2, "one retry");
        guard.check().expect("it is still held");
        assert_eq!(guard.mode(), Mode::Shared);
        let is_shared = reader.try_read().await.expect("an answer").is_acquired();
        assert_eq!(is_shared, fault == Fault::SwallowReply);
        switch.set(Operation::Downgrade, Fault::Pass);
        lock.downgrade(&guard).await.expect("an answer");
        lock.downgrade(&guard).await.expect("it is known");
        assert_eq!(switch.count(Operation::Downgrade), 3);
        let beside = reader.read().await.expect("a grant");
        guard.release().await.expect("an answer");
        beside.release().await.expect("an answer");
    }
}

/// P5: a downgrade that is dropped on its way leaves a lease that is released as any other.
async fn that_stops_asking_leaves_nothing(arena: Arena) {
    let slow = Duration::from_millis(50);
    for fault in [Fault::Pass, Fault::DelayRequest(slow), Fault::DelayReply(slow)] {
        let switch = FaultSwitch::default();
        let locker = arena.locker(&switch).await;
        let lock = rwlock(&locker, &long_lease(&arena));
        let guard = write(&lock).await;
        switch.set(Operation::Downgrade, fault);
        let mut downgrade = Stepper::new(Box::pin(lock.downgrade(&guard)));
        // Where it is answered at once there is nothing left to drop.
        let _ = downgrade.step();
        drop(downgrade);
        assert_eq!(guard.mode(), Mode::Shared);
        guard.check().expect("it is still held");
        let released = guard.release().await.expect("an answer");
        assert!(matches!(released, Released::Released), "{released:?}");
        let next = lock.try_write().await.expect("an answer");
        assert!(next.is_acquired(), "{next:?}");
    }
}

/// P11: a guard of another lock, of another connection or of a reader is refused before the store is
/// asked, and stays as it is.
async fn is_checked_before_anything_is_touched(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let elsewhere = arena.locker(&switch).await;
    let lock = rwlock(&locker, &long_lease(&arena));
    let refuse = async |guard: &Guard, kind: ErrorKind| {
        let mode = guard.mode();
        let error = lock.downgrade(guard).await.expect_err("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(guard.mode(), mode);
        guard.check().expect("it is held");
    };
    let other = locker.rwlock("b").expect("a name").write().await.expect("a grant");
    refuse(&other, ErrorKind::DifferentLock).await;
    let foreign = write(&rwlock(&elsewhere, &long_lease(&arena))).await;
    refuse(&foreign, ErrorKind::DifferentLock).await;
    foreign.release().await.expect("an answer");
    let reader = lock.read().await.expect("a grant");
    refuse(&reader, ErrorKind::AlreadyHeld).await;
    assert_eq!(switch.count(Operation::Downgrade), 0);
}

/// P6: while a holder has other guards of a writer's lease it stays exclusive; with the last one it
/// becomes a reader's, also for what the holder takes then.
async fn with_other_guards_stays_one(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let client = arena.client().await;
    let (lock, me) = (rwlock(&locker, &long_lease(&arena)), Holder::new());
    let outer = lock.writer().acquire_as(&me).await.expect("a grant");
    let inner = lock.writer().acquire_as(&me).await.expect("it is held");
    let error = lock.downgrade(&outer).await.expect_err("another relies on it");
    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    assert_eq!(switch.count(Operation::Downgrade), 0);
    assert_eq!(inner.mode(), Mode::Exclusive);
    inner.release().await.expect("an answer");
    lock.downgrade(&outer).await.expect("it is alone");
    let again = lock.reader().acquire_as(&me).await.expect("it is held");
    assert_eq!((again.fence(), again.mode()), (outer.fence(), Mode::Shared));
    let error = lock.writer().try_acquire_as(&me).await.expect_err("it reads");
    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    let released = outer.release().await.expect("an answer");
    assert!(matches!(released, Released::StillHeld), "{released:?}");
    client.be_refused(client.request(&name("a"))).await;
    let released = again.release().await.expect("an answer");
    assert!(matches!(released, Released::Released), "{released:?}");
    client.take(client.request(&name("a"))).await;
}

/// P3: a lease that is lost while the store does not answer its downgrade is told so by its deadline,
/// and the store is not asked any more.
async fn that_has_lost_its_lease_asks_nothing(arena: Arena) {
    let (ttl, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let lock = rwlock(&locker, &options);
    let guard = write(&lock).await;
    switch.set_all(Fault::Hang);
    let start = Moment::now();
    let error = lock.downgrade(&guard).await.expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let took = Moment::now().since(start);
    assert!(took < ttl * 2, "told after {took:?} of {ttl:?}");
    let asked = switch.count(Operation::Downgrade);
    assert!(asked > 0, "never asked");
    switch.set_all(Fault::Pass);
    let error = lock.downgrade(&guard).await.expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(switch.count(Operation::Downgrade), asked);
}
