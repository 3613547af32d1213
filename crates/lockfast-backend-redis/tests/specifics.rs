//! What is special about this store: what it keeps in Redis and how much, how many commands it
//! takes, and what it makes of pushes, replicas and rights.
//!
//! What is known to go wrong with the connections of the `redis` crate cannot happen here, because
//! only its parser is used; that our own connections do better is what these tests are for:
//!
//! | the crate's connections | ours |
//! |---|---|
//! | 1. give an answer 500 ms, and a connection 1 s | `a_slow_answer_is_waited_for` |
//! | 2. stay with a peer that is silent | `faults/link.rs`: `a_half_open_link`, `a_half_open_link_while_waiting`; the unit test in `tcp.rs` of `lockfast-net` for keepalive and user timeout |
//! | 3. leave TCP_NODELAY off | the same unit test |
//! | 4. return an error for the command that meets a broken connection | `faults/link.rs`: `the_reply_of_an_acquisition_is_lost`, `the_reply_of_a_release_is_lost` |
//! | 5. give up after six tries to connect | `a_waiter_outlives_a_restart`; `faults/refusal.rs`: `a_restart_while_waiting` |
//! | 6. ignore that a subscription failed | `nobody_listens_in_vain`; `faults/link.rs`: `client_kill_while_waiting` |
//! | 7. do not send what is dropped early, and send what is dropped late | `a_release_that_nobody_waits_for`; `cancellation` of the conformance suite |
//! | 8. are held up by commands that block | `a_cycle_is_two_commands` |
//! | 9. repeat a request sixteen times on a cluster | `cluster.rs`: `a_request_that_was_given_up_changes_nothing` |
//! | 10. stay with a master that was demoted | `sentinel.rs`: `a_demoted_master_is_left`, `a_master_that_does_not_know_is_left` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use std::time::Duration;

use kit::certificate::{Authority, Flaw};
use kit::direct::Direct;
use kit::{Redis, Setup, bounded, check_error, connect, eventually, hold, try_connect, ttl};
use lockfast::{ErrorKind, Locker, Mode, Moment, Options};
use lockfast_core::{
    AcquireRequest, Change, DowngradeOutcome, DowngradeRequest, LockName, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, RevokeRequest, VersionedValue, Wait, WatchKind,
};
use lockfast_faults::server::Server as _;
use tokio::runtime::Runtime;

const LONG: Duration = kit::direct::TTL;

/// How often the server ran a command.
fn calls(redis: &Redis, command: &str) -> u64 {
    let stats = redis.cli(&["INFO", "commandstats"]);
    let mark = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(mark.as_str()));
    count.and_then(|count| count.split(',').next()).map_or(0, |count| count.parse().unwrap())
}

/// A held lock is one plain string under its own name, and nothing else is stored for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_one_small_key() {
    // As many as fill the server's tables, whose empty room would otherwise count.
    const LOCKS: usize = 8_000;
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    direct.take(direct.request("first", Wait::No)).await;
    let before: usize = redis.info("used_memory").parse().unwrap();
    let keys: usize = redis.cli(&["DBSIZE"]).parse().unwrap();
    assert_eq!(keys, 3, "the lock, the fence and this client: {}", redis.cli(&["KEYS", "*"]));
    for lock in 0..LOCKS {
        let request = direct.request(&format!("bench-lock-{lock:05}"), Wait::No);
        direct.take(request).await;
    }
    assert_eq!(redis.cli(&["OBJECT", "ENCODING", "bench-lock-00007"]), "embstr");
    // While the server's tables grow, it has the old ones too.
    eventually("a lock takes 190 bytes at most", LONG, async || {
        let after: usize = redis.info("used_memory").parse().unwrap();
        after.saturating_sub(before) / LOCKS <= 190
    })
    .await;
    assert_eq!(redis.cli(&["DBSIZE"]).parse::<usize>().unwrap(), keys + LOCKS);
    let value = redis.cli(&["GET", "bench-lock-00007"]);
    let (holder, fence) = value.split_once('.').unwrap();
    assert_eq!(holder.len(), 22, "{value}");
    assert!(fence.parse::<u64>().is_ok(), "{value}");
}

