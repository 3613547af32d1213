//! A cluster of three real masters, whose slots move and whose nodes die or fall silent. All of it
//! is done as a user with the rights that the README names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;
#[path = "cluster/moving.rs"]
mod moving;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use kit::certificate::{Authority, Flaw};
use kit::direct::Direct;
use kit::port::Port;
use kit::rights::with_user;
use kit::topology::{Cluster, add_replica, start_cluster_of, wait_for_sync};
use kit::{
    Redis, bounded, check_error, connect, encode, eventually, failure, hold, loss, refusal,
    try_connect, ttl, wait_for_renewal,
};
use lockfast::{
    Attempt, ErrorKind, HolderId, LeaseStatus, LockName, Moment, Options, ReleaseOutcome, Released,
    WatchKind,
};
use lockfast_core::{Change, RenewOutcome, RenewRequest, Wait, WriteOutcome};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::server::Server as _;

const TTL: Duration = Duration::from_secs(6);
const CHANGE_TIME_MAX: Duration = Duration::from_secs(20);

fn start_cluster() -> Cluster {
    start_cluster_of(with_user)
}

fn url(cluster: &Cluster) -> String {
    let [first, second, _] = cluster.nodes.each_ref().map(Redis::address);
    format!("redis+cluster://locks:word@{first},{second}")
}

fn slot(cluster: &Cluster, name: &str) -> u32 {
    cluster.nodes[1].cli(&["CLUSTER", "KEYSLOT", name]).parse().unwrap()
}

/// A name whose lock is on the node of this number.
fn name_on(cluster: &Cluster, node: u32) -> String {
    let mut names = (0..).map(|at| format!("nightly-{node}-{at}"));
    names.find(|name| slot(cluster, name) / 5462 == node).unwrap()
}

/// Without one of them, the other masters go on.
fn serve_what_is_left(cluster: &Cluster) {
    for node in &cluster.nodes {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
}

fn patient() -> Options {
    Options::default().ttl(TTL).wait(CHANGE_TIME_MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_on_all_masters() {
    let cluster = start_cluster();
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let mut events = bounded(second.watch()).await.unwrap();
    let mut guards = Vec::new();
    for at in 0..3 {
        let name = name_on(&cluster, at);
        let guard = hold(&first, &name, ttl(TTL)).await;
        let stored = cluster.nodes[at as usize].cli(&["GET", &name]);
        assert!(stored.ends_with(&format!(".{}", guard.fence())), "{stored}");
        let fence = format!("lockfast:{{{name}}}:fence");
        let lasts: i64 = cluster.nodes[at as usize].cli(&["PTTL", &fence]).parse().unwrap();
        assert!((1..=86_400_000).contains(&lasts), "{lasts}");
        // Who has it is told, wherever the label is.
        assert!(refusal(&second, &name).await.lock.holders[0].label.is_some());
        let event = bounded(events.next()).await.unwrap();
        assert_eq!((event.name.as_str(), event.kind), (name.as_str(), WatchKind::Granted));
        guards.push(guard);
    }
    let listed = second.list("nightly-", None, 10).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|view| view.name.as_str()).collect();
    let names: Vec<&str> = guards.iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(listed, names, "in the order of their names");
    assert_eq!(second.list("nightly-", None, 2).await.unwrap().len(), 2);
    // All three are renewed, each at its own node.
    let deadlines: Vec<Moment> = guards.iter().map(|guard| guard.deadline()).collect();
    for (guard, deadline) in guards.iter().zip(deadlines) {
        let renewed = async || guard.deadline().since(deadline) > Duration::ZERO;
        eventually("a renewal", TTL, renewed).await;
    }
    second.revoke(names[1], "over").await.unwrap();
    loss(&guards[1], Duration::from_secs(1)).await;
}

/// Values are where their slots are, told of from everywhere, and no locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_on_all_masters() {
    let cluster = start_cluster();
    let (first, second) =
        (Direct::connect(&url(&cluster)).await, Direct::connect(&url(&cluster)).await);
    let mut events = bounded(second.backend.watch()).await.unwrap();
    for at in 0..3 {
        let name = name_on(&cluster, at);
        let holder = first.take(first.request(&name, Wait::No)).await;
        assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Granted);
        let version = first.write(first.put(&name, None, b"one")).await;
        let key = format!("lockfast:{{{name}}}:value");
        assert!(cluster.nodes[at as usize].cli(&["GET", &key]).ends_with(".one"));
        let event = bounded(events.next()).await.unwrap();
        assert_eq!((event.name.as_str(), event.kind), (name.as_str(), WatchKind::Changed));
        assert!(event.label.is_some());
        assert_eq!(second.read(&name).await.as_deref(), Some(&b"one"[..]));
        assert_eq!(first.give(&name, holder).await, ReleaseOutcome::Released);
        assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Released);
        assert_eq!(second.read(&name).await.as_deref(), Some(&b"one"[..]));
        let there = second.try_write(second.put(&name, None, b"two")).await.unwrap();
        assert!(matches!(there, WriteOutcome::Conflict(Some(_))), "{there:?}");
        if at == 0 {
            second.write(second.change(&name, version, Change::Remove)).await;
            assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Changed);
        }
    }
    let locker = connect(&url(&cluster)).await;
    assert!(locker.list("", None, 10).await.unwrap().is_empty());
    // The names of values are those of locks.
    let error = first.try_read("{a}").await.unwrap_err();
    check_error(&error, ErrorKind::InvalidName, &["braces"]);
}

