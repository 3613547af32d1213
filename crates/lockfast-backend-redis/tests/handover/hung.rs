//! Processes in the line that hang or are dead hold up those behind them for a moment, however many
//! of their claims are ahead (P9). A process hangs when its connection is open and carries nothing.

use std::time::Duration;

use lockfast_core::{Moment, ReleaseOutcome, Wait};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::kit::direct::Direct;
use crate::kit::{Redis, bounded, connect, eventually, hold_detached, queue_for, topology, ttl};

const NAME: &str = "nightly";
/// What P9 allows for one process, and for any number of them.
const DELAY_MAX: Duration = Duration::from_secs(2);
const DELAY_OF_MANY_MAX: Duration = Duration::from_millis(2500);

/// A process whose connection can be stalled.
struct Process {
    proxy: Proxy,
    direct: Direct,
}

impl Process {
    async fn start(redis: &Redis) -> Self {
        let proxy = Proxy::start(redis.address()).await.unwrap();
        let direct = Direct::connect(&redis.url_at(proxy.address())).await;
        Self { proxy, direct }
    }
}

/// Lets `ahead[i]` claims of process i wait before one of a process that lives, then all of those
/// hang and the lock is given back. Returns how long the one that lives waited.
async fn check(redis: &Redis, ahead: &[usize], most: Duration) -> Duration {
    let holding = Direct::connect(&redis.url()).await;
    let next = Direct::connect(&redis.url()).await;
    let holder = holding.take(holding.request(NAME, Wait::No)).await;
    let mut hanging = Vec::new();
    for count in ahead {
        let process = Process::start(redis).await;
        let mut waiters = Vec::new();
        for _ in 0..*count {
            waiters.push(process.direct.queue(NAME).await);
        }
        hanging.push((process, waiters));
    }
    let waiter = next.queue(NAME).await;
    hanging.iter().for_each(|(process, _)| process.proxy.set(Link::Stall));
    let (machine, start) = (Lateness::watch(), Moment::now());
    assert_eq!(holding.give(NAME, holder).await, ReleaseOutcome::Released);
    let (holder, granted) = bounded(waiter).await.unwrap();
    assert_eq!(next.give(NAME, holder).await, ReleaseOutcome::Released);
    hanging.iter().flat_map(|(_, waiters)| waiters).for_each(JoinHandle::abort);
    machine.check(&format!("{ahead:?} claims ahead"), most, start, granted);
    granted.since(start)
}

/// B46, P9: however many claims of one hung process are ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_of_one_process() {
    for count in [1, 2, 6, 40] {
        let took = check(&Redis::start(), &[count], DELAY_MAX).await;
        println!("{count} claims ahead: {took:?}");
    }
}

/// B46, P9: several hung processes cost little more than one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes() {
    for ahead in [[1, 1].as_slice(), &[2, 3], &[1, 2, 1], &[1; 10]] {
        let took = check(&Redis::start(), ahead, DELAY_OF_MANY_MAX).await;
        println!("{ahead:?} claims ahead: {took:?}");
    }
}

/// B46, P9: the same on a cluster, where it is the process's runtime that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_on_a_cluster() {
    const CLAIMS: usize = 4;
    let cluster = topology::start_cluster();
    let url = format!("redis+cluster://{}", cluster.nodes[0].address());
    let (holding, next) = (Direct::connect(&url).await, Direct::connect(&url).await);
    let holder = holding.take(holding.request(NAME, Wait::No)).await;
    let hanging = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let process = hanging.spawn(async move { Direct::connect(&url).await }).await.unwrap();
    for count in 1..=CLAIMS {
        let process = process.clone();
        hanging.spawn(async move { process.take(process.request(NAME, Wait::Forever)).await });
        eventually("it waits", DELAY_MAX, async || next.waiting(NAME).await == count).await;
    }
    let waiter = next.queue(NAME).await;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (hangs, hung) = tokio::sync::oneshot::channel();
    hanging.spawn(async move {
        hangs.send(()).unwrap();
        stopped.recv()
    });
    hung.await.unwrap();
    let (machine, start) = (Lateness::watch(), Moment::now());
    assert_eq!(holding.give(NAME, holder).await, ReleaseOutcome::Released);
    let (_, granted) = bounded(waiter).await.unwrap();
    println!("{CLAIMS} claims ahead on a cluster: {:?}", granted.since(start));
    machine.check("the next", DELAY_MAX, start, granted);
    drop(stop);
    hanging.shutdown_background();
}

/// B46, P9, P10: a process that was taken for hung is passed over at once the next time, also where its
/// claims stand between others; when it is heard of again, its claims have their old places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_hangs_and_comes_back() {
    const TTL: Duration = Duration::from_secs(20);
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let hung = connect(&redis.url_at(proxy.address())).await;
    let (near, other) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let options = ttl(TTL).wait(TTL);
    let first = crate::kit::hold(&near, NAME, ttl(TTL)).await;
    let lost = queue_for(&hung, NAME, options.clone()).await;
    let second = queue_for(&other, NAME, options.clone()).await;
    let back = queue_for(&hung, NAME, options.clone()).await;
    let third = queue_for(&near, NAME, options.clone()).await;
    let fourth = queue_for(&other, NAME, options.clone()).await;
    proxy.set(Link::Stall);
    let (machine, start) = (Lateness::watch(), Moment::now());
    first.release().await.unwrap();
    let second = bounded(second).await.unwrap();
    machine.check("the second", DELAY_MAX, start, Moment::now());
    let start = Moment::now();
    second.release().await.unwrap();
    let third = bounded(third).await.unwrap();
    // Longer if it was offered the lock again.
    machine.check("the third", Duration::from_secs(1), start, Moment::now());
    proxy.set(Link::Pass);
    let name = third.name().clone();
    eventually("its claims are back", TTL, async || {
        near.inspect(&name).await.unwrap().waiting == 3
    })
    .await;
    let start = Moment::now();
    third.release().await.unwrap();
    for waiter in [lost, back, fourth] {
        bounded(waiter).await.unwrap().release().await.unwrap();
    }
    // Longer if one of them did not take its turn.
    machine.check("the others", Duration::from_millis(1400), start, Moment::now());
}

/// B19, P9: a holder dies, and so does the first in the line, or it hangs. The next is served soon after
/// the lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_and_a_dead_head() {
    const TTL: Duration = Duration::from_secs(4);
    for is_dead in [true, false] {
        let redis = Redis::start();
        let near = connect(&redis.url()).await;
        let (machine, start) = (Lateness::watch(), Moment::now());
        let lease = hold_detached(&near, NAME, TTL).await;
        let head = Process::start(&redis).await;
        let ahead = [head.direct.queue(NAME).await, head.direct.queue(NAME).await];
        let next = Direct::connect(&redis.url()).await;
        let waiter = next.queue(NAME).await;
        head.proxy.set(if is_dead { Link::Close } else { Link::Stall });
        let (_, granted) = bounded(waiter).await.unwrap();
        let end = start + TTL;
        println!("dead: {is_dead}, {:?} after the end", granted.since(end));
        let most = if is_dead { Duration::from_millis(1500) } else { DELAY_MAX };
        machine.check(&format!("dead: {is_dead}, the next"), most, end, granted);
        ahead.iter().for_each(JoinHandle::abort);
        drop(lease);
    }
}
