//! What locks cost the cluster.

#![allow(clippy::print_stdout, reason = "what was measured is on the page of the store")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use lockfast::{Guard, Locker, Moment, Options};
use lockfast_conformance::shorthand::{bounded, connect, hold, queue_for};
use lockfast_faults::etcd::Etcd;
use lockfast_faults::wait::eventually;
use tokio::task::JoinHandle;

fn options() -> Options {
    Options::default().ttl(Duration::from_secs(60)).no_wait()
}

async fn cycle(locker: &Locker, name: &str) {
    let guard = hold(locker, name, options()).await;
    bounded(guard.release()).await.unwrap();
}

fn writes(server: &Etcd) -> f64 {
    server.metric("etcd_server_proposals_committed_total").unwrap()
}

/// A lock that is free costs two writes of the cluster's log, once there is a lease for its ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_costs_two_writes() {
    const CYCLES: u32 = 100;
    // What belongs to the process and not to a lock: the lease of those who wait.
    const BESIDES: f64 = 4.0;
    let server = Etcd::start();
    let locker = connect(&server.url(), lockfast_backend_etcd::connect).await;
    cycle(&locker, "first").await;
    let before = writes(&server);
    for at in 0..CYCLES {
        cycle(&locker, &format!("lock {at}")).await;
    }
    let spent = writes(&server) - before;
    assert!(spent <= f64::from(CYCLES) * 2.0 + BESIDES, "{spent} writes for {CYCLES} locks");
}

/// What many tasks ask at once shares the writes.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_share_writes() {
    const TASKS: u32 = 64;
    let server = Etcd::start();
    let locker = connect(&server.url(), lockfast_backend_etcd::connect).await;
    cycle(&locker, "first").await;
    let before = writes(&server);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locker = locker.clone();
            tokio::spawn(async move {
                for at in 0..5 {
                    cycle(&locker, &format!("lock {task} {at}")).await;
                }
            })
        })
        .collect();
    for task in tasks {
        bounded(task).await.unwrap();
    }
    let spent = writes(&server) - before;
    let alone = f64::from(TASKS * 5 * 2);
    assert!(spent <= alone / 2.0, "{spent} writes, and {alone} without sharing");
}

fn reads(server: &Etcd) -> f64 {
    let labels = r#"grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    server.metric(&format!("grpc_server_started_total{{{labels}}}")).unwrap()
}

/// Waits until the line of a new waiter was read.
async fn settle(server: &Etcd) {
    let mut last = (reads(server), Moment::now());
    eventually("nobody reads", Duration::from_secs(30), async || {
        let now = (reads(server), Moment::now());
        let is_quiet = now.0 == last.0 && now.1.since(last.1) > Duration::from_millis(30);
        if now.0 != last.0 {
            last = now;
        }
        is_quiet
    })
    .await;
}

/// How many reads there are from the release of a lock until the next has it, and besides how many there
/// may be that belong to the processes and not to the hand-over.
async fn hand_over(server: &Etcd, guard: Guard, waiter: JoinHandle<Guard>) -> (f64, f64, Guard) {
    // Two processes look four times a second whether leases go on, and for how old news can be.
    const BESIDES_EACH_SECOND: f64 = 16.0;
    let (start, before) = (Moment::now(), reads(server));
    bounded(guard.release()).await.unwrap();
    let next = bounded(waiter).await.unwrap();
    let spent = reads(server) - before;
    (spent, Moment::now().since(start).as_secs_f64() * BESIDES_EACH_SECOND, next)
}

/// A hand-over costs no read for whoever stood in the line when that was read, which is so for the first of
/// a process that waits for a lock, and one for others.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_costs_one_read_at_most() {
    const ROUNDS: u32 = 40;
    let server = Etcd::start();
    let first = connect(&server.url(), lockfast_backend_etcd::connect).await;
    let second = connect(&server.url(), lockfast_backend_etcd::connect).await;
    let wait = || Options::default().ttl(Duration::from_secs(60)).wait_forever();
    let (mut spent, mut besides) = (0.0, 0.0);
    for at in 0..ROUNDS {
        let name = format!("lock {at}");
        let guard = hold(&first, &name, options()).await;
        let waiter = queue_for(&second, &name, wait()).await;
        settle(&server).await;
        let (reads, others, next) = hand_over(&server, guard, waiter).await;
        (spent, besides) = (spent + reads, besides + others);
        bounded(next.release()).await.unwrap();
    }
    println!("measured: {spent} reads for {ROUNDS} hand-overs to the first of a process");
    assert!(spent <= besides + 2.0, "{spent} reads, and {besides:.1} besides");

    let (mut spent, mut besides) = (0.0, 0.0);
    let mut guard = hold(&first, "one", options()).await;
    let mut waiter = queue_for(&second, "one", wait()).await;
    for at in 0..ROUNDS {
        let locker = if at % 2 == 0 { &first } else { &second };
        let later = queue_for(locker, "one", wait()).await;
        let (reads, others, next) = hand_over(&server, guard, waiter).await;
        (spent, besides) = (spent + reads, besides + others);
        (guard, waiter) = (next, later);
    }
    println!("measured: {spent} reads for {ROUNDS} hand-overs to those who came later");
    let most = f64::from(ROUNDS) + besides + 2.0;
    assert!(spent <= most, "{spent} reads, and {besides:.1} besides");
}

/// How many requests of a kind the server has answered.
fn answered(server: &Etcd, service: &str, method: &str) -> f64 {
    let labels = format!(
        "grpc_code=\"OK\",grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",\
         grpc_type=\"unary\""
    );
    server.metric(&format!("grpc_server_handled_total{{{labels}}}")).unwrap_or(0.0)
}

/// B190: a value that is fresh costs one request. When it ends is asked for as well only until that is
/// known for certain, and now and then after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_value_costs_one_request() {
    const READS: u32 = 400;
    // The lock of the computation is looked after for a while.
    const BESIDES: f64 = 50.0;
    const LONG: Duration = Duration::from_secs(600);
    let server = Etcd::start();
    let locker = connect(&server.url(), lockfast_backend_etcd::connect).await;
    let rates = locker.refresh("rates", LONG).unwrap().stale_for(LONG).unwrap();
    let computed = bounded(rates.get(|_| async { Ok(b"computed".to_vec()) })).await.unwrap();
    let spent = || ["Range", "Txn", "Put"].map(|method| answered(&server, "KV", method));
    let (before, ends_before) = (spent(), answered(&server, "Lease", "LeaseTimeToLive"));
    for _ in 0..READS {
        let read = bounded(rates.get(|_| async { Ok(b"again".to_vec()) })).await.unwrap();
        assert_eq!(read, computed);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [reads, transactions, writes] = spent();
    let reads = reads - before[0];
    assert!(reads <= f64::from(READS) + BESIDES, "{reads} requests for {READS} reads");
    assert_eq!((transactions, writes), (before[1], before[2]), "nobody takes a lock");
    let ends = answered(&server, "Lease", "LeaseTimeToLive") - ends_before;
    assert!(ends > 0.0 && ends <= f64::from(READS / 2), "{ends} requests for the end of the value");
}
