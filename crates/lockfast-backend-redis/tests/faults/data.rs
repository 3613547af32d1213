//! The server forgets: all of it, some of it, or only what Lockfast had cached in it.

use std::time::Duration;

use lockfast::{Attempt, ErrorKind, Guard, Locker, LossCause, Moment, Options, Released};
use lockfast_faults::server::Server as _;

use crate::kit::Signpost;
use crate::kit::topology::{cut_off, promote, wait_for_sync};
use crate::kit::{
    Redis, Setup, bounded, check_error, connect, eventually, failure, hold, hold_detached, loss,
    refusal, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// A renewal comes every third of the ttl; a new link may cost a moment more.
const TOLD_MAX: Duration = Duration::from_secs(3);

/// Takes the lock as soon as it can be had.
async fn take_over(locker: &Locker, bound: Duration) -> Guard {
    let options = Options::default().ttl(TTL).wait(bound);
    hold(locker, NAME, options).await
}

fn is_told_as_forgotten(cause: &LossCause) -> bool {
    matches!(cause, LossCause::Forgotten | LossCause::DataLost | LossCause::Taken { .. })
}

/// P4, and P3 instead of P1: a server that restarts with nothing lets the next one in, whose
/// fence is higher all the same; the earlier holder is told at its next renewal.
/// The user sees: the loss `Forgotten` or `Taken`; a release answers `AlreadyLost`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data() {
    let mut redis = Redis::start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    redis.restart_empty();
    let next = take_over(&second, Duration::from_secs(5)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = loss(&guard, TOLD_MAX).await;
    assert!(is_told_as_forgotten(&cause), "{cause}");
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    // The late release of the first must not have freed the lock of the second.
    refusal(&first, NAME).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// P1, P4: with every write on disk, a crash of the server costs nobody a lock: the lease goes on
/// with its fence, and everybody else stays out.
/// The user sees: nothing, or jeopardy until the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_every_write_on_disk() {
    let mut redis = Setup::new().append_always().start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    for _ in 0..2 {
        redis.restart();
        wait_for_renewal(&guard, TTL).await;
        refusal(&second, NAME).await;
    }
    let fence = guard.fence();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > fence.get());
}

/// P9: time goes on while the server is down, so the lock of a dead holder is free when the
/// server comes back after its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_while_the_server_is_down() {
    let mut redis = Setup::new().append_always().start();
    let locker = connect(&redis.url()).await;
    let lease = hold_detached(&locker, NAME, Duration::from_millis(600)).await;
    redis.kill();
    let over = lease.deadline + Duration::from_millis(100);
    tokio::time::sleep(over.remaining(Moment::now())).await;
    redis.restart();
    let next = take_over(&locker, Duration::from_secs(5)).await;
    assert!(next.fence().get() > lease.fence.get());
}

/// P4, and P3 instead of P1: after FLUSHALL the fence still rises and the holder is told at its
/// next renewal; a waiter, whose place in the queue is gone too, gets in by the slow poll (P10).
/// The user sees: the loss `Forgotten` or `Taken`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall() {
    let redis = Redis::start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let second = second.clone();
        async move { take_over(&second, Duration::from_secs(20)).await }
    });
    let name = guard.name().clone();
    eventually("it waits", Duration::from_secs(2), async || {
        first.inspect(&name).await.unwrap().waiting == 1
    })
    .await;
    redis.cli(&["FLUSHALL"]);
    let flushed = Moment::now();
    let cause = loss(&guard, TOLD_MAX).await;
    assert!(is_told_as_forgotten(&cause), "{cause}");
    let next = bounded(waiter).await.unwrap();
    // The slow poll is every 5 s, spread by a fifth.
    let took = Moment::now().since(flushed);
    assert!(took < Duration::from_millis(7_500), "{took:?}");
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// P4, and P3 instead of P1: the other ways in which an operator can take the data away from under
/// a lease: the database is emptied or exchanged, or the key is deleted.
/// The user sees: the loss `Forgotten` or `DataLost`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_takes_the_data_away() {
    for command in [["FLUSHDB", "ASYNC"].as_slice(), &["SWAPDB", "0", "1"], &["DEL", NAME]] {
        let redis = Redis::start();
        let locker = connect(&redis.url()).await;
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        redis.cli(command);
        let cause = loss(&guard, TOLD_MAX).await;
        assert!(is_told_as_forgotten(&cause), "{command:?}: {cause}");
        let next = hold(&locker, NAME, ttl(TTL)).await;
        assert!(next.fence().get() > guard.fence().get(), "{command:?}");
    }
}

/// P4, and P3 instead of P1: a server that comes back with an older backup has forgotten the last
/// grants; the fence rises above them all the same.
/// The user sees: the loss `Forgotten` or `Taken`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_backup() {
    let mut redis = Redis::start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    assert!(hold(&first, NAME, ttl(TTL)).await.release().await.is_ok());
    redis.cli(&["SAVE"]);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    redis.restart();
    let next = take_over(&second, Duration::from_secs(5)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = loss(&guard, TOLD_MAX).await;
    assert!(is_told_as_forgotten(&cause), "{cause}");
}

/// P4, and P3 instead of P1: a server that may evict any key drops a held lock; the holder is
/// told at its next renewal, and the fence rises although its own key is gone too.
/// The user sees: the loss `Forgotten`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction() {
    let redis = Setup::new().memory_max(100 << 20, "allkeys-lru").start();
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("the key is evicted", Duration::from_secs(2), async || {
        redis.cli(&["EXISTS", NAME]) == "0"
    })
    .await;
    assert_ne!(redis.info("evicted_keys"), "0");
    redis.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let cause = loss(&guard, TOLD_MAX).await;
    assert!(is_told_as_forgotten(&cause), "{cause}");
    let next = hold(&locker, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
}

