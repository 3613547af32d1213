//! A cluster of three real masters, whose slots move and whose nodes die.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::port::Port;
use kit::topology::{Cluster, start_cluster};
use kit::{
    Redis, Setup, bounded, check_error, connect, eventually, hold, loss, refusal, try_connect, ttl,
    wait_until,
};
use lockfast::{
    Attempt, ErrorKind, HolderId, LockName, Moment, Options, ReleaseOutcome, Released,
    RevokeRequest, WatchKind,
};

const TTL: Duration = Duration::from_secs(6);
const CHANGE_TIME_MAX: Duration = Duration::from_secs(20);

fn url(cluster: &Cluster) -> String {
    let [first, second, _] = cluster.nodes.each_ref().map(Redis::address);
    format!("redis+cluster://{first},{second}")
}

fn slot(cluster: &Cluster, name: &str) -> u32 {
    cluster.nodes[1].cli(&["CLUSTER", "KEYSLOT", name]).parse().unwrap()
}

/// A name whose lock is on the node of this number.
fn name_on(cluster: &Cluster, node: u32) -> String {
    let mut names = (0..).map(|at| format!("nightly-{node}-{at}"));
    names.find(|name| slot(cluster, name) / 5462 == node).unwrap()
}

fn id(node: &Redis) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

/// Moves the slot of a lock with all its keys, as redis-cli --cluster reshard does it.
fn move_slot(cluster: &Cluster, name: &str, from: usize, to: usize) {
    let (slot, source, target) = begin_move(cluster, name, from, to);
    let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = target.port().to_string();
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.lines());
    if !keys.is_empty() {
        source.cli(&migrate);
    }
    let id = id(target);
    for node in [target, source, &cluster.nodes[3 - from - to]] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }
}

fn begin_move<'a>(
    cluster: &'a Cluster,
    name: &str,
    from: usize,
    to: usize,
) -> (String, &'a Redis, &'a Redis) {
    let slot = slot(cluster, name).to_string();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
    (slot, source, target)
}

fn patient() -> Options {
    Options::default().ttl(TTL).wait(CHANGE_TIME_MAX).retries(100)
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
    let name = LockName::new(names[1]).unwrap();
    let request = RevokeRequest { name, expect_fence: None, reason: "over".into() };
    second.revoke(request).await.unwrap();
    loss(&guards[1], Duration::from_secs(1)).await;
}

/// A released lock is handed over by a push, long before the waiter would look by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_pushed() {
    let cluster = start_cluster();
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
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
        assert!(Moment::now().since(start) < Duration::from_secs(1));
    }
    // When nobody waits any more, the channels do not pile up.
    drop(hold(&second, "another", ttl(TTL)).await);
    let channels = |node: &Redis| node.cli(&["PUBSUB", "SHARDCHANNELS"]).lines().count();
    assert!(cluster.nodes.iter().map(channels).sum::<usize>() < 60);
}

/// MOVED: the lease goes on where the slot is now, and the waiter is woken there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves() {
    let cluster = start_cluster();
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let name = name_on(&cluster, 0);
    let guard = hold(&first, &name, ttl(TTL)).await;
    let waiting = tokio::spawn({
        let (second, name) = (second.clone(), name.clone());
        async move { hold(&second, &name, patient()).await }
    });
    let queue = format!("lockfast:{{{name}}}:queue");
    wait_until("it waits", TTL, || cluster.nodes[0].cli(&["ZCARD", &queue]) == "1");
    move_slot(&cluster, &name, 0, 2);
    let deadline = guard.deadline();
    eventually("a renewal", TTL, async || guard.deadline().since(deadline) > Duration::ZERO).await;
    // The waiter was told that its channel ended, and listens at the new node.
    wait_until("it listens there", TTL, || {
        cluster.nodes[2].cli(&["PUBSUB", "SHARDCHANNELS"]).contains(&name)
    });
    let fence = guard.fence();
    let start = Moment::now();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiting).await.unwrap();
    assert!(Moment::now().since(start) < Duration::from_secs(2));
    assert!(next.fence().get() > fence.get());
    assert!(cluster.nodes[2].cli(&["GET", &name]).ends_with(&format!(".{}", next.fence())));
}

/// While a slot is on its way neither node serves it; whoever waits gets it afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_moving() {
    let cluster = start_cluster();
    let locker = connect(&url(&cluster)).await;
    let name = name_on(&cluster, 1);
    begin_move(&cluster, &name, 1, 0);
    let mutex = locker.mutex(&name).unwrap().with(ttl(TTL).retries(0)).unwrap();
    let error = bounded(mutex.try_acquire()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["slot", "moving"]);
    let waiting = tokio::spawn({
        let (locker, name) = (locker.clone(), name.clone());
        async move { hold(&locker, &name, patient()).await }
    });
    move_slot(&cluster, &name, 1, 0);
    let guard = bounded(waiting).await.unwrap();
    assert!(cluster.nodes[0].cli(&["GET", &name]).ends_with(&format!(".{}", guard.fence())));
}

/// P4: a master dies without a replica: its locks cannot be had and its leases are lost, those
/// of the others go on. When it is back (with nothing), its locks are free and fences higher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_dies() {
    let mut cluster = start_cluster();
    for node in &cluster.nodes {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let (lost, kept) = (name_on(&cluster, 0), name_on(&cluster, 1));
    let short = Duration::from_secs(3);
    let dead = hold(&first, &lost, ttl(short)).await;
    let alive = hold(&second, &kept, ttl(short)).await;
    cluster.nodes[0].kill();
    let mutex = second.mutex(&lost).unwrap().with(ttl(TTL).retries(0)).unwrap();
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

/// A replica takes over: the lease goes on there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over() {
    let mut cluster = start_cluster();
    let bus = Port::take();
    let replica = Setup::new()
        .line("cluster-enabled yes")
        .line("cluster-node-timeout 2000")
        .line("repl-diskless-sync-delay 0")
        .line(format!("cluster-port {}", bus.number()))
        .start();
    let (port, bus) = (replica.port().to_string(), bus.number().to_string());
    cluster.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    let master = id(&cluster.nodes[0]);
    wait_until("it is a replica", CHANGE_TIME_MAX, || {
        replica.try_cli(&["CLUSTER", "REPLICATE", &master]).1 == "OK"
    });
    wait_until("all know it", CHANGE_TIME_MAX, || {
        let knows = |node: &Redis| {
            node.cli(&["CLUSTER", "NODES"]).lines().any(|line| {
                line.contains(&format!(":{port}@")) && line.contains(&format!("slave {master}"))
            })
        };
        replica.info("master_link_status") == "up" && cluster.nodes.iter().all(knows)
    });
    let locker = connect(&url(&cluster)).await;
    let name = name_on(&cluster, 0);
    let guard = hold(&locker, &name, ttl(Duration::from_secs(15))).await;
    kit::topology::wait_for_sync(&cluster.nodes[0], &replica);
    cluster.nodes[0].kill();
    let deadline = guard.deadline();
    eventually("a renewal", CHANGE_TIME_MAX, async || {
        assert!(guard.check().is_ok(), "{:?}", guard.status());
        guard.deadline().since(deadline) > Duration::ZERO
    })
    .await;
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
            Attempt::Granted(_)
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
