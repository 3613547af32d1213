//! What is stored is not what Lockfast wrote: it is never believed and never overwritten (P1,
//! P4), and the error names the key.

use std::time::Duration;

use lockfast::{ErrorKind, Fence, Released};

use crate::kit::{
    Redis, bounded, check_error, connect, failure, hold, loss, refusal, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const FENCE: &str = "lockfast:fence";
const TTL: Duration = Duration::from_secs(6);

/// Something of another type at the lock's name is not ours to touch.
/// The user sees: `ForeignKey` with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_type_at_the_name() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    for (make, kind) in [
        (["HSET", NAME, "field", "value"].as_slice(), "hash"),
        (&["RPUSH", NAME, "item"], "list"),
        (&["SADD", NAME, "member"], "set"),
        (&["ZADD", NAME, "1", "member"], "zset"),
        (&["XADD", NAME, "*", "field", "value"], "stream"),
    ] {
        redis.cli(make);
        let error = failure(&locker, NAME, ttl(TTL)).await;
        check_error(&error, ErrorKind::ForeignKey, &[NAME]);
        assert_eq!(redis.cli(&["TYPE", NAME]), kind);
        redis.cli(&["DEL", NAME]);
    }
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P4: a fence that is not a number is not guessed.
/// The user sees: `CorruptRecord` with the key; nothing is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_in_the_fence() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    for rubbish in ["rubbish", "", "-5", "1e15", "0x10", "12.5", " 7", "nan", "inf"] {
        redis.cli(&["SET", FENCE, rubbish]);
        let error = failure(&locker, NAME, ttl(TTL)).await;
        check_error(&error, ErrorKind::CorruptRecord, &[FENCE]);
        assert_eq!(redis.cli(&["EXISTS", NAME]), "0", "{rubbish}");
        assert_eq!(redis.cli(&["GET", FENCE]), rubbish.trim(), "it was overwritten");
    }
    redis.cli(&["DEL", FENCE]);
    redis.cli(&["HSET", FENCE, "field", "value"]);
    let error = failure(&locker, NAME, ttl(TTL)).await;
    let expected = [ErrorKind::CorruptRecord, ErrorKind::ForeignKey];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert_eq!(redis.cli(&["EXISTS", NAME]), "0");
}

/// P4: from 2^53 on a Lua number plus one is itself, so a fence there would be handed out twice.
/// The user sees: `TokenExhausted`; nothing is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_cannot_rise() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    for stored in [Fence::LIMIT - 1, Fence::LIMIT, Fence::LIMIT + 1, 1 << 63, u64::MAX] {
        redis.cli(&["SET", FENCE, &stored.to_string()]);
        let error = failure(&locker, NAME, ttl(TTL)).await;
        check_error(&error, ErrorKind::TokenExhausted, &["2^53"]);
        assert_eq!(redis.cli(&["EXISTS", NAME]), "0", "{stored}");
        assert_eq!(redis.cli(&["GET", FENCE]), stored.to_string(), "it was overwritten");
    }
    redis.cli(&["SET", FENCE, &(Fence::LIMIT - 2).to_string()]);
    let last = hold(&locker, NAME, ttl(TTL)).await;
    assert_eq!(last.fence().get(), Fence::LIMIT - 1);
    assert!(matches!(last.release().await.unwrap(), Released::Released));
    check_error(&failure(&locker, NAME, ttl(TTL)).await, ErrorKind::TokenExhausted, &[]);
}

/// P6, P8: a broken fence hinders nobody who has a lock already: it is renewed and given back,
/// also when somebody waits who cannot be granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_does_not_need_the_fence() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let mutex = locker.mutex(NAME).unwrap();
        let mutex = mutex.with_options(ttl(TTL).wait(Duration::from_secs(20)));
        async move { mutex.acquire().await }
    });
    let name = guard.name().clone();
    crate::kit::eventually("it waits", TTL, async || {
        locker.inspect(&name).await.unwrap().waiting == 1
    })
    .await;
    redis.cli(&["SET", FENCE, "rubbish"]);
    bounded(guard.extend(TTL * 2)).await.unwrap();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let error = bounded(waiter).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::CorruptRecord, &[FENCE]);
    assert_eq!(redis.cli(&["EXISTS", NAME]), "0");
}

