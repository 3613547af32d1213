//! Slots that move from one master to another with the locks in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::{ErrorKind, Moment, Released};
use lockfast_core::{Change, WriteOutcome};
use lockfast_faults::lateness::Lateness;

use crate::kit::direct::Direct;
use crate::kit::topology::Cluster;
use crate::kit::{
    Redis, bounded, check_error, connect, eventually, failure, hold, ttl, wait_for_renewal,
    wait_until,
};
use crate::{TTL, name_on, patient, slot, start_cluster, url};

/// A slot on its way, as `redis-cli --cluster reshard` moves it.
struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    source: &'a Redis,
    target: &'a Redis,
}

impl<'a> Move<'a> {
    /// The slot of a lock is on its way: the source has the keys that it had, and no new ones.
    fn begin(cluster: &'a Cluster, name: &str, from: usize, to: usize) -> Self {
        let slot = slot(cluster, name).to_string();
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
        Self { cluster, slot, source, target }
    }

    /// Moves one key. Returns whether there was one.
    fn move_key(&self) -> bool {
        let key = self.source.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1"]);
        if key.is_empty() {
            return false;
        }
        let port = self.target.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
        // A hint, which the target may have been given already.
        if key.ends_with(":told") {
            command.push("REPLACE");
        }
        // It may be gone by now.
        let said = self.source.cli(&command);
        assert!(["OK", "NOKEY"].contains(&said.as_str()), "{said}");
        true
    }

    fn move_keys(&self) {
        while self.move_key() {}
    }

    /// The target has the slot, and all know it.
    fn end(self) {
        self.move_keys();
        let id = id(self.target);
        let is_other =
            |node: &&Redis| ![self.target.port(), self.source.port()].contains(&node.port());
        let others = self.cluster.nodes.iter().filter(is_other);
        for node in [self.target, self.source].into_iter().chain(others) {
            node.cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }
}

fn id(node: &Redis) -> String {
    node.cli(&["CLUSTER", "MYID"])
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
    Move::begin(&cluster, &name, 0, 2).end();
    wait_for_renewal(&guard, TTL).await;
    // The waiter was told that its channel ended, and listens at the new node.
    wait_until("it listens there", TTL, || {
        cluster.nodes[2].cli(&["PUBSUB", "SHARDCHANNELS"]).contains(&name)
    });
    let fence = guard.fence();
    let (machine, start) = (Lateness::watch(), Moment::now());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiting).await.unwrap();
    machine.check("to push", Duration::from_secs(2), start, Moment::now());
    assert!(next.fence().get() > fence.get());
    assert!(cluster.nodes[2].cli(&["GET", &name]).ends_with(&format!(".{}", next.fence())));
}

