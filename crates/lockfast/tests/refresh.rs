//! Which result counts: one that comes after the lock was lost (B158), one that is older than the reader
//! accepts (B185), and one of another kind (B186).

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast::{
    Ensured, Error, ErrorKind, Expected, Locker, Moment, Options, Refresh, RefreshAttempt,
    RefreshGuard,
};

const FRESH_FOR: Duration = Duration::from_millis(300);

async fn start(refresh: &Refresh) -> RefreshGuard {
    match refresh.start().await.unwrap() {
        RefreshAttempt::Granted(guard) => guard,
        RefreshAttempt::Fresh(bytes) => panic!("there is {bytes:?}"),
    }
}

/// What was computed before the value was made stale is not stored, also when the value that others
/// have computed since has ended.
#[tokio::test]
async fn a_late_result_is_not_stored() {
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", FRESH_FOR).unwrap();
    let late = start(&refresh).await;
    refresh.invalidate().await.unwrap();
    locker.revoke("refresh:a", "it hangs").await.unwrap();
    let next = start(&refresh).await.finish(b"next".to_vec()).await.unwrap();
    assert_eq!(next, b"next");
    tokio::time::sleep(2 * FRESH_FOR).await;
    let error = late.finish(b"late".to_vec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    drop(start(&refresh).await);
}

/// Who is late is given what the others have.
#[tokio::test]
async fn a_late_one_is_given_what_is_there() {
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", 60 * FRESH_FOR).unwrap();
    let late = start(&refresh).await;
    locker.revoke("refresh:a", "it hangs").await.unwrap();
    let next = start(&refresh).await.finish(b"next".to_vec()).await.unwrap();
    assert_eq!(next, b"next");
    assert_eq!(late.finish(b"late".to_vec()).await.unwrap(), b"next");
}

async fn get(refresh: &Refresh, computed: &str) -> String {
    let bytes = refresh.get(async |_| Ok(computed.into())).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// B185: another program that keeps a value for an hour does not make it fresh for whoever accepts it
/// for less, nor good enough while somebody computes the next.
#[tokio::test]
async fn a_value_is_no_longer_fresh_than_the_reader_accepts() {
    let locker = Locker::connect("memory:").await.unwrap();
    let (hour, long) = (Duration::from_secs(3600), Duration::from_secs(60));
    let other = locker.refresh("a", hour).unwrap().stale_for(hour).unwrap();
    assert_eq!(get(&other, "old").await, "old");
    assert_eq!(get(&locker.refresh("a", long).unwrap(), "new").await, "old", "it is young enough");
    tokio::time::sleep(FRESH_FOR + FRESH_FOR / 2).await;

    let strict = locker.refresh("a", FRESH_FOR).unwrap();
    let lenient = strict.clone().stale_for(long).unwrap();
    let computing = start(&strict).await;
    assert_eq!(get(&lenient, "unwanted").await, "old", "good enough on its own terms");
    let waiting = tokio::spawn(async move { get(&strict, "unwanted").await });
    while locker.inspect("refresh:a").await.unwrap().waiting == 0 {
        assert!(!waiting.is_finished(), "it took what is too old for it");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    computing.finish(b"new".to_vec()).await.unwrap();
    assert_eq!(waiting.await.unwrap(), "new");
}

/// B185: what the store keeps for longer than it was written for, as after its clock was set back, is
/// of no known age.
#[tokio::test]
async fn a_value_from_the_future_is_computed_anew() {
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", FRESH_FOR).unwrap();
    assert_eq!(get(&refresh, "old").await, "old");
    let value = locker.value("refresh:a").unwrap().keep(Duration::from_secs(3600)).unwrap();
    let old = value.read().await.unwrap().unwrap();
    value.write(Expected::Version(old.version), old.bytes).await.unwrap();
    assert_eq!(get(&refresh, "new").await, "new");
    assert_eq!(get(&refresh, "unwanted").await, "new");
    // Nor is one that does not end.
    let new = value.read().await.unwrap().unwrap();
    let endless = locker.value("refresh:a").unwrap();
    endless.write(Expected::Version(new.version), new.bytes).await.unwrap();
    assert_eq!(get(&refresh, "newer").await, "newer");
}

/// B186: a mark is not taken for a value, nor a value for a mark.
#[tokio::test]
async fn marks_and_values_are_kept_apart() {
    let locker = Locker::connect("memory:").await.unwrap();
    let hour = Duration::from_secs(3600);
    let marks = locker.refresh("a", hour).unwrap();
    assert_eq!(marks.ensure(async |_| Ok(())).await.unwrap(), Ensured::Now(()));
    let error = marks.get(async |_| Ok(b"x".to_vec())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let expected =
        "ensure keeps a mark here, so there is no value to get; use another name for one";
    assert!(error.message().starts_with(expected), "{error}");
    assert_eq!(marks.start().await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(marks.ensure(async |_| Ok(())).await.unwrap(), Ensured::Before);

    let values = locker.refresh("b", hour).unwrap();
    assert_eq!(get(&values, "x").await, "x");
    let error = values.ensure(async |_| Ok(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().starts_with("a value is kept here, so ensure cannot"), "{error}");
    assert_eq!(get(&values, "unwanted").await, "x");

    // What was said to be stale may be replaced by either.
    values.invalidate().await.unwrap();
    assert_eq!(values.ensure(async |_| Ok(())).await.unwrap(), Ensured::Now(()));
    marks.invalidate().await.unwrap();
    assert_eq!(get(&marks, "y").await, "y");
    // A mark that came while a value was computed is not overwritten.
    marks.invalidate().await.unwrap();
    let late = start(&marks).await;
    locker.revoke("refresh:a", "it hangs").await.unwrap();
    assert_eq!(marks.ensure(async |_| Ok(())).await.unwrap(), Ensured::Now(()));
    assert_eq!(late.finish(b"z".to_vec()).await.unwrap_err().kind(), ErrorKind::Conflict);
}

/// Waits until so many wait for the lock of the refresh.
async fn until_waiting(locker: &Locker, count: usize) {
    let start = Moment::now();
    while locker.inspect("refresh:a").await.unwrap().waiting < count {
        assert!(Moment::now().since(start) < Duration::from_secs(10), "not {count} waiting");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The lock is kept as the options say, and one wait counts for all who compute one after the other.
#[tokio::test]
async fn a_refresh_has_options() {
    let (second, wait) = (Duration::from_secs(1), Duration::from_secs(2));
    let locker = Locker::connect("memory:").await.unwrap();
    let refresh = locker.refresh("a", 60 * second).unwrap().ttl(20 * second).wait(wait);
    let first = start(&refresh).await;
    assert!(first.lease().remaining() <= 20 * second, "{:?}", first.lease().remaining());
    let waiting = tokio::spawn(async move {
        let start = Moment::now();
        (refresh.get(async |_| Ok(b"unwanted".to_vec())).await, Moment::now().since(start))
    });
    until_waiting(&locker, 1).await;
    // The next one has the lock as soon as who waits has seen that the first is gone.
    let mutex = locker.mutex("refresh:a").unwrap();
    let next = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    until_waiting(&locker, 2).await;
    tokio::time::sleep(wait * 3 / 4).await;
    drop(first);
    let _next = next.await.unwrap();
    let (got, took) = waiting.await.unwrap();
    let error = got.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    assert!(took >= wait && took < wait * 3 / 2, "a wait of {wait:?} took {took:?}");
}

/// Options that are not possible are refused by the next call, before anything is touched.
#[tokio::test]
async fn impossible_options_are_refused() {
    let locker = Locker::connect("memory:").await.unwrap();
    let wrong = Options::default().retries(1000);
    let hour = Duration::from_secs(3600);
    let refresh = locker.refresh("a", hour).unwrap().with_options(wrong.clone());
    let value = locker.value("a").unwrap().with_options(wrong.clone());
    let latch = locker.latch("a", 1).unwrap().with_options(wrong.clone());
    let barrier = locker.barrier("a", 1).unwrap().with_options(wrong);
    let brief = locker.barrier("a", 1).unwrap().ttl(Duration::ZERO);
    let refused = [
        refresh.get(async |_| panic!("it was computed")).await.map(drop),
        refresh.invalidate().await,
        value.read().await.map(drop),
        value.write(Expected::Nothing, b"x").await.map(drop),
        latch.count_down().await.map(drop),
        latch.wait().await,
        barrier.wait().await.map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig, "{number}");
    }
    assert_eq!(brief.wait().await.unwrap_err().kind(), ErrorKind::InvalidTtl);
    // What is possible counts again.
    let value = value.with_options(Options::default());
    assert_eq!(value.read().await.unwrap(), None);
}

/// Starts so many who want the same work done, and lets the one who does it end when all are there; what
/// came of each, and how often it was done.
async fn ensure_at_once(
    outcome: fn() -> lockfast::Result<()>,
) -> (Vec<lockfast::Result<Ensured<()>>>, usize) {
    const ALL: usize = 20;
    let locker = Locker::connect("memory:").await.unwrap();
    let worked = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..ALL)
        .map(|_| {
            let refresh = locker.refresh("a", Duration::from_secs(3600)).unwrap();
            let (locker, worked) = (locker.clone(), Arc::clone(&worked));
            tokio::spawn(async move {
                let work = refresh.ensure(async |_| {
                    worked.fetch_add(1, Ordering::SeqCst);
                    while locker.inspect("refresh:a").await?.waiting < ALL - 1 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    outcome()
                });
                work.await
            })
        })
        .collect();
    let mut came = Vec::new();
    for task in tasks {
        came.push(tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap());
    }
    (came, worked.load(Ordering::SeqCst))
}

/// P1: of all who want the same work done at once, one does it.
#[tokio::test]
async fn one_of_all_works() {
    let (came, worked) = ensure_at_once(|| Ok(())).await;
    assert_eq!(worked, 1);
    let count = |ensured| came.iter().filter(|came| came.as_ref().unwrap() == &ensured).count();
    assert_eq!((count(Ensured::Now(())), count(Ensured::Before)), (1, came.len() - 1));
}

/// P11: those who waited for work that failed are told why.
#[tokio::test]
async fn all_are_told_why_the_work_failed() {
    let closed = || Err(Error::new(ErrorKind::Permission, "the bank is closed"));
    let (came, worked) = ensure_at_once(closed).await;
    assert_eq!(worked, 1);
    let kinds = came.iter().map(|came| came.as_ref().unwrap_err());
    let told = kinds.inspect(|error| assert!(error.message().contains("the bank is closed")));
    assert_eq!(told.filter(|error| error.kind() == ErrorKind::Computation).count(), came.len() - 1);
}
