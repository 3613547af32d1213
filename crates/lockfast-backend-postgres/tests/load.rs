//! Many at once: calls that name the same locks do not get into each other's way, and a hand-over
//! costs the same however long the line is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and the figures are of interest"
)]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kit::{Postgres, SCHEMA, TIME_MAX, connect, eventually, hold, start, ttl, url};
use lockfast::{Locker, Moment, Options};

const TTL: Duration = Duration::from_secs(60);

/// B21: clients whose batches name the same locks, some simply free and some waited for, never wait
/// for each other in a circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_do_not_wait_in_a_circle() {
    const CLIENTS: usize = 4;
    const TASKS: usize = 8;
    const NAMES: usize = 20;
    const FOR: Duration = Duration::from_secs(5);
    let postgres = start();
    let cycles = Arc::new(AtomicU64::new(0));
    let from = Moment::now();
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let locker = connect(&url(&postgres)).await;
        for task in 0..TASKS {
            let (locker, cycles) = (locker.clone(), Arc::clone(&cycles));
            tasks.push(tokio::spawn(async move {
                // Each goes through the names in a way of its own.
                let (mut at, step) = (client * TASKS + task, 1 + 2 * (client + task));
                while Moment::now().since(from) < FOR {
                    at += step;
                    let wanted = ttl(TTL).wait_forever();
                    let guard = hold(&locker, &format!("n{:02}", at % NAMES), wanted).await;
                    guard.release().await.unwrap();
                    cycles.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let log = std::fs::read_to_string(postgres.socket_directory().join("log")).unwrap();
    assert_eq!(log.matches("deadlock detected").count(), 0);
    assert_eq!(postgres.sql(deadlocks), "0");
    let cycles = cycles.load(Ordering::Relaxed);
    println!("{cycles} cycles in {FOR:?}");
    assert!(cycles > 500, "{cycles} cycles in {FOR:?}");
}

#[derive(Debug)]
struct Handed {
    /// How often in a second.
    rate: f64,
    all: u64,
}

/// How often a lock changes hands while so many of one process wait for it.
async fn measure_hand_overs(locker: &Locker, name: &str, waiters: usize) -> Handed {
    const FOR: Duration = Duration::from_secs(3);
    let count = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let first = hold(locker, name, ttl(TTL)).await;
    let work = || {
        let (locker, name) = (locker.clone(), name.to_owned());
        let (count, is_over) = (Arc::clone(&count), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let wanted = Options::default().ttl(TTL).wait_forever();
                let mutex = locker.mutex(&name).unwrap().with_options(wanted);
                mutex.acquire().await.unwrap().release().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let tasks: Vec<_> = (0..waiters).map(|_| work()).collect();
    let lock = first.name().clone();
    let mut pause = Duration::from_millis(100);
    eventually("all wait", Duration::from_secs(60), async || {
        pause = (pause * 2).min(Duration::from_secs(2));
        tokio::time::sleep(pause).await;
        locker.inspect(&lock).await.unwrap().waiting == waiters
    })
    .await;
    first.release().await.unwrap();
    let from = (Moment::now(), count.load(Ordering::Relaxed));
    tokio::time::sleep(FOR).await;
    let hand_overs = count.load(Ordering::Relaxed) - from.1;
    let rate = hand_overs as f64 / Moment::now().since(from.0).as_secs_f64();
    println!("{waiters} waiters: {rate:.0} hand-overs a second");
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        tokio::time::timeout(TIME_MAX * 6, task).await.unwrap().unwrap();
    }
    Handed { rate, all: count.load(Ordering::Relaxed) }
}

/// How many rows of claims the server has read. What it read lately may be missing, so it is asked
/// until it says the same for a while.
async fn rows_read(postgres: &Postgres) -> u64 {
    let sql = format!(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables \
         WHERE relid = '{SCHEMA}.claims'::regclass"
    );
    let mut last = (postgres.sql(&sql), Moment::now());
    while Moment::now().since(last.1) < Duration::from_millis(2500) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = postgres.sql(&sql);
        if now != last.0 {
            last = (now, Moment::now());
        }
    }
    last.0.parse().unwrap()
}

/// B22, P10: the length of the line does not matter to whoever is at its head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_in_a_long_line() {
    let most = std::env::var("LOCKFAST_WAITERS").map_or(5000, |text| text.parse().unwrap());
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let few = measure_hand_overs(&locker, "few", 10).await;
    let before = rows_read(&postgres).await;
    let many = measure_hand_overs(&locker, "many", most).await;
    assert!(many.rate * 2.0 >= few.rate, "{few:?} with 10 waiters, {many:?} with {most}");
    let read = rows_read(&postgres).await - before;
    // Everybody came, was the next, and went; the one who asked how many wait saw all of them.
    let each = read / many.all;
    println!("{each} rows read for each hand-over");
    assert!(each < 50, "{each} rows are read for each hand-over");
}