/// A master, its replica that was cut off before `guard` was granted, and the way to them.
struct Failover {
    master: Redis,
    replica: Redis,
    signpost: Signpost,
}

impl Failover {
    fn start() -> Self {
        let master = Redis::start();
        let replica = Setup::new().replica_of(&master).start();
        let signpost = Signpost::to(master.address());
        Self { master, replica, signpost }
    }

    fn url(&self) -> String {
        self.master.url_at(self.signpost.address())
    }

    /// Lets the replica have what is there now, and nothing after it.
    fn cut(&self) {
        wait_for_sync(&self.master, &self.replica);
        cut_off(&self.replica);
    }

    /// The master dies and the stale replica takes its place.
    fn fail_over(&mut self) {
        self.master.kill();
        promote(&self.replica);
        self.signpost.turn_to(self.replica.address());
    }
}

/// P4, and P3 instead of P1: a replica that was cut off becomes master without the last grant.
/// The next holder's fence is higher than the one that was never replicated.
/// The user sees: the loss `Forgotten` or `Taken`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promotion_of_a_stale_replica() {
    let mut servers = Failover::start();
    let (first, second) = (connect(&servers.url()).await, connect(&servers.url()).await);
    assert!(hold(&first, NAME, ttl(TTL)).await.release().await.is_ok());
    servers.cut();
    let guard = hold(&first, NAME, ttl(TTL)).await;
    servers.fail_over();
    let next = take_over(&second, Duration::from_secs(5)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = loss(&guard, TOLD_MAX).await;
    assert!(is_told_as_forgotten(&cause), "{cause}");
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P7, P8: a server that forgot the scripts is told them again; nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_flush() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mutex = locker.mutex(NAME).unwrap().with_options(ttl(TTL));
    redis.cli(&["SCRIPT", "FLUSH"]);
    let guard = bounded(mutex.acquire()).await.unwrap();
    redis.cli(&["SCRIPT", "FLUSH"]);
    bounded(guard.extend(TTL * 2)).await.unwrap();
    redis.cli(&["SCRIPT", "FLUSH"]);
    let name = guard.name().clone();
    assert_eq!(bounded(locker.inspect(&name)).await.unwrap().holders.len(), 1);
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert!(matches!(bounded(mutex.try_acquire()).await.unwrap(), Attempt::Taken(_)));
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
}

/// With quarantine a server that may have lost data grants nothing for this long.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(4);

pub(crate) fn with_quarantine(url: &str) -> String {
    format!("{url}?on_data_loss=quarantine&max_ttl={}ms", QUARANTINE.as_millis())
}

/// P1, P4: whatever was lost, with quarantine nobody new gets in until every lease that could
/// have been forgotten is over, while the living holder keeps its lock and its fence.
/// The user sees: the holder nothing; a new try, that it is refused and why.
async fn nobody_overtakes_a_living_holder(url: String, lose_data: impl FnOnce()) {
    let url = with_quarantine(&url);
    let (first, second) = (connect(&url).await, connect(&url).await);
    // An empty server could be one that has just lost everything.
    let patient = Options::default().ttl(TTL).wait(QUARANTINE * 4);
    let guard = hold(&first, NAME, patient.clone()).await;
    let fence = guard.fence();
    let lost = Moment::now();
    lose_data();
    let new = tokio::spawn({
        let (second, patient) = (second.clone(), patient.clone());
        async move {
            let guard = hold(&second, "somebody-new", patient).await;
            (guard, Moment::now())
        }
    });
    let over = lost + QUARANTINE + Duration::from_secs(1);
    while !over.has_passed(Moment::now()) {
        assert!(guard.check().is_ok(), "{:?}", guard.status());
        // It may be refused as taken or with an error, but it is refused.
        let mutex = second.mutex(NAME).unwrap().with_options(ttl(TTL).retries(0));
        if let Ok(Attempt::Acquired(other)) = bounded(mutex.try_acquire()).await {
            panic!("{other:?} beside {guard:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (new, granted) = bounded(new).await.unwrap();
    assert!(granted.since(lost) >= QUARANTINE, "{:?}", granted.since(lost));
    assert!(granted.since(lost) < QUARANTINE + Duration::from_secs(8), "{:?}", granted.since(lost));
    assert!(new.fence().get() > fence.get());
    assert_eq!(guard.fence(), fence);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = hold(&second, NAME, patient).await;
    assert!(next.fence().get() > fence.get());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_after_a_restart_without_data() {
    let mut redis = Redis::start();
    nobody_overtakes_a_living_holder(redis.url(), || redis.restart_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_after_flushall() {
    let redis = Redis::start();
    let flush = || assert_eq!(redis.cli(&["FLUSHALL"]), "OK");
    nobody_overtakes_a_living_holder(redis.url(), flush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_after_promotion_of_a_stale_replica() {
    let mut servers = Failover::start();
    servers.cut();
    nobody_overtakes_a_living_holder(servers.url(), || servers.fail_over()).await;
}

/// P1: the quarantine is as long as the longest lease, so a longer one is refused.
/// The user sees: `InvalidTtl`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_limits_the_ttl() {
    let redis = Redis::start();
    let locker = connect(&with_quarantine(&redis.url())).await;
    let error = failure(&locker, NAME, ttl(QUARANTINE * 2)).await;
    check_error(&error, ErrorKind::InvalidTtl, &["max_ttl"]);
    let error = failure(&locker, NAME, ttl(QUARANTINE).lock_delay(QUARANTINE)).await;
    check_error(&error, ErrorKind::InvalidTtl, &["max_ttl"]);
}
