//! Who passes a holder along may take what it has: counted here, and one acquisition in the store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use lockfast::{
    Attempt, ErrorKind, Guard, Holder, LeaseStatus, Locker, LossCause, Moment, Mutex, Released,
};

const SECOND: Duration = Duration::from_secs(1);

async fn locker() -> Locker {
    Locker::connect("memory:").await.unwrap()
}

async fn is_free(mutex: &Mutex) -> bool {
    mutex.try_acquire().await.unwrap().is_acquired()
}

/// Waits until so many wait for the lock in the store.
async fn until_waiting(locker: &Locker, name: &str, count: usize) {
    let start = Moment::now();
    while locker.inspect(name).await.unwrap().waiting != count {
        assert!(Moment::now().since(start) < 10 * SECOND, "not {count} waiting");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What is done with one of the guards.
#[derive(Clone, Copy, Debug)]
enum End {
    Release,
    Drop,
    /// The release is begun and dropped.
    Cancel,
}

async fn end(guard: Guard, how: End) -> Option<Released> {
    match how {
        End::Release => Some(guard.release().await.unwrap()),
        End::Drop => {
            drop(guard);
            None
        }
        End::Cancel => {
            let mut release = pin!(guard.release());
            let _ = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            None
        }
    }
}

#[tokio::test]
async fn the_lock_goes_back_with_the_last_guard() {
    let locker = locker().await;
    let table: &[&[(usize, End)]] = &[
        &[(0, End::Release)],
        &[(0, End::Release), (0, End::Release)],
        &[(1, End::Release), (0, End::Release)],
        &[(0, End::Drop), (0, End::Release)],
        &[(1, End::Release), (0, End::Drop)],
        &[(0, End::Cancel), (0, End::Release)],
        &[(1, End::Drop), (0, End::Cancel)],
        &[(2, End::Release), (0, End::Drop), (0, End::Release)],
        &[(1, End::Drop), (1, End::Cancel), (0, End::Release)],
    ];
    for row in table {
        let (mutex, me) = (locker.mutex("a").unwrap(), Holder::new());
        let mut guards = Vec::new();
        for _ in *row {
            guards.push(mutex.acquire_as(&me.clone()).await.unwrap());
        }
        assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence()), "{row:?}");
        assert_eq!(locker.inspect("a").await.unwrap().holders.len(), 1, "{row:?}");
        for (number, (at, how)) in row.iter().enumerate() {
            assert!(!is_free(&mutex).await, "{row:?} before {number}");
            let released = end(guards.remove(*at), *how).await;
            let is_last = number + 1 == row.len();
            match released {
                Some(Released::Released) => assert!(is_last, "{row:?}"),
                Some(Released::StillHeld) => assert!(!is_last, "{row:?}"),
                Some(other) => panic!("{row:?}: {other:?}"),
                None => {}
            }
            assert!(guards.iter().all(|guard| guard.is_held()), "{row:?} after {number}");
        }
        locker.settled().await;
        assert!(is_free(&mutex).await, "{row:?}");
        locker.settled().await;
        // What was given back is asked for again.
        mutex.acquire_as(&me).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn other_names_connections_and_holders_are_independent() {
    let (locker, other) = (locker().await, locker().await);
    let (me, you) = (Holder::new(), Holder::new());
    let rw = locker.rwlock("a").unwrap();
    let semaphore = locker.semaphore("s", 2).unwrap();
    let first = [
        rw.reader().acquire_as(&me).await.unwrap(),
        locker.mutex("b").unwrap().acquire_as(&me).await.unwrap(),
        semaphore.acquire_as(&me).await.unwrap(),
        other.mutex("b").unwrap().acquire_as(&me).await.unwrap(),
    ];
    let again = [
        rw.reader().acquire_as(&me).await.unwrap(),
        locker.mutex("b").unwrap().acquire_as(&me).await.unwrap(),
        semaphore.acquire_as(&me).await.unwrap(),
        other.mutex("b").unwrap().acquire_as(&me).await.unwrap(),
    ];
    for (one, two) in first.iter().zip(&again) {
        assert_eq!((one.name(), one.fence()), (two.name(), two.fence()));
    }
    assert!(!locker.mutex("b").unwrap().try_acquire_as(&you).await.unwrap().is_acquired());
    let reading = rw.reader().try_acquire_as(&you).await.unwrap().acquired().unwrap();
    assert_ne!(reading.fence(), first[0].fence(), "readers of two holders are two");
    assert!(semaphore.try_acquire_as(&you).await.unwrap().is_acquired(), "one permit is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_holder_ask_once() {
    const TASKS: usize = 8;
    let locker = locker().await;
    let (mutex, me) = (locker.mutex("a").unwrap(), Holder::new());
    for round in 0..20 {
        let blocker = mutex.acquire().await.unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (mutex, me) = (mutex.clone(), me.clone());
                tokio::spawn(async move { mutex.acquire_as(&me).await.unwrap() })
            })
            .collect();
        until_waiting(&locker, "a", 1).await;
        blocker.release().await.unwrap();
        let mut guards = Vec::new();
        for task in tasks {
            guards.push(task.await.unwrap());
        }
        assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence()), "{round}");
        for guard in guards {
            assert!(!is_free(&mutex).await);
            guard.release().await.unwrap();
        }
        assert!(is_free(&mutex).await, "{round}");
        locker.settled().await;
    }
}

