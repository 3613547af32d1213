//! Lockfast and other programs take the same locks on the same server and keep each other out:
//! scripts around redis-cli, redis-py's `Lock`, node-redlock 4.2 and 5, each both ways round.
//!
//! Exclusion between the two (P1) rests on the layout alone: the key is the lock's name, a plain
//! string with an expiry, which both sides compare before they touch it (P8). Another program
//! does not announce its release, so a waiter behind it relies on the expiry that the server
//! tells and on the slow poll (P10).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::foreign::{self, Kind};
use kit::{Redis, bounded, connect, eventually, hold, hold_detached, loss, refusal, ttl};
use lockfast::{
    Attempt, ErrorKind, Guard, Locker, LossCause, Moment, Options, ReleaseOutcome, Released,
};
use lockfast_faults::lateness::Lateness;
use tokio::task::JoinHandle;

const NAME: &str = "shared-with-others";
const LONG: Duration = Duration::from_secs(60);

/// A waiter behind another program looks this often at least: every 5 s, spread by a fifth.
const POLL_MAX: Duration = Duration::from_secs(6);

/// What a wake-up and a round trip may take on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// Begins to wait for the lock, and returns when the store knows.
async fn begin_waiting(locker: &Locker, name: &str) -> JoinHandle<(Guard, Moment)> {
    let options = Options::default().ttl(LONG).wait(LONG);
    let mutex = locker.mutex(name).unwrap().with_options(options);
    let lock = mutex.name().clone();
    let before = locker.inspect(&lock).await.unwrap().waiting;
    let waiter = tokio::spawn(async move {
        let guard = mutex.acquire().await.unwrap();
        (guard, Moment::now())
    });
    eventually("it waits", LONG, async || {
        locker.inspect(&lock).await.unwrap().waiting == before + 1
    })
    .await;
    waiter
}

/// P1: a lock that Lockfast holds is taken for the others, whose own waiting ends with its
/// release.
async fn lockfast_holds_and_the_other_waits(kind: Kind) {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    let guard = hold(&locker, NAME, ttl(LONG)).await;
    assert_eq!(redis.cli(&["TYPE", NAME]), "string");
    let left: u64 = redis.cli(&["PTTL", NAME]).parse().unwrap();
    assert!((1..=60_000).contains(&left), "PTTL is {left}");
    assert!(!other.try_acquire(NAME, LONG));

    other.begin_acquire(NAME, LONG, LONG);
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(other.was_granted());
    refusal(&locker, NAME).await;
    assert!(other.release());
}

/// P1, P10, P11: a lock that another program holds is taken for Lockfast, whose refusal says that
/// the holder is unknown; a waiter gets in within the slow poll after the other's release.
async fn the_other_holds_and_lockfast_waits(kind: Kind) {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    assert!(other.try_acquire(NAME, LONG));
    let refused = refusal(&locker, NAME).await;
    let [holder] = refused.lock.holders.as_slice() else { panic!("{refused:?}") };
    assert!(holder.label.is_none() && holder.fence.is_none(), "{holder:?}");
    assert!(holder.remaining <= LONG && holder.remaining > LONG / 2, "{holder:?}");
    assert!(refused.to_string().contains("another program"), "{refused}");

    let waiter = begin_waiting(&locker, NAME).await;
    assert!(other.extend(LONG), "a waiter must not disturb the holder");
    assert!(!waiter.is_finished());
    assert!(other.release());
    let (machine, released) = (Lateness::watch(), Moment::now());
    let (guard, granted) = bounded(waiter).await.unwrap();
    machine.check("to get in", POLL_MAX + SLACK, released, granted);
    assert!(!other.try_acquire(NAME, LONG));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P1, P9: when another program dies, Lockfast's waiter gets in once its time is over: not
/// before, and within a second.
async fn lockfast_gets_in_when_the_other_expires(kind: Kind) {
    const TTL: Duration = Duration::from_secs(2);
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    let (machine, before) = (Lateness::watch(), Moment::now());
    assert!(other.try_acquire(NAME, TTL));
    let after = Moment::now();
    other.kill();
    let waiter = begin_waiting(&locker, NAME).await;
    let (guard, granted) = bounded(waiter).await.unwrap();
    assert!(granted.since(before) >= TTL, "{:?}", granted.since(before));
    machine.check("to get in", SLACK, after + TTL, granted);
    assert!(guard.release().await.is_ok());
}

/// P1, P2, P8: when a Lockfast lease ends without a release, the other gets in after the deadline
/// that Lockfast believed in, and Lockfast's late renewal and release do not touch it.
async fn the_other_gets_in_when_lockfast_expires(kind: Kind) {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    let lease = hold_detached(&locker, NAME, Duration::from_secs(1)).await;
    assert!(!other.try_acquire(NAME, LONG));
    other.begin_acquire(NAME, LONG, LONG);
    assert!(other.was_granted());
    assert!(lease.deadline.has_passed(Moment::now()));

    let error = locker.renew_detached(&lease.name, lease.holder, LONG).await.unwrap_err();
    assert!([ErrorKind::Lost, ErrorKind::NotHeld].contains(&error.kind()), "{error:?}");
    let outcome = locker.release_detached(&lease.name, lease.holder).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::NotHeld);
    assert!(other.extend(LONG), "the late release must not free the other's lock");
    assert!(other.release());
}