/// P14: a write was repeated, and its value removed, when the first try of it arrives. What was removed
/// stays removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_try_of_a_write_arrives_late() {
    let cluster = start_cluster();
    let name = name_on(&cluster, 0);
    let (direct, other) =
        (Direct::connect(&url(&cluster)).await, Direct::connect(&url(&cluster)).await);
    let create = direct.put(&name, None, b"one");
    let mut first = direct.backend.write(create.clone());
    // Whoever gives up does not know what became of it, also if the answer is there just then.
    poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending())).await;
    drop(first);
    let version = direct.write(create.clone()).await;
    direct.write(direct.change(&name, version, Change::Remove)).await;
    // Somebody who tries it for the first time sends what the first try was.
    assert_eq!(other.try_write(create).await.unwrap(), WriteOutcome::Conflict(None));
    let key = format!("lockfast:{{{name}}}:value");
    assert_eq!(cluster.nodes[0].cli(&["EXISTS", &key]), "0");
    other.write(other.put(&name, None, b"two")).await;
}

/// A released lock is handed over by a push, long before the waiter would look by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_pushed() {
    let cluster = start_cluster();
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let machine = Lateness::watch();
    for at in 0..30 {
        let name = format!("lock-{at}");
        let guard = hold(&first, &name, ttl(TTL)).await;
        let waiting = tokio::spawn({
            let (second, name) = (second.clone(), name.clone());
            async move { hold(&second, &name, patient()).await }
        });
        let first = &first;
        eventually("it waits", TTL, async || {
            first.inspect(&LockName::new(&name).unwrap()).await.unwrap().waiting == 1
        })
        .await;
        let start = Moment::now();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        drop(bounded(waiting).await.unwrap());
        machine.check("to push", Duration::from_secs(1), start, Moment::now());
    }
    // When nobody waits any more, the channels do not pile up.
    drop(hold(&second, "another", ttl(TTL)).await);
    let channels = |node: &Redis| node.cli(&["PUBSUB", "SHARDCHANNELS"]).lines().count();
    assert!(cluster.nodes.iter().map(channels).sum::<usize>() < 60);
}

/// P4: a master dies without a replica: its locks cannot be had and its leases are lost, those
/// of the others go on. When it is back (with nothing), its locks are free and fences higher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_dies() {
    let mut cluster = start_cluster();
    serve_what_is_left(&cluster);
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let (lost, kept) = (name_on(&cluster, 0), name_on(&cluster, 1));
    let short = Duration::from_secs(3);
    let dead = hold(&first, &lost, ttl(short)).await;
    let alive = hold(&second, &kept, ttl(short)).await;
    cluster.nodes[0].kill();
    let mutex = second.mutex(&lost).unwrap().with_options(ttl(TTL).retries(0));
    let error = bounded(mutex.try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    loss(&dead, short + Duration::from_secs(1)).await;
    assert!(alive.check().is_ok(), "{:?}", alive.status());
    drop(hold(&second, &name_on(&cluster, 2), ttl(TTL)).await);
    cluster.nodes[0].restart();
    let next = hold(&second, &lost, patient()).await;
    assert!(next.fence().get() > dead.fence().get());
    assert!(alive.check().is_ok(), "{:?}", alive.status());
}