/// The one who asks, or one who waits for its answer, is cancelled: the others go on, and the count
/// is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_acquisition_is_not_counted() {
    let locker = locker().await;
    for cancelled in [&[0][..], &[1], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]] {
        let (mutex, me) = (locker.mutex("a").unwrap(), Holder::new());
        let blocker = mutex.acquire().await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let (mutex, me) = (mutex.clone(), me.clone());
            tasks.push(Some(tokio::spawn(async move { mutex.acquire_as(&me).await.unwrap() })));
            until_waiting(&locker, "a", 1).await;
        }
        for number in cancelled {
            let task = tasks[*number].take().unwrap();
            task.abort();
            assert!(task.await.is_err());
        }
        if cancelled.len() < 3 {
            until_waiting(&locker, "a", 1).await;
        }
        blocker.release().await.unwrap();
        for task in tasks.into_iter().flatten() {
            task.await.unwrap().release().await.unwrap();
        }
        locker.settled().await;
        assert!(is_free(&mutex).await, "{cancelled:?}");
        locker.settled().await;
        assert_eq!(locker.inspect("a").await.unwrap().waiting, 0, "{cancelled:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_answer_of_another_task_waits_no_longer_than_it_wants() {
    let locker = locker().await;
    let (mutex, me) = (locker.mutex("a").unwrap(), Holder::new());
    let blocker = mutex.acquire().await.unwrap();
    let patient = {
        let (mutex, me) = (mutex.clone(), me.clone());
        tokio::spawn(async move { mutex.acquire_as(&me).await.unwrap() })
    };
    until_waiting(&locker, "a", 1).await;
    let Attempt::Taken(refusal) = mutex.try_acquire_as(&me).await.unwrap() else { panic!() };
    assert_eq!(refusal.lock.holders[0].fence, Some(blocker.fence()));
    assert_eq!(refusal.waited, Duration::ZERO);
    let Attempt::Taken(refusal) = mutex.try_acquire().await.unwrap() else { panic!() };
    assert_eq!(refusal.waited, Duration::ZERO, "B243");
    let start = Moment::now();
    let error = mutex.clone().wait(SECOND / 10).acquire_as(&me).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken);
    let waited = error.refusal().unwrap().waited;
    assert!(waited >= SECOND / 10 && waited <= Moment::now().since(start), "{waited:?}");
    assert_eq!(locker.inspect("a").await.unwrap().waiting, 1, "the other still waits");
    blocker.release().await.unwrap();
    let held = patient.await.unwrap();
    assert_eq!(mutex.acquire_as(&me).await.unwrap().fence(), held.fence());
}