/// P8: the late release and the late extension of another program do not touch Lockfast's lease.
async fn a_late_release_of_the_other_has_no_effect(kind: Kind) {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    assert!(other.try_acquire(NAME, Duration::from_millis(500)));
    let (guard, _) = bounded(begin_waiting(&locker, NAME).await).await.unwrap();
    let value = redis.cli(&["GET", NAME]);
    assert!(!other.extend(LONG));
    assert!(!other.release());
    assert_eq!(redis.cli(&["GET", NAME]), value);
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P3, P8: when somebody deletes the key and another program takes the lock, Lockfast's holder is
/// told so no later than at its next renewal, and its release does not free the other's lock.
async fn a_late_release_of_lockfast_has_no_effect(kind: Kind) {
    const TTL: Duration = Duration::from_secs(3);
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(kind, &redis);

    let guard = hold(&locker, NAME, ttl(TTL)).await;
    redis.cli(&["DEL", NAME]);
    assert!(other.try_acquire(NAME, LONG));
    let cause = loss(&guard, TTL / 3 + SLACK).await;
    assert_eq!(cause, LossCause::Taken { by: None });
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(other.extend(LONG));
    assert!(other.release());
}

macro_rules! with_every_program {
    ($($scenario:ident)*) => {
        with_every_program!(@ redis_cli RedisCli: $($scenario)*);
        with_every_program!(@ redis_py RedisPy: $($scenario)*);
        with_every_program!(@ node_redlock_4 NodeRedlock4: $($scenario)*);
        with_every_program!(@ node_redlock_5 NodeRedlock5: $($scenario)*);
    };
    (@ $program:ident $kind:ident: $($scenario:ident)*) => {
        mod $program {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario(super::Kind::$kind).await;
                }
            )*
        }
    };
}

with_every_program! {
    lockfast_holds_and_the_other_waits
    the_other_holds_and_lockfast_waits
    lockfast_gets_in_when_the_other_expires
    the_other_gets_in_when_lockfast_expires
    a_late_release_of_the_other_has_no_effect
    a_late_release_of_lockfast_has_no_effect
}

/// P1: the key is the name to the letter, also where a name looks like a pattern or a hash tag,
/// and nothing of the lock is left when it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_the_name_as_given() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    for name in ["plain", "{a}b", "a}{b", "a b", "grün", "a*?[x]", "\"quoted\"", "x:y/z", "%41"] {
        let guard = hold(&locker, name, ttl(LONG)).await;
        assert_eq!(redis.cli(&["SET", name, "foreign", "NX", "PX", "1000"]), "", "{name}");
        assert!(guard.check().is_ok());
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        assert_eq!(redis.cli(&["SET", name, "foreign", "NX", "PX", "60000"]), "OK", "{name}");
        refusal(&locker, name).await;
        redis.cli(&["DEL", name]);
    }
    let left = redis.cli(&["KEYS", "*"]);
    assert!(left.lines().all(|key| key.starts_with("lockfast:")), "{left}");
    assert!(!left.contains("plain") && !left.contains("grün"), "{left}");
}

/// P1: a configured prefix stands before the name in the key, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_stands_before_the_name() {
    let redis = Redis::start();
    let locker = connect(&format!("{}?prefix=app%3A", redis.url())).await;
    let guard = hold(&locker, NAME, ttl(LONG)).await;
    assert_eq!(redis.cli(&["EXISTS", &format!("app:{NAME}")]), "1");
    assert_eq!(redis.cli(&["EXISTS", NAME]), "0");
    let listed = locker.list("", None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), [NAME]);
    assert!(guard.release().await.is_ok());
}

/// P1: holders of shared locks and of permits keep other programs out too, until the last is
/// gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_holders_keep_others_out() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let mut other = foreign::start(Kind::RedisPy, &redis);
    let (lock, semaphore) = (locker.rwlock("rw").unwrap(), locker.semaphore("sem", 2).unwrap());
    let mut guards = Vec::new();
    for _ in 0..2 {
        guards.push(("rw", bounded(lock.read()).await.unwrap()));
        guards.push(("sem", bounded(semaphore.acquire()).await.unwrap()));
    }
    while let Some((name, guard)) = guards.pop() {
        assert!(!other.try_acquire(name, LONG), "{name}");
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    for name in ["rw", "sem"] {
        assert!(other.try_acquire(name, LONG), "{name}");
    }
    let read = lock.reader().with_options(Options::default().no_wait());
    assert!(matches!(read.try_acquire().await.unwrap(), Attempt::Taken(_)));
    assert!(matches!(semaphore.try_acquire().await.unwrap(), Attempt::Taken(_)));
}

/// P1, P10: a lock that another program took without an expiry stays taken until it is deleted;
/// then the waiter gets in within the slow poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_expiry_is_a_holder() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.cli(&["SETNX", NAME, "for ever"]);
    refusal(&locker, NAME).await;
    let waiter = begin_waiting(&locker, NAME).await;
    redis.cli(&["DEL", NAME]);
    let (machine, released) = (Lateness::watch(), Moment::now());
    let (guard, granted) = bounded(waiter).await.unwrap();
    machine.check("to get in", POLL_MAX + SLACK, released, granted);
    assert!(guard.release().await.is_ok());
}

/// P10: waiters behind another program are served in their order, and another program cannot
/// slip in between two of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_another_program_stay_in_order() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.cli(&["SET", NAME, "foreign", "NX", "PX", "1500"]);
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(begin_waiting(&locker, NAME).await);
    }
    let mut fence = 0;
    for waiter in waiters {
        let (guard, _) = bounded(waiter).await.unwrap();
        assert!(fence < guard.fence().get());
        fence = guard.fence().get();
        assert_eq!(redis.cli(&["SET", NAME, "foreign", "NX", "PX", "1000"]), "");
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}