/// Nothing is left when everybody has gone, but for the fence and the client.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(2).unwrap()] {
        let request = AcquireRequest { mode, ..direct.request("a", Wait::No) };
        let holder = direct.take(request).await;
        let first = direct.take(direct.request("a-other", Wait::No)).await;
        let waiter = direct.queue("a-other").await;
        direct.give("a-other", first).await;
        let (second, _) = bounded(waiter).await.unwrap();
        direct.give("a-other", second).await;
        direct.give("a", holder).await;
        let keys = redis.cli(&["KEYS", "*"]);
        // That somebody waited is remembered for a while, once for all locks.
        let mut keys: Vec<&str> = keys.lines().filter(|key| *key != "lockfast:crowd").collect();
        keys.sort_unstable();
        assert_eq!(keys.len(), 2, "{mode}: {keys:?}");
        assert!(keys[0].starts_with("lockfast:client:"), "{keys:?}");
        assert_eq!(keys[1], "lockfast:fence");
    }
}

/// A free lock takes two commands: one script to take it, one to give it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_is_two_commands() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let before: u64 = redis.info("total_commands_processed").parse().unwrap();
    for _ in 0..50 {
        let holder = direct.take(direct.request("a", Wait::No)).await;
        direct.give("a", holder).await;
    }
    let scripts = calls(&redis, "evalsha");
    // One script registered the connection.
    assert_eq!(scripts, 101);
    let after: u64 = redis.info("total_commands_processed").parse().unwrap();
    // What the scripts call counts too; nothing blocks the connection or polls.
    assert!(after - before < 50 * 12, "{} commands", after - before);
    for command in ["blpop", "wait", "subscribe"] {
        assert!(calls(&redis, command) <= u64::from(command == "subscribe"), "{command}");
    }
}

/// A writer takes three commands when it becomes a reader meanwhile, which is one of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_is_one_command() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let before = calls(&redis, "evalsha");
    for _ in 0..20 {
        let holder = direct.take(direct.request("a", Wait::No)).await;
        let request = DowngradeRequest { name: LockName::new("a").unwrap(), holder };
        let outcome = bounded(direct.backend.downgrade(request)).await.unwrap();
        assert_eq!(outcome, DowngradeOutcome::Downgraded);
        assert_eq!(direct.give("a", holder).await, ReleaseOutcome::Released);
    }
    assert_eq!(calls(&redis, "evalsha") - before, 60);
}

/// What many tasks ask at once shares round trips.
#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_round_trips() {
    const TASKS: usize = 64;
    const CYCLES: u64 = 50;
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let direct = direct.clone();
            tokio::spawn(async move {
                let name = format!("lock-{task}");
                for _ in 0..CYCLES {
                    let holder = direct.take(direct.request(&name, Wait::No)).await;
                    assert_eq!(direct.give(&name, holder).await, ReleaseOutcome::Released);
                }
            })
        })
        .collect();
    for task in tasks {
        bounded(task).await.unwrap();
    }
    let scripts = calls(&redis, "evalsha");
    let alone = 2 * TASKS as u64 * CYCLES;
    assert!(scripts < alone / 3, "{scripts} calls for what would be {alone} one by one");
}

/// Ten thousand leases are renewed in few round trips.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_share_round_trips() {
    const LEASES: usize = 10_000;
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let mut batch = Vec::new();
    for some in 0..LEASES / 100 {
        let requests = (0..100).map(|at| direct.request(&format!("l-{some}-{at}"), Wait::No));
        let tasks: Vec<_> = requests
            .map(|request| {
                let direct = direct.clone();
                tokio::spawn(async move { (request.name.clone(), direct.take(request).await) })
            })
            .collect();
        for task in tasks {
            let (name, holder) = bounded(task).await.unwrap();
            batch.push(RenewRequest { name, holder, ttl: LONG, lock_delay: Duration::ZERO });
        }
    }
    let before = calls(&redis, "evalsha");
    let outcomes = bounded(direct.backend.renew(batch)).await.unwrap();
    assert_eq!(outcomes.len(), LEASES);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, RenewOutcome::Renewed)));
    let trips = calls(&redis, "evalsha") - before;
    assert!(trips <= 100, "{trips} round trips");
}