/// P1, P3, P6: rubbish in the bookkeeping of one lock is told to whoever needs it, by its key, and is
/// no matter of the other locks, although they are asked for in one call. The lock is not given
/// to anybody else; who has it keeps it and can give it back.
/// The user sees: `CorruptRecord` with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_in_the_bookkeeping() {
    let redis = Redis::start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let key = |what: &str| format!("lockfast:{{{NAME}}}:{what}");
    let (queue, shared, revoked) = (key("queue"), key("shared"), key("revoked"));
    for (make, rubbish) in [
        (["SET", &queue, "rubbish"].as_slice(), &queue),
        (&["ZADD", &queue, "1", "rubbish"], &queue),
        (&["ZADD", &queue, "1", "AAAAAAAAAAAAAAAAAAAAAA.x.soon.never"], &queue),
        (&["ZADD", &queue, "1", "AAAAAAAAAAAAAAAAAAAAAA.z.1000.0"], &queue),
        (&["ZADD", &queue, "1", "AAAAAAAAAAAAAAAAAAAAAA.p0.1000.0"], &queue),
        (&["SET", &revoked, "rubbish"], &revoked),
    ] {
        let guard = hold(&first, NAME, ttl(TTL)).await;
        // The fast ways do not look at it while nobody waits for anything.
        redis.cli(&["SET", "lockfast:crowd", "1"]);
        redis.cli(make);
        bounded(guard.extend(TTL)).await.unwrap();
        assert!(matches!(guard.release().await.unwrap(), Released::Released), "{make:?}");
        let others = (0..8).map(|at| {
            let second = second.clone();
            tokio::spawn(async move { hold(&second, &format!("other-{at}"), ttl(TTL)).await })
        });
        let others: Vec<_> = others.collect();
        // Who lost it to an operator is no matter of who asks for the first time in the fast way.
        let options =
            if rubbish == &revoked { ttl(TTL).floor(Fence::new(1).unwrap()) } else { ttl(TTL) };
        let error = failure(&second, NAME, options).await;
        check_error(&error, ErrorKind::CorruptRecord, &[rubbish]);
        assert_eq!(redis.cli(&["EXISTS", NAME]), "0", "{make:?}");
        for other in others {
            let released = bounded(other).await.unwrap().release().await.unwrap();
            assert!(matches!(released, Released::Released), "{released:?}");
        }
        redis.cli(&["DEL", rubbish]);
    }
    // Those who share a lock stand in the bookkeeping alone.
    let options = ttl(Duration::from_secs(3));
    let lock = first.rwlock(NAME).unwrap().reader().with_options(options.clone());
    let reader = bounded(lock.acquire()).await.unwrap();
    let other = hold(&first, "other", options).await;
    redis.cli(&["SET", &shared, "rubbish"]);
    let error = failure(&second, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::CorruptRecord, &[&shared]);
    loss(&reader, TTL).await;
    wait_for_renewal(&other, TTL).await;
}

/// P1, P11: rubbish among those who share a lock: nobody is let in beside them, and the error names the
/// key.
/// The user sees: `CorruptRecord` with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_among_those_who_share() {
    let redis = Redis::start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let shared = format!("lockfast:{{{NAME}}}:shared");
    for (field, value) in [("m", "zebra"), ("m", "x"), ("m", "p0"), ("e", "soon")] {
        let lock = first.rwlock(NAME).unwrap().reader().with_options(ttl(TTL));
        let reader = bounded(lock.acquire()).await.unwrap();
        redis.cli(&["HSET", &shared, field, value]);
        let other = second.rwlock(NAME).unwrap().reader().with_options(ttl(TTL));
        let error = bounded(other.try_acquire()).await.err();
        check_error(&error.expect("an error"), ErrorKind::CorruptRecord, &[&shared]);
        assert_eq!(redis.cli(&["HLEN", &shared]), "3", "{field} {value}: nobody was let in");
        redis.cli(&["DEL", NAME, &shared]);
        drop(reader);
    }
}

/// What serves all locks is of another type: it is replaced where it is only a hint, and nothing is
/// granted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_of_another_type() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    let keys = redis.cli(&["KEYS", "lockfast:client:*"]);
    let told = format!("lockfast:{{{NAME}}}:told");
    for key in [keys.as_str(), "lockfast:crowd", "lockfast:watch", &told] {
        redis.cli(&["DEL", key]);
        redis.cli(&["HSET", key, "field", "value"]);
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released), "{key}");
        redis.cli(&["DEL", key]);
    }
}

/// P4: the caller's floor heals a fence that went back, but not one from a clock that is far
/// ahead, which would use up the numbers.
/// The user sees: `InvalidToken` for a floor more than a minute ahead of the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_that_is_far_ahead() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let now = guard.fence().get();
    assert!(guard.release().await.is_ok());
    let ahead = |seconds: u64| Fence::new(now + seconds * 1_000_000).unwrap();
    let healed = hold(&locker, NAME, ttl(TTL).floor(ahead(30))).await;
    assert!(healed.fence().get() > ahead(30).get());
    assert!(healed.release().await.is_ok());
    let error = failure(&locker, NAME, ttl(TTL).floor(ahead(3600))).await;
    check_error(&error, ErrorKind::InvalidToken, &["minute"]);
    assert_eq!(redis.cli(&["EXISTS", NAME]), "0");
}

/// P1: a value that only looks a little like ours is another program's.
/// The user sees: that it is taken, by another program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_not_ours() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    for value in [
        "",
        ".",
        "1",
        "AAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA.",
        "AAAAAAAAAAAAAAAAAAAAAA.x",
        "AAAAAAAAAAAAAAAAAAAAAA.-1",
        "AAAAAAAAAAAAAAAAAAAAAA.99999999999999999999",
        "AAAAAAAAAAAAAAAAAAAAA.5",
        "!!!!!!!!!!!!!!!!!!!!!!.5",
    ] {
        redis.cli(&["SET", NAME, value, "PX", "60000"]);
        let refused = refusal(&locker, NAME).await;
        assert!(refused.to_string().contains("another program"), "{value:?}: {refused}");
        assert_eq!(redis.cli(&["GET", NAME]), value);
    }
}