/// ASK: a lock of which the old node has nothing is decided about by the new one. TRYAGAIN: while
/// the old one has a part of it, nobody can decide; whoever waits gets it afterwards.
/// The user sees: nothing, or `Unreachable`, that the slot is moving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_moving() {
    let cluster = start_cluster();
    let (first, second) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let (fresh, used) = (name_on(&cluster, 1), name_on(&cluster, 0));
    let move_fresh = Move::begin(&cluster, &fresh, 1, 0);
    let guard = hold(&first, &fresh, ttl(TTL).retries(0)).await;
    assert!(
        cluster.nodes[0].cli(&["CLUSTER", "GETKEYSINSLOT", &move_fresh.slot, "9"]).contains(&fresh)
    );
    let waiting = tokio::spawn({
        let (second, fresh) = (second.clone(), fresh.clone());
        async move { hold(&second, &fresh, patient()).await }
    });
    let name = guard.name().clone();
    eventually("it waits", TTL, async || first.inspect(&name).await.unwrap().waiting == 1).await;
    // It is pushed there, too.
    let (machine, start, fence) = (Lateness::watch(), Moment::now(), guard.fence());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiting).await.unwrap();
    machine.check("to push", Duration::from_secs(1), start, Moment::now());
    assert!(next.fence().get() > fence.get());
    // What was pushed lasts only briefly until it is renewed, and the end of the move may take longer.
    wait_for_renewal(&next, TTL).await;
    move_fresh.end();
    wait_for_renewal(&next, TTL).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));

    // What is left of it is the fence.
    drop(hold(&first, &used, ttl(TTL)).await);
    wait_until("it is free", TTL, || cluster.nodes[0].cli(&["EXISTS", &used]) == "0");
    let move_used = Move::begin(&cluster, &used, 0, 1);
    let error = failure(&first, &used, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &["slot", "moving"]);
    let waiting = tokio::spawn(async move { hold(&second, &used, patient()).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    move_used.move_keys();
    // The target has all of it, though not yet the slot.
    let guard = bounded(waiting).await.unwrap();
    move_used.end();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// Values go with their slot: ASK and MOVED are followed, and nothing is read or written while a part
/// of what belongs to the name is at either node (TRYAGAIN).
/// The user sees: nothing, or `Unreachable`, that the slot is moving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_with_its_values() {
    let cluster = start_cluster();
    let direct = Direct::connect(&url(&cluster)).await;
    let (used, fresh) = (name_on(&cluster, 0), name_on(&cluster, 1));
    let version = direct.write(direct.put(&used, None, b"one")).await;
    let moving = Move::begin(&cluster, &used, 0, 2);
    check_error(
        &direct.try_read(&used).await.unwrap_err(),
        ErrorKind::Unreachable,
        &["slot", "moving"],
    );
    moving.move_keys();
    // The target has all of it, though not yet the slot.
    assert_eq!(direct.read(&used).await.as_deref(), Some(&b"one"[..]));
    let update = direct.put(&used, version, b"two");
    let version = direct.write(update.clone()).await;
    assert_eq!(direct.write(update).await, version);
    moving.end();
    assert_eq!(direct.read(&used).await.as_deref(), Some(&b"two"[..]));
    let stale = direct.change(&used, None, Change::Remove);
    let there = direct.try_write(stale).await.unwrap();
    assert!(matches!(there, WriteOutcome::Conflict(Some(_))), "{there:?}");
    direct.write(direct.change(&used, version, Change::Remove)).await;

    let moving = Move::begin(&cluster, &fresh, 1, 0);
    let version = direct.write(direct.put(&fresh, None, b"one")).await;
    let key = format!("lockfast:{{{fresh}}}:value");
    assert_eq!(cluster.nodes[0].cli(&["CLUSTER", "GETKEYSINSLOT", &moving.slot, "9"]), key);
    direct.write(direct.change(&fresh, version, Change::Remove)).await;
    assert_eq!(direct.read(&fresh).await, None);
    moving.end();
}

/// P3: a lease outlives a move that takes longer than its ttl, wherever the lock's keys are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_takes_long() {
    let cluster = start_cluster();
    let locker = connect(&url(&cluster)).await;
    let name = name_on(&cluster, 2);
    let guard = hold(&locker, &name, ttl(Duration::from_secs(2))).await;
    let moving = Move::begin(&cluster, &name, 2, 1);
    for _ in 0..4 {
        wait_for_renewal(&guard, TTL).await;
    }
    while moving.move_key() {
        for _ in 0..2 {
            wait_for_renewal(&guard, TTL).await;
        }
    }
    assert!(cluster.nodes[1].cli(&["CLUSTER", "GETKEYSINSLOT", &moving.slot, "9"]).contains(&name));
    let fence = guard.fence();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = hold(&locker, &name, ttl(TTL).retries(0)).await;
    assert!(next.fence().get() > fence.get());
    moving.end();
    wait_for_renewal(&next, TTL).await;
}

/// One hold of a lock, from before its first to after its last moment.
struct Hold {
    fence: u64,
    from: Moment,
    until: Moment,
}

/// P1, P4: a slot goes round all masters while many want a lock in it: never two have it, and
/// each has a higher fence than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_traffic() {
    let cluster = start_cluster();
    let name = name_on(&cluster, 0);
    let (holds, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locker = connect(&url(&cluster)).await;
        let (name, holds, is_over) = (name.clone(), Arc::clone(&holds), Arc::clone(&is_over));
        tasks.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Acquire) {
                let guard = hold(&locker, &name, patient()).await;
                let from = Moment::now();
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(guard.check().is_ok(), "{:?}", guard.status());
                let (fence, until) = (guard.fence().get(), Moment::now());
                holds.lock().unwrap().push(Hold { fence, from, until });
                // Without an answer the keeper goes on releasing it.
                let released = guard.release().await.unwrap();
                let is_right = matches!(released, Released::Released | Released::Unknown { .. });
                assert!(is_right, "{released:?}");
            }
        }));
    }
    let count = || holds.lock().unwrap().len();
    let wait_for_more = async |what: &str| {
        let before = count();
        eventually(what, TTL, async || count() > before + 20).await;
    };
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        wait_for_more("it is served by its master").await;
        let moving = Move::begin(&cluster, &name, from, to);
        tokio::time::sleep(Duration::from_millis(150)).await;
        while moving.move_key() {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        wait_for_more("it is served where it goes").await;
        moving.end();
    }
    wait_for_more("it is served by its master again").await;
    is_over.store(true, Ordering::Release);
    for task in tasks {
        bounded(task).await.unwrap();
    }
    let mut holds = holds.lock().unwrap();
    holds.sort_by_key(|hold| hold.fence);
    for pair in holds.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "fence {} twice", pair[0].fence);
        let overlap = pair[0].until.since(pair[1].from);
        assert!(overlap.is_zero(), "{} and {} for {overlap:?}", pair[0].fence, pair[1].fence);
    }
}