/// A hand-over takes two script calls, one for each side.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_is_two_commands() {
    const WAITERS: usize = 20;
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let mut holder = direct.take(direct.request("a", Wait::No)).await;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(direct.queue("a").await);
    }
    let before = calls(&redis, "evalsha");
    for waiter in waiters {
        assert_eq!(direct.give("a", holder).await, ReleaseOutcome::Released);
        (holder, _) = bounded(waiter).await.unwrap();
    }
    let scripts = calls(&redis, "evalsha") - before;
    // They had asked before; a slow poll may come on top.
    assert!(scripts <= WAITERS as u64 + 3, "{scripts} calls for {WAITERS} hand-overs");
}

/// It is the same when the waiters are those of several processes, however they stand in line.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_between_processes_is_two_commands() {
    const WAITERS: usize = 40;
    let redis = Redis::start();
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(Direct::connect(&redis.url()).await);
    }
    let mut holder = processes[0].take(processes[0].request("a", Wait::No)).await;
    let mut waiters = Vec::new();
    for at in 0..WAITERS {
        // In turn, and then many of one process in a row.
        let process = if at < WAITERS / 2 { at % 4 } else { at / 8 % 4 };
        waiters.push((process, processes[process].queue("a").await));
    }
    let before = calls(&redis, "evalsha");
    let told = calls(&redis, "publish");
    for (process, waiter) in waiters {
        assert_eq!(processes[process].give("a", holder).await, ReleaseOutcome::Released);
        (holder, _) = bounded(waiter).await.unwrap();
    }
    let scripts = calls(&redis, "evalsha") - before;
    // They had asked before; a slow poll of each process may come on top.
    assert!(scripts <= WAITERS as u64 + 8, "{scripts} calls for {WAITERS} hand-overs");
    let told = calls(&redis, "publish") - told;
    assert!(told <= 2 * WAITERS as u64 + 8, "{told} messages for {WAITERS} hand-overs");
}

/// A waiter that nothing happens to sends next to nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_waiter_is_quiet() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    direct.take(direct.request("a", Wait::No)).await;
    let waiters = [direct.queue("a").await, direct.queue("a").await];
    let before = calls(&redis, "evalsha");
    let watched = Duration::from_secs(11);
    tokio::time::sleep(watched).await;
    let scripts = calls(&redis, "evalsha") - before;
    assert!(scripts <= 4, "two waiters sent {scripts} commands in {watched:?}");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

/// P9: a waiter whose process hangs delays those behind it by the offer's second and a half.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_hangs_is_passed_over() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let keeper = Runtime::new().unwrap();
    let hanging =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stuck = Direct::connect_on(&redis.url(), hanging.handle().clone()).await;
    let last = Direct::connect_on(&redis.url(), keeper.handle().clone()).await;
    let holder = direct.take(direct.request("a", Wait::No)).await;
    let lost = stuck.queue("a").await;
    let next = last.queue("a").await;
    // The server still sees its connection, but nobody reads it.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    hanging.spawn(async move { stopped.recv() });
    let start = Moment::now();
    direct.give("a", holder).await;
    let (_, granted) = bounded(next).await.unwrap();
    let took = granted.since(start);
    assert!(took >= Duration::from_millis(1_400), "the offer was not kept: {took:?}");
    assert!(took <= Duration::from_secs(3), "delayed by {took:?}");
    drop(stop);
    lost.abort();
    hanging.shutdown_background();
    keeper.shutdown_background();
}

