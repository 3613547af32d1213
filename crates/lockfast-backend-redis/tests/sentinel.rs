//! A master that moves: real servers under real sentinels, failing over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::certificate::{Authority, Flaw};
use kit::direct::Direct;
use kit::encode;
use kit::port::Port;
use kit::topology::wait_for_sync;
use kit::{
    Redis, Setup, bounded, check_error, connect, eventually, hold, refusal, try_connect, ttl,
    wait_until,
};
use lockfast::{ErrorKind, LeaseStatus, Locker, Options, Released, WatchKind};
use lockfast_core::WriteOutcome;
use lockfast_faults::server::Server as _;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(8);
/// The sentinel notices within half a second and needs a second or two for the rest.
const FAILOVER_TIME_MAX: Duration = Duration::from_secs(20);

/// A master, its replica and a sentinel that knows both.
struct Group {
    master: Redis,
    replica: Redis,
    sentinel: Redis,
    /// Where nobody listens.
    dead: Port,
}

impl Group {
    fn start() -> Self {
        let master = Redis::start();
        let replica = Setup::new().replica_of(&master).start();
        wait_for_sync(&master, &replica);
        let sentinel = start_sentinel(&master);
        let group = Self { master, replica, sentinel, dead: Port::take() };
        wait_until("the replica can be promoted", FAILOVER_TIME_MAX, || {
            let said = group.sentinel.cli(&["SENTINEL", "REPLICAS", "main"]);
            let mut lines = said.lines().skip_while(|line| *line != "master-link-status");
            lines.nth(1) == Some("ok")
        });
        group
    }

    /// By way of a sentinel that is not there and one that is.
    fn url(&self) -> String {
        let (dead, port) = (self.dead.number(), self.sentinel.port());
        format!("redis+sentinel://127.0.0.1:{dead},127.0.0.1:{port}/main")
    }

    fn wait_for_failover(&self) {
        wait_until("the replica is promoted", FAILOVER_TIME_MAX, || {
            has_role(&self.replica, "master")
        });
        let port = self.replica.port().to_string();
        wait_until("the sentinel says so", FAILOVER_TIME_MAX, || {
            self.sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).contains(&port)
        });
    }
}

/// A sentinel that knows `master` under the name `main`, and fails over alone after 500 ms.
fn start_sentinel(master: &Redis) -> Redis {
    let sentinel = Setup::new()
        .sentinel()
        .line(format!("sentinel monitor main 127.0.0.1 {} 1", master.port()))
        .line("sentinel down-after-milliseconds main 500")
        .line("sentinel failover-timeout main 3000")
        .start();
    wait_until("the sentinel sees the master", FAILOVER_TIME_MAX, || {
        sentinel.try_cli(&["SENTINEL", "CKQUORUM", "main"]).1.starts_with("OK")
    });
    sentinel
}

/// A sentinel that is listened to names another master, and it is used from then on.
async fn name_another(sentinel: &Redis, new: &Redis, locker: &Locker) {
    wait_until("the sentinel is listened to", TTL, || {
        sentinel.cli(&["CLIENT", "LIST"]).contains(" sub=1 ")
    });
    sentinel.cli(&["SENTINEL", "REMOVE", "main"]);
    sentinel.cli(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &new.port().to_string(), "1"]);
    eventually("the new one is used", FAILOVER_TIME_MAX, async || {
        let other = hold(locker, "other", patient()).await;
        new.cli(&["GET", "other"]).ends_with(&format!(".{}", other.fence()))
    })
    .await;
}

/// A sentinel that changes a server's role closes its connections, also that of redis-cli.
fn has_role(server: &Redis, role: &str) -> bool {
    server.try_cli(&["INFO", "replication"]).1.contains(&format!("role:{role}"))
}

