//! What decides between stores: how long a free lock takes, how many a second there can be, and how
//! soon the next one has it after a release and after a crash.

use std::io::Read as _;
use std::process::Command;
use std::time::Duration;

use lockfast::{LockName, Locker, Moment};
use lockfast_faults::child::Child;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::{connect, connect_each, median_us, reaches_others, since};

const SPAN: Duration = Duration::from_secs(2);
const TASKS: usize = 64;
/// Before those that count.
const WARM_UP: usize = 50;
const TTL: Duration = Duration::from_secs(2);
const CRASHES: u32 = 3;
/// What a child may take to start and to get its lock.
const BOUND: Duration = Duration::from_secs(20);

/// Measures everything on one store.
pub(crate) async fn measure(url: &str) -> Value {
    let locker = connect(url, None).await;
    let ttl = locker.profile().ttl.fit(TTL);
    let takeover = match reaches_others(&locker) {
        true => Some(take_over(url, ttl).await.as_secs_f64()),
        false => None,
    };
    json!({
        "free_p50_us": free(&locker).await,
        "cycles_per_s": cycles(&locker).await,
        "handover_p50_us": hand_over(url).await,
        "takeover_s": takeover,
        "ttl_s": ttl.as_secs_f64(),
    })
}

/// How long it takes to get a lock that nobody has.
async fn free(locker: &Locker) -> f64 {
    let mutex = locker.mutex("choose/free").unwrap();
    let start = Moment::now();
    let mut spans = Vec::new();
    for round in 0.. {
        let before = Moment::now();
        let guard = mutex.acquire().await.unwrap();
        let span = since(before);
        guard.release().await.unwrap();
        if round >= WARM_UP {
            spans.push(span);
        }
        if since(start) >= SPAN {
            break;
        }
    }
    median_us(spans)
}

/// Acquisitions and releases a second of many tasks, each with a lock of its own.
async fn cycles(locker: &Locker) -> f64 {
    let start = Moment::now();
    let mut running = JoinSet::new();
    for task in 0..TASKS {
        let mutex = locker.mutex(format!("choose/{task}")).unwrap();
        running.spawn(async move {
            let mut count = 0_u64;
            while since(start) < SPAN {
                mutex.acquire().await.unwrap().release().await.unwrap();
                count += 1;
                // A store that never has to wait would keep the others from running.
                tokio::task::yield_now().await;
            }
            count
        });
    }
    let counts = running.join_all().await;
    counts.into_iter().sum::<u64>() as f64 / since(start).as_secs_f64()
}

/// How long it takes from the call of `release` to the moment at which somebody has the lock who
/// waits for it on another connection.
async fn hand_over(url: &str) -> f64 {
    let name = "choose/handed-over";
    let mut lockers = connect_each(url, 2).await.into_iter();
    let (here, there) = (lockers.next().unwrap(), lockers.next().unwrap());
    let (call, mut calls) = mpsc::channel::<()>(1);
    let (tell, mut granted) = mpsc::channel(1);
    let waiter = tokio::spawn(async move {
        let mutex = there.mutex(name).unwrap();
        while calls.recv().await.is_some() {
            let guard = mutex.acquire().await.unwrap();
            tell.send(Moment::now()).await.unwrap();
            guard.release().await.unwrap();
        }
    });
    let mutex = here.mutex(name).unwrap();
    let (start, mut spans) = (Moment::now(), Vec::new());
    while since(start) < SPAN {
        let guard = mutex.acquire().await.unwrap();
        call.send(()).await.unwrap();
        wait_for_a_waiter(&here, mutex.name()).await;
        let released = Moment::now();
        guard.release().await.unwrap();
        spans.push(granted.recv().await.unwrap().since(released));
    }
    drop(call);
    waiter.await.unwrap();
    median_us(spans)
}

/// Returns when somebody waits, or soon where the store does not know.
async fn wait_for_a_waiter(locker: &Locker, name: &LockName) {
    for _ in 0..20 {
        if locker.inspect(name).await.unwrap().waiting > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const CRASHED: &str = "choose/crashed";

/// Holds the lock until it is killed, or its input ends.
pub(crate) async fn hold(url: &str, ttl_ms: u64) -> Value {
    let locker = connect(url, Some(Duration::from_millis(ttl_ms))).await;
    let _guard = locker.mutex(CRASHED).unwrap().acquire().await.unwrap();
    println!("held");
    // Nobody is left behind by a parent that is killed itself.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    Value::Null
}

/// How long after a holder is killed (SIGKILL) somebody has its lock who waits for it: the longest of
/// several, killed at several moments between two renewals.
async fn take_over(url: &str, ttl: Duration) -> Duration {
    let locker = connect(url, Some(ttl)).await;
    let mutex = locker.mutex(CRASHED).unwrap();
    let mut longest = Duration::ZERO;
    for crash in 0..CRASHES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut holder =
            Child::spawn(command.args(["hold", url, &ttl.as_millis().to_string()])).unwrap();
        holder.wait_for("held", BOUND).unwrap();
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.acquire().await.map(|guard| (Moment::now(), guard)) }
        });
        wait_for_a_waiter(&locker, mutex.name()).await;
        tokio::time::sleep(ttl / 3 * crash / CRASHES).await;
        let killed = Moment::now();
        holder.kill().unwrap();
        let (granted, guard) = waiting.await.unwrap().unwrap();
        longest = longest.max(granted.since(killed));
        guard.release().await.unwrap();
    }
    longest
}