/// A waiter that only listens does not go deaf when the server was away.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlives_a_restart() {
    let mut redis = Setup::new().append_always().start();
    let direct = Direct::connect(&redis.url()).await;
    let other = Direct::connect(&redis.url()).await;
    let holder = direct.take(direct.request("a", Wait::No)).await;
    let waiter = other.queue("a").await;
    redis.restart();
    eventually("the server is back", LONG, async || {
        let name = LockName::new("a").unwrap();
        let release = ReleaseRequest { name, holder };
        direct.backend.release(release).await.is_ok()
    })
    .await;
    let start = Moment::now();
    let (_, granted) = bounded(waiter).await.unwrap();
    assert!(granted.since(start) < Duration::from_secs(6), "{:?}", granted.since(start));
}

/// A server that takes its time is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_is_waited_for() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.cli(&["CLIENT", "PAUSE", "900", "ALL"]);
    let start = Moment::now();
    let guard = hold(&locker, "a", ttl(LONG)).await;
    assert!(Moment::now().since(start) >= Duration::from_millis(500));
    assert!(guard.check().is_ok());
}

/// A release whose caller does not wait for it is sent all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_nobody_waits_for() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let holder = direct.take(direct.request("a", Wait::No)).await;
    let name = LockName::new("a").unwrap();
    {
        let mut release = direct.backend.release(ReleaseRequest { name, holder });
        let waker = std::task::Waker::noop();
        let _ = release.as_mut().poll(&mut std::task::Context::from_waker(waker));
    }
    eventually("it is free", LONG, async || redis.cli(&["EXISTS", "a"]) == "0").await;
}

/// Names that would collide with the store's own keys are refused, and prefixes keep apart.
#[tokio::test(flavor = "multi_thread")]
async fn names_and_prefixes() {
    let redis = Redis::start();
    let plain = connect(&redis.url()).await;
    let prefixed = connect(&format!("{}?prefix=app:", redis.url())).await;
    let error = plain.mutex("lockfast:fence").unwrap().acquire().await.unwrap_err();
    check_error(&error, ErrorKind::InvalidName, &["lockfast:", "own"]);
    let one = hold(&plain, "a", ttl(LONG)).await;
    let two = hold(&prefixed, "a", ttl(LONG)).await;
    let three = hold(&plain, "app:b", ttl(LONG)).await;
    assert_eq!(redis.cli(&["EXISTS", "a", "app:a", "app:b"]), "3");
    let listed = |views: Vec<lockfast::LockView>| {
        views.iter().map(|view| view.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(plain.list("", None, 10).await.unwrap()), ["a", "app:a", "app:b"]);
    assert_eq!(listed(prefixed.list("", None, 10).await.unwrap()), ["a", "b"]);
    drop((one, two, three));
}

/// A listing shows locks and nothing else, however many other keys there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_among_other_keys() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.cli(&["DEBUG", "POPULATE", "3000", "cache", "30"]);
    redis.cli(&["SET", "a*b", "not a lock"]);
    let mut guards = Vec::new();
    for name in ["a*c", "ab", "a", "b", "cache:7x"] {
        guards.push(hold(&locker, name, ttl(LONG)).await);
    }
    let names = |views: Vec<lockfast::LockView>| {
        views.iter().map(|view| view.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(locker.list("a", None, 10).await.unwrap()), ["a", "a*c", "ab"]);
    assert_eq!(names(locker.list("a*", None, 10).await.unwrap()), ["a*c"]);
    assert_eq!(names(locker.list("", None, 2).await.unwrap()), ["a", "a*c"]);
    let after = LockName::new("a*c").unwrap();
    assert_eq!(names(locker.list("", Some(&after), 2).await.unwrap()), ["ab", "b"]);
}

/// A value is one string that an operator can read, and takes one command to read or to write. Its
/// name is none of a lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_one_key() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let keys: usize = redis.cli(&["DBSIZE"]).parse().unwrap();
    let before = calls(&redis, "evalsha");
    let version = direct.write(direct.put("a b", None, b"one")).await;
    direct.read("a b").await.unwrap();
    assert_eq!(calls(&redis, "evalsha") - before, 2);
    assert_eq!(redis.cli(&["DBSIZE"]).parse::<usize>().unwrap(), keys + 1);
    let stored = redis.cli(&["GET", "lockfast:{a b}:value"]);
    let (id, bytes) = stored.split_once('.').unwrap();
    assert_eq!((id.len(), bytes), (22, "one"), "{stored}");
    let locker = connect(&redis.url()).await;
    assert!(locker.list("", None, 10).await.unwrap().is_empty());
    for name in ["lockfast:fence", "lockfast:{a b}:value"] {
        let error = direct.try_write(direct.put(name, None, b"one")).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidName, &["own"]);
        check_error(&direct.try_read(name).await.unwrap_err(), ErrorKind::InvalidName, &["own"]);
    }
    // Prefixes keep apart.
    let prefixed = Direct::connect(&format!("{}?prefix=app:", redis.url())).await;
    assert_eq!(prefixed.read("a b").await, None);
    assert_eq!(direct.write(direct.change("a b", version, Change::Remove)).await, None);
    assert_eq!(redis.cli(&["EXISTS", "lockfast:{a b}:value"]), "0");
}