/// As long as a failover may take.
fn patient() -> Options {
    Options::default().ttl(TTL).wait(FAILOVER_TIME_MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_found() {
    let group = Group::start();
    let locker = connect(&group.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(group.master.cli(&["GET", NAME]).ends_with(&format!(".{}", guard.fence())));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    // The database is the second part of the path.
    let locker = connect(&format!("{}/3", group.url())).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    assert_eq!(group.master.cli(&["-n", "3", "EXISTS", NAME]), "1");
}

/// A value that was copied is there on the new master, and can be written as it was read.
/// The user sees: `Unreachable` until the failover is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_outlives_its_master() {
    let mut group = Group::start();
    let direct = Direct::connect(&group.url()).await;
    let version = direct.write(direct.put(NAME, None, b"one")).await;
    wait_for_sync(&group.master, &group.replica);
    group.master.kill();
    group.wait_for_failover();
    let update = direct.put(NAME, version, b"two");
    eventually("it is written", FAILOVER_TIME_MAX, async || {
        direct.try_write(update.clone()).await.is_ok_and(|outcome| {
            assert!(matches!(outcome, WriteOutcome::Written(_)), "{outcome:?}");
            true
        })
    })
    .await;
    let stored = group.replica.cli(&["GET", &format!("lockfast:{{{NAME}}}:value")]);
    assert!(stored.ends_with(".two"), "{stored}");
}

/// P3, P4: whoever held a lock goes on with it on the new master, which had a copy, or is told
/// that it is lost; the next fence is higher either way.
/// The user sees: nothing, or jeopardy until the failover is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_killed() {
    let mut group = Group::start();
    let (first, second) = (connect(&group.url()).await, connect(&group.url()).await);
    let mut events = bounded(second.watch()).await.unwrap();
    let guard = hold(&first, NAME, ttl(TTL)).await;
    wait_for_sync(&group.master, &group.replica);
    group.master.kill();
    let deadline = guard.deadline();
    group.wait_for_failover();

    let other = hold(&second, "other", patient()).await;
    assert!(other.fence().get() > guard.fence().get());
    assert!(group.replica.cli(&["GET", "other"]).ends_with(&format!(".{}", other.fence())));
    eventually("the lease is renewed or lost", TTL, async || {
        guard.deadline().since(deadline) > Duration::ZERO
            || matches!(guard.status(), LeaseStatus::Lost(_))
    })
    .await;
    if guard.check().is_ok() {
        refusal(&second, NAME).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    let next = hold(&second, NAME, patient()).await;
    assert!(next.fence().get() > other.fence().get());
    // Whoever watches has followed too, and was told of the gap.
    let mut kinds = Vec::new();
    while !kinds.contains(&WatchKind::Missed) {
        drop(hold(&second, "seen", patient()).await);
        while let Ok(event) = tokio::time::timeout(Duration::from_millis(200), events.next()).await
        {
            kinds.push(event.unwrap().kind);
        }
        assert!(kinds.len() < 1000, "{kinds:?}");
    }
}

/// P6: whoever waits goes on waiting on the new master, and is woken there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows() {
    let mut group = Group::start();
    let (first, second) = (connect(&group.url()).await, connect(&group.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiting = tokio::spawn(async move {
        hold(&second, NAME, Options::default().ttl(TTL).wait_forever()).await
    });
    let queue = format!("lockfast:{{{NAME}}}:queue");
    wait_until("it waits", TTL, || group.master.cli(&["ZCARD", &queue]) == "1");
    wait_for_sync(&group.master, &group.replica);
    group.master.kill();
    group.wait_for_failover();
    let fence = guard.fence();
    let _ = bounded(guard.release()).await.unwrap();
    let next = bounded(waiting).await.unwrap();
    assert!(next.fence().get() > fence.get());
    let stored = group.replica.cli(&["GET", NAME]);
    assert!(stored.ends_with(&format!(".{}", next.fence())), "{stored}");
}

/// An operator changes the master: the old one lives on as a replica and is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master_is_left() {
    let group = Group::start();
    let locker = connect(&group.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    wait_for_sync(&group.master, &group.replica);
    group.sentinel.cli(&["SENTINEL", "FAILOVER", "main"]);
    group.wait_for_failover();
    wait_until("the old master is a replica", FAILOVER_TIME_MAX, || {
        has_role(&group.master, "slave")
    });
    let other = hold(&locker, "other", patient()).await;
    assert!(other.fence().get() > guard.fence().get());
    assert!(group.replica.cli(&["GET", "other"]).ends_with(&format!(".{}", other.fence())));
    eventually("the lease goes on", TTL, async || guard.check().is_ok()).await;
}

/// The old master still takes writes, as one that is cut off from the sentinels does: only
/// what the sentinel says tells that it is the wrong one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_does_not_know_is_left() {
    let (old, new) = (Redis::start(), Redis::start());
    let sentinel = start_sentinel(&old);
    let locker = connect(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port())).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    name_another(&sentinel, &new, &locker).await;
    // The new one knows nothing of the lease, and says so.
    bounded(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_found_is_told() {
    let master = Redis::start();
    let sentinel = start_sentinel(&master);
    let ports = [Port::take(), Port::take()];
    let ([dead, also_dead], port) = (ports.each_ref().map(Port::number), sentinel.port());
    let error = try_connect(&format!("redis+sentinel://127.0.0.1:{dead},127.0.0.1:{port}/nobody"))
        .await
        .unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["\"nobody\"", &format!("127.0.0.1:{dead}")]);
    let error =
        try_connect(&format!("redis+sentinel://127.0.0.1:{dead},127.0.0.1:{also_dead}/main"))
            .await
            .unwrap_err();
    let places = [dead, also_dead].map(|port| format!("127.0.0.1:{port}"));
    check_error(&error, ErrorKind::Unreachable, &["no sentinel", &places[0], &places[1]]);
    // A server of the usual kind is no sentinel.
    let error =
        try_connect(&format!("redis+sentinel://{}/main", master.address())).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["not a sentinel"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused() {
    let master = Redis::start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let sentinel = start_sentinel(&replica);
    let port = sentinel.port();
    let url = format!("redis+sentinel://127.0.0.1:{port}/main?request_timeout=500ms");
    let error = try_connect(&url).await.unwrap_err();
    let place = replica.address().to_string();
    check_error(&error, ErrorKind::WrongNode, &["replica", "\"main\"", &place]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_passwords_of_their_own() {
    let master = Setup::new().password("for the master").start();
    let sentinel = Setup::new()
        .sentinel()
        .password("for sentinels")
        .line(format!("sentinel monitor main 127.0.0.1 {} 1", master.port()))
        .line("sentinel auth-pass main \"for the master\"")
        .start();
    let port = sentinel.port();
    let place = format!("127.0.0.1:{port}/main");
    let error =
        try_connect(&format!("redis+sentinel://:for%20the%20master@{place}")).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["sentinel_password"]);
    let url =
        format!("redis+sentinel://:for%20the%20master@{place}?sentinel_password=for%20sentinels");
    let locker = connect(&url).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    let error =
        try_connect(&format!("redis+sentinel://:wrong@{place}?sentinel_password=for%20sentinels"))
            .await
            .unwrap_err();
    let place = master.address().to_string();
    check_error(&error, ErrorKind::Permission, &["master of service \"main\"", &place]);
    assert!(!error.to_string().contains("wrong"), "{error}");
}

/// The README's rights are enough on both, also to follow a change of the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights() {
    let on_master = kit::rights::rights("~*", &["`redis+sentinel:`, on the master"]);
    let on_sentinel = kit::rights::row_of("`redis+sentinel:`, on the sentinels (these alone)");
    let start = || Setup::new().line(format!("user locks on >word {on_master}")).start();
    let (old, new) = (start(), start());
    let sentinel = Setup::new()
        .sentinel()
        .line(format!("user locks on >word {on_sentinel}"))
        .line(format!("sentinel monitor main 127.0.0.1 {} 1", old.port()))
        .start();
    let (port, options) = (sentinel.port(), "sentinel_user=locks&sentinel_password=word");
    let url = format!("redis+sentinel://locks:word@127.0.0.1:{port}/main?{options}");
    let locker = connect(&url).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    name_another(&sentinel, &new, &locker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_encrypted() {
    let authority = Authority::new();
    let master = Setup::new().tls(&authority, authority.sign_server(Flaw::None), false).start();
    let sentinel = Setup::new()
        .sentinel()
        .tls(&authority, authority.sign_server(Flaw::None), false)
        .line("tls-replication yes")
        .line(format!("sentinel monitor main 127.0.0.1 {} 1", master.port()))
        .start();
    let port = sentinel.port();
    let ca = encode(&authority.certificate().display().to_string());
    let locker = connect(&format!("redis+sentinel://127.0.0.1:{port}/main?tls=yes&ca={ca}")).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    let error =
        try_connect(&format!("redis+sentinel://127.0.0.1:{port}/main?tls=yes")).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[&format!("127.0.0.1:{port}")]);
}