/// P3: a master that is silent costs the leases on the others nothing; those on it are in jeopardy,
/// and lost at their deadlines if it stays silent.
/// The user sees: `Jeopardy` with the reason, then the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_silent() {
    let cluster = start_cluster();
    serve_what_is_left(&cluster);
    let locker = connect(&url(&cluster)).await;
    let names = [0, 1, 2].map(|at| name_on(&cluster, at));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(hold(&locker, name, ttl(TTL)).await);
    }
    let silent = guards.remove(0);
    cluster.nodes[0].pause();
    let (start, mut was_in_jeopardy) = (Moment::now(), false);
    while Moment::now().since(start) < TTL + TTL / 2 {
        for guard in &guards {
            assert_eq!(guard.status(), LeaseStatus::Held, "on a master that answers");
        }
        was_in_jeopardy |= matches!(silent.status(), LeaseStatus::Jeopardy { .. });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(was_in_jeopardy);
    loss(&silent, Duration::ZERO).await;
    cluster.nodes[0].resume();
    for guard in guards {
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    let next = hold(&locker, silent.name().as_str(), patient()).await;
    assert!(next.fence().get() > silent.fence().get());
}

/// The same, of leases that are renewed in one batch: the answers of the others come in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_outlives_a_silent_master() {
    let cluster = start_cluster();
    serve_what_is_left(&cluster);
    let direct = Direct::connect(&url(&cluster)).await;
    let mut batch = Vec::new();
    for at in 0..3 {
        let request = direct.request(&name_on(&cluster, at), Wait::No);
        let name = request.name.clone();
        let holder = direct.take(request).await;
        batch.push(RenewRequest { name, holder, ttl: TTL, lock_delay: Duration::ZERO });
    }
    cluster.nodes[0].pause();
    let start = Moment::now();
    let outcomes = bounded(direct.backend.renew(batch)).await.unwrap();
    let took = Moment::now().since(start);
    // The lease engine would not wait for longer.
    assert!(took < TTL / 6, "{took:?}");
    let [silent, RenewOutcome::Renewed, RenewOutcome::Renewed] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    let RenewOutcome::Unanswered(error) = silent else { panic!("{silent:?}") };
    check_error(error, ErrorKind::Unreachable, &["master", "did not answer"]);
    cluster.nodes[0].resume();
}

/// P5: what was asked of a master that is silent, and given up, is undone when it goes on, and
/// comes up no second time.
/// The user sees: `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_given_up_changes_nothing() {
    let cluster = start_cluster();
    serve_what_is_left(&cluster);
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let name = name_on(&cluster, 0);
    // The connections are there before.
    drop((
        hold(&first, &name, ttl(TTL)).await,
        second.inspect(&LockName::new(&name).unwrap()).await,
    ));
    cluster.nodes[0].pause();
    let options = ttl(TTL).request_timeout(Duration::from_millis(300)).retries(0);
    let error = failure(&first, &name, options).await;
    check_error(&error, ErrorKind::Unreachable, &["no answer"]);
    cluster.nodes[0].resume();
    let guard = hold(&second, &name, patient()).await;
    let start = Moment::now();
    while Moment::now().since(start) < Duration::from_secs(3) {
        let stored = cluster.nodes[0].cli(&["GET", &name]);
        assert!(stored.ends_with(&format!(".{}", guard.fence())), "{stored}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(cluster.nodes[0].cli(&["EXISTS", &name]), "0");
}

/// With `min_replicas`, a grant that the lock's master has alone is undone and refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_needs_its_replicas() {
    let cluster = start_cluster();
    let replica = add_replica(&cluster, with_user);
    let locker = connect(&format!("{}?min_replicas=1", url(&cluster))).await;
    let (copied, alone) = (name_on(&cluster, 0), name_on(&cluster, 1));
    // On a busy machine a replica may be late with its first confirmations.
    let guard = hold(&locker, &copied, ttl(TTL).wait(TTL)).await;
    assert_ne!(replica.cli(&["DBSIZE"]), "0");
    let error = failure(&locker, &alone, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &["0 of 1 replicas"]);
    assert_eq!(cluster.nodes[1].cli(&["EXISTS", &alone]), "0");
    // A hand-over is confirmed too before it counts.
    let waiting = tokio::spawn({
        let (locker, copied) = (locker.clone(), copied.clone());
        async move { hold(&locker, &copied, patient()).await }
    });
    eventually("it waits", TTL, async || locker.inspect(guard.name()).await.unwrap().waiting == 1)
        .await;
    let fence = guard.fence();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiting).await.unwrap().fence().get() > fence.get());
}