/// The longest value goes over every kind of connection, among many others.
#[tokio::test(flavor = "multi_thread")]
async fn long_values() {
    let authority = Authority::new();
    let setup = Setup::new().tls(&authority, authority.sign_server(Flaw::None), false);
    let (plain, encrypted) = (Setup::new().unix_socket().start(), setup.start());
    let socket = format!("redis+unix://{}", plain.unix_socket().display());
    for url in [plain.url(), socket, encrypted.url()] {
        let direct = Direct::connect(&url).await;
        let tasks = (0..50).map(|at: u8| {
            let (direct, name) = (direct.clone(), format!("value-{at}"));
            tokio::spawn(async move {
                let bytes = vec![at; VersionedValue::BYTES_MAX];
                let version = direct.write(direct.put(&name, None, &bytes)).await;
                assert_eq!(direct.read(&name).await, Some(bytes));
                direct.write(direct.change(&name, version, Change::Remove)).await;
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            bounded(task).await.unwrap();
        }
    }
}

/// Values need no other rights than locks, and the same names.
#[tokio::test(flavor = "multi_thread")]
async fn rights_to_values() {
    let rights = kit::rights::rights("~nightly*", &[]);
    let redis = Setup::new().line(format!("user locks on >word {rights}")).start();
    let direct = Direct::connect(&format!("redis://locks:word@{}", redis.address())).await;
    let mut events = bounded(direct.backend.watch()).await.unwrap();
    let brief = Change::Put { bytes: b"one".to_vec(), keep: Some(LONG) };
    let request = direct.change("nightly", None, brief);
    let version = direct.write(request.clone()).await;
    assert_eq!(direct.write(request).await, version);
    assert_eq!(direct.read("nightly").await.as_deref(), Some(&b"one"[..]));
    let version = direct.write(direct.put("nightly", version, b"two")).await;
    direct.write(direct.change("nightly", version, Change::Remove)).await;
    for _ in 0..3 {
        assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Changed);
    }
    // Although their keys start with lockfast:, like those of all values.
    let error = direct.try_write(direct.put("daily", None, b"one")).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["ACL"]);
    check_error(&direct.try_read("daily").await.unwrap_err(), ErrorKind::Permission, &["ACL"]);
}

/// B24: all pages of a listing need one walk through the keys, and show what there is by then.
#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_listing_share_a_walk() {
    const LOCKS: usize = 1500;
    const PAGE: usize = 50;
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    let fence = "1700000000000000";
    let holder = "AAAAAAAAAAAAAAAAAAAAAA";
    let values: Vec<String> =
        (0..LOCKS).flat_map(|at| [format!("lock-{at:04}"), format!("{holder}.{fence}")]).collect();
    let set = ["MSET"].into_iter().chain(values.iter().map(String::as_str));
    redis.cli(&set.collect::<Vec<_>>());
    let before = calls(&redis, "scan");
    let mut seen: Vec<LockName> = Vec::new();
    loop {
        let page = locker.list("", seen.last(), PAGE).await.unwrap();
        if seen.len() == PAGE {
            // What became free since the walk is not shown, and the page is full all the same.
            redis.cli(&["DEL", "lock-0100", "lock-0101"]);
        }
        let is_last = page.len() < PAGE;
        seen.extend(page.into_iter().map(|view| view.name));
        if is_last {
            break;
        }
    }
    let names = |mut at: std::ops::Range<usize>, gone: &[usize]| -> Vec<String> {
        at.by_ref().filter(|at| !gone.contains(at)).map(|at| format!("lock-{at:04}")).collect()
    };
    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
    assert_eq!(seen, names(0..LOCKS, &[100, 101]));
    let walked = calls(&redis, "scan") - before;
    assert!(walked <= 2 * (LOCKS as u64 / 1000 + 2), "{walked} steps");
    // Whoever asks for something else is answered from now.
    redis.cli(&["SET", "lock-0100", &format!("{holder}.{fence}")]);
    let after = LockName::new("lock-0099").unwrap();
    let page = locker.list("", Some(&after), 1).await.unwrap();
    assert_eq!(page[0].name.to_string(), "lock-0100");
}