#[tokio::test]
async fn a_loss_is_told_to_all_guards_and_the_next_is_another_grant() {
    let locker = locker().await;
    let (mutex, me) = (locker.mutex("a").unwrap(), Holder::new());
    let guards = [mutex.acquire_as(&me).await.unwrap(), mutex.acquire_as(&me).await.unwrap()];
    locker.revoke("a", "maintenance").await.unwrap();
    let lost = LossCause::Revoked { reason: "maintenance".into() };
    for guard in &guards {
        assert_eq!(guard.lost().await, lost);
        assert_eq!(guard.status(), LeaseStatus::Lost(lost.clone()));
    }
    let next = mutex.acquire_as(&me).await.unwrap();
    assert!(next.fence().get() > guards[0].fence().get());
    let [one, two] = guards;
    assert!(matches!(one.release().await.unwrap(), Released::StillHeld));
    assert!(matches!(two.release().await.unwrap(), Released::AlreadyLost(_)));
    locker.settled().await;
    next.check().expect("the guards of the lost grant are not its own");
    assert_eq!(mutex.acquire_as(&me).await.unwrap().fence(), next.fence());
}

/// B187: who reads and wants to write as the same holder is told so, and does not wait for itself.
#[tokio::test]
async fn another_mode_of_what_it_has_is_refused() {
    let locker = locker().await;
    let (rw, me, you) = (locker.rwlock("a").unwrap(), Holder::new(), Holder::new());
    for (held, wanted, message) in [
        (rw.reader(), rw.writer(), "asked for it as shared; release that before asking for excl"),
        (rw.writer(), rw.reader(), "asked for it as exclusive; release that before asking for sh"),
    ] {
        let guard = held.acquire_as(&me).await.unwrap();
        let asking = wanted.acquire_as(&me);
        let error = tokio::time::timeout(10 * SECOND, asking).await.expect("no wait").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
        assert!(error.message().contains(message), "{error}");
        assert_eq!(error.lock().unwrap().as_str(), "a");
        assert_eq!(wanted.try_acquire_as(&me).await.unwrap_err().kind(), ErrorKind::AlreadyHeld);
        assert_eq!(locker.inspect("a").await.unwrap().waiting, 0, "the store was not asked");
        // Neither those who are somebody else, nor the same one in the same mode.
        assert!(!wanted.try_acquire_as(&you).await.unwrap().is_acquired());
        held.acquire_as(&me).await.unwrap().release().await.unwrap();
        guard.release().await.unwrap();
        wanted.acquire_as(&me).await.unwrap().release().await.unwrap();
    }
    // What was lost is not had any more, also while there is a guard.
    let lost = rw.reader().acquire_as(&me).await.unwrap();
    locker.revoke("a", "maintenance").await.unwrap();
    lost.lost().await;
    rw.writer().acquire_as(&me).await.unwrap().release().await.unwrap();
}

/// B187: the same while another task of the holder asks.
#[tokio::test]
async fn another_mode_of_what_it_asks_for_is_refused() {
    let locker = locker().await;
    let (rw, me) = (locker.rwlock("a").unwrap(), Holder::new());
    let blocker = rw.write().await.unwrap();
    let reading = {
        let (reader, me) = (rw.reader(), me.clone());
        tokio::spawn(async move { reader.acquire_as(&me).await.unwrap() })
    };
    until_waiting(&locker, "a", 1).await;
    let error = rw.writer().try_acquire_as(&me).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    reading.abort();
    assert!(reading.await.is_err());
    blocker.release().await.unwrap();
    rw.writer().acquire_as(&me).await.unwrap().release().await.unwrap();
}

/// B223: two tasks of a holder ask to write. The one that gets the lock goes on as a reader before the other
/// runs, which then has nothing to wait for.
#[tokio::test(flavor = "current_thread")]
async fn who_waited_for_a_writer_does_not_wait_for_its_reader() {
    let locker = Locker::connect("memory:").await.unwrap();
    let (lock, me) = (locker.rwlock("a").unwrap().wait(Duration::from_secs(20)), Holder::new());
    let foreign = lock.write().await.unwrap();
    let ask = || {
        let (lock, me) = (lock.clone(), me.clone());
        async move { lock.writer().acquire_as(&me).await }
    };
    let (mut one, mut two) = (Box::pin(ask()), Box::pin(ask()));
    // Both ask, one after the other; nobody polls the second before the first has gone on.
    let mut context = Context::from_waker(Waker::noop());
    assert!(one.as_mut().poll(&mut context).is_pending());
    assert!(two.as_mut().poll(&mut context).is_pending());
    foreign.release().await.unwrap();
    let writer = one.await.unwrap();
    lock.downgrade(&writer).await.unwrap();
    let error = two.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
}