/// With `tls=yes` the nodes are asked, and spoken to, over encrypted connections alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_encrypted() {
    let authority = Authority::new();
    let cluster = start_cluster_of(|setup| {
        let server = authority.sign_server(Flaw::None);
        with_user(setup).tls(&authority, server, true).line("tls-cluster yes")
    });
    let file = |path: &std::path::Path| encode(&path.display().to_string());
    let (ca, client) = (file(authority.certificate()), authority.sign_client());
    let (cert, key) = (file(&client.certificate), file(&client.key));
    let options = format!("tls=yes&ca={ca}&cert={cert}&key={key}");
    let (first, second) = (
        connect(&format!("{}?{options}", url(&cluster))).await,
        connect(&format!("{}?{options}", url(&cluster))).await,
    );
    for at in 0..3 {
        let name = name_on(&cluster, at);
        let guard = hold(&first, &name, ttl(TTL)).await;
        let waiting = tokio::spawn({
            let (second, name) = (second.clone(), name.clone());
            async move { hold(&second, &name, patient()).await }
        });
        eventually("it waits", TTL, async || {
            first.inspect(guard.name()).await.unwrap().waiting == 1
        })
        .await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        drop(bounded(waiting).await.unwrap());
    }
    let place = cluster.nodes[0].address().to_string();
    for (options, kind) in [
        ("tls=yes".to_owned(), ErrorKind::TlsHandshake),
        (format!("tls=yes&ca={ca}"), ErrorKind::TlsHandshake),
        ("tls=no".to_owned(), ErrorKind::Unreachable),
    ] {
        let error = try_connect(&format!("{}?{options}", url(&cluster))).await.unwrap_err();
        check_error(&error, kind, &[&place]);
    }
}

/// A replica takes over: the lease goes on there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over() {
    let mut cluster = start_cluster();
    let replica = add_replica(&cluster, with_user);
    let locker = connect(&url(&cluster)).await;
    let name = name_on(&cluster, 0);
    let guard = hold(&locker, &name, ttl(Duration::from_secs(15))).await;
    wait_for_sync(&cluster.nodes[0], &replica);
    cluster.nodes[0].kill();
    wait_for_renewal(&guard, CHANGE_TIME_MAX).await;
    let fence = guard.fence();
    assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
    let next = hold(&locker, &name, patient()).await;
    assert!(next.fence().get() > fence.get());
    assert!(replica.cli(&["GET", &name]).ends_with(&format!(".{}", next.fence())));
}

/// A release that finds nothing leaves a mark, so that an acquisition which arrives late by the
/// connection before does not count; without a connection before there is nothing to mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_overtakes_an_acquisition() {
    let cluster = start_cluster();
    let locker = connect(&url(&cluster)).await;
    let name = LockName::new(name_on(&cluster, 0)).unwrap();
    let holder = HolderId::from_bytes([7; 16]);
    let marks = || cluster.nodes[0].cli(&["KEYS", "lockfast:*:gone:*"]);
    let released = locker.release_detached(&name, holder).await.unwrap();
    assert_eq!((released, marks()), (ReleaseOutcome::NotHeld, String::new()));
    for kind in ["normal", "pubsub"] {
        cluster.nodes[0].cli(&["CLIENT", "KILL", "TYPE", kind]);
    }
    eventually("a release on a new connection", TTL, async || {
        locker.release_detached(&name, holder).await.is_ok() && !marks().is_empty()
    })
    .await;
    let mark = marks();
    assert!(mark.starts_with(&format!("lockfast:{{{name}}}:gone:")), "{mark}");
    assert_eq!(cluster.nodes[0].cli(&["GET", &mark]).len(), 8);
    // It is about that holder alone, and about no later connection.
    drop(hold(&locker, name.as_str(), ttl(TTL)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused() {
    let cluster = start_cluster();
    let locker = connect(&url(&cluster)).await;
    for name in ["{a}", "x{a}y", "a}", "}", "{}", "a{}b"] {
        let mutex = locker.mutex(name).unwrap();
        let error = bounded(mutex.try_acquire()).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidName, &["cluster", "slot", name]);
        let name = LockName::new(name).unwrap();
        assert_eq!(locker.inspect(&name).await.unwrap_err().kind(), ErrorKind::InvalidName);
    }
    for name in ["{", "a{b", "{{"] {
        assert!(matches!(
            bounded(locker.mutex(name).unwrap().try_acquire()).await.unwrap(),
            Attempt::Acquired(_)
        ));
    }
    let error = try_connect(&format!("{}?on_data_loss=quarantine", url(&cluster))).await;
    check_error(&error.unwrap_err(), ErrorKind::Unsupported, &["cluster", "quarantine"]);
    let single = Redis::start();
    let error = try_connect(&format!("redis+cluster://{}", single.address())).await;
    check_error(&error.unwrap_err(), ErrorKind::InvalidConfig, &["cluster"]);
    let dead = Port::take().number();
    let error = try_connect(&format!("redis+cluster://127.0.0.1:{dead}")).await;
    check_error(&error.unwrap_err(), ErrorKind::Unreachable, &[&format!("127.0.0.1:{dead}")]);
}