/// B39: who watches one database sees nothing of the others.
#[tokio::test(flavor = "multi_thread")]
async fn databases_are_watched_apart() {
    let redis = Redis::start();
    let url = |database: u32| format!("{}/{database}", redis.url());
    let (zero, one) = (connect(&url(0)).await, connect(&url(1)).await);
    let mut seen_zero = bounded(zero.watch()).await.unwrap();
    let mut seen_one = bounded(one.watch()).await.unwrap();
    for (locker, name) in [(&zero, "of-zero"), (&one, "of-one"), (&zero, "of-zero")] {
        hold(locker, name, ttl(LONG)).await.release().await.unwrap();
    }
    for (seen, name, count) in [(&mut seen_zero, "of-zero", 4), (&mut seen_one, "of-one", 2)] {
        for _ in 0..count {
            let event = bounded(seen.next()).await.unwrap();
            assert_eq!(event.name.to_string(), name, "{event:?}");
        }
        let more = tokio::time::timeout(Duration::from_millis(200), seen.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

/// B39: a revocation costs those who take other locks nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_after_a_revocation_is_two_commands() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    direct.take(direct.request("taken", Wait::No)).await;
    let name = LockName::new("taken").unwrap();
    let revoke = RevokeRequest { name, expect_fence: None, reason: "test".into() };
    bounded(direct.backend.revoke(revoke)).await.unwrap();
    let before = calls(&redis, "evalsha");
    for _ in 0..50 {
        let holder = direct.take(direct.request("a", Wait::No)).await;
        direct.give("a", holder).await;
    }
    assert_eq!(calls(&redis, "evalsha") - before, 100);
}

/// With `min_replicas`, a grant that replicas do not have is undone and refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_needs_its_replicas() {
    let redis = Redis::start();
    let url = format!("{}?min_replicas=1", redis.url());
    let locker = connect(&url).await;
    let options = ttl(LONG).retries(0);
    let error = kit::failure(&locker, "a", options.clone()).await;
    check_error(&error, ErrorKind::Unreachable, &["0 of 1 replicas"]);
    eventually("it is undone", LONG, async || redis.cli(&["EXISTS", "a"]) == "0").await;

    let replica = Setup::new().replica_of(&redis).start();
    kit::topology::wait_for_sync(&redis, &replica);
    // On a busy machine a replica may be late with its first confirmations.
    let guard = hold(&locker, "a", options.retries(2).wait(LONG)).await;
    assert_eq!(replica.cli(&["EXISTS", "a"]), "1");
    // A hand-over is confirmed too before it counts.
    let waiting = locker.mutex("a").unwrap().ttl(LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    eventually("it waits", LONG, async || waiting_for(&locker, "a").await == 1).await;
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap().unwrap();
    assert!(next.check().is_ok());
}

async fn waiting_for(locker: &Locker, name: &str) -> usize {
    locker.inspect(&LockName::new(name).unwrap()).await.unwrap().waiting
}

/// The README's rights are enough for what it says, and none of its rows can be left out.
#[tokio::test(flavor = "multi_thread")]
async fn rights() {
    let (option, quarantine) = ("`min_replicas`", "`on_data_loss=quarantine`");
    for (row, query) in
        [(option, "min_replicas=1"), (quarantine, "on_data_loss=quarantine&max_ttl=200ms")]
    {
        for rows in [[row].as_slice(), &[]] {
            let rights = kit::rights::rights("~nightly*", rows);
            let redis = Setup::new().line(format!("user locks on >word {rights}")).start();
            let replica = Setup::new().replica_of(&redis).start();
            kit::topology::wait_for_sync(&redis, &replica);
            let url = format!("redis://locks:word@{}?{query}", redis.address());
            let taken = take_nightly(&url).await;
            match rows {
                [] => check_error(&taken.unwrap_err(), ErrorKind::Permission, &["ACL"]),
                _ => taken.unwrap(),
            }
        }
    }
    let rights = kit::rights::rights("~nightly*", &[]);
    let redis = Setup::new().line(format!("user locks on >word {rights}")).start();
    let locker = connect(&format!("redis://locks:word@{}", redis.address())).await;
    let error = kit::failure(&locker, "daily", ttl(LONG)).await;
    check_error(&error, ErrorKind::Permission, &["ACL"]);
}

async fn take_nightly(url: &str) -> lockfast::Result<()> {
    let options = Options::default().ttl(Duration::from_millis(150)).wait(LONG);
    let mutex = try_connect(url).await?.mutex("nightly")?.with_options(options);
    bounded(mutex.acquire()).await.map(drop)
}

/// Without the right to listen to its channel a client is refused: it would wait in vain.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_listens_in_vain() {
    let rights = kit::rights::rights("~*", &[]).replace("&lockfast:*", "&lockfast:events");
    let redis = Setup::new().line(format!("user locks on >word {rights}")).start();
    let error = try_connect(&format!("redis://locks:word@{}", redis.address())).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["ACL", "channel"]);
}

/// A new server grants nothing for `max_ttl` with the quarantine, and then all goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_ends() {
    let redis = Redis::start();
    let url = format!("{}?on_data_loss=quarantine&max_ttl=1s", redis.url());
    let start = Moment::now();
    let locker = try_connect(&url).await.unwrap();
    let short = Options::default().ttl(Duration::from_millis(600)).retries(0);
    let error = kit::failure(&locker, "a", short.clone().no_wait()).await;
    check_error(&error, ErrorKind::Unreachable, &["may have lost data"]);
    let mutex = locker.mutex("a").unwrap().with_options(short.clone());
    let guard = bounded(mutex.acquire()).await.unwrap();
    let took = Moment::now().since(start);
    assert!(took >= Duration::from_millis(950), "granted after {took:?}");
    guard.release().await.unwrap();
    let other = format!("{}?on_data_loss=quarantine&max_ttl=2s", redis.url());
    let other = connect(&other).await;
    let error = kit::failure(&other, "a", short.no_wait()).await;
    check_error(&error, ErrorKind::InvalidConfig, &["agree on max_ttl", "1000 ms"]);
}

/// No message, listing or debug output shows a password or a holder.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_do_not_show() {
    let redis = Setup::new().password("hunter2-and-more").start();
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, "a", ttl(LONG)).await;
    let value = redis.cli(&["GET", "a"]);
    let holder = value.split('.').next().unwrap();
    let view = locker.inspect(&LockName::new("a").unwrap()).await.unwrap();
    let shown = format!("{locker:?} {view:?} {guard:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(!shown.contains(&holder[8..]), "{shown}");
    let wrong = redis.url().replace("hunter2", "hunter3");
    let error = try_connect(&wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission);
    assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
}
