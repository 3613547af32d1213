//! Processes that wait for locks and then are dead, or hang: whoever comes after them is served soon
//! after it could be, however many of their claims are ahead. They are sessions of the bare driver,
//! which look to the server like a process that was stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and the figures are of interest"
)]

mod kit;

use std::time::Duration;

use kit::{Postgres, ROLE, TIME_MAX, bounded, connect, eventually, hold, session, start, ttl, url};
use lockfast::{Guard, Locker, Moment, Options};
use lockfast_faults::lateness::Lateness;
use tokio::task::JoinHandle;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
/// What P9 allows, and what a busy machine may add.
const DELAY_MAX: Duration = Duration::from_millis(2000 + 700);

/// A process that asks, and does nothing else.
struct Silent {
    number: u8,
    /// It listens on this one, and is there as long as it lasts.
    ear: Option<tokio_postgres::Client>,
    mouth: tokio_postgres::Client,
}

impl Silent {
    async fn start(postgres: &Postgres, number: u8) -> Self {
        let ear = session(postgres.address(), ROLE).await;
        let mouth = session(postgres.address(), ROLE).await;
        let key = 4_000_000_000_i64 + i64::from(number);
        let greeting =
            format!("LISTEN \"lockfast:silent{number}\"; SELECT pg_advisory_lock({key})");
        ear.batch_execute(&greeting).await.unwrap();
        let enrol = format!(
            "SELECT lockfast.enrol('\\x{}', 7, false, 'lockfast:silent{number}', {key}, 'p', 'h', \
             1, NULL)",
            hex(number)
        );
        mouth.batch_execute(&enrol).await.unwrap();
        Self { number, ear: Some(ear), mouth }
    }

    /// Asks for the lock with its holder of that number: 2 to take or wait, 3 to give back. Returns
    /// the code.
    async fn ask(&self, kind: u8, holder: usize, ttl: Duration) -> i16 {
        let client = hex(self.number);
        let sql = format!(
            "SELECT codes[1] FROM lockfast.serve('\\x{client}', 7, '{{{kind}}}', '{{{NAME}}}', \
             '{{{client}{holder:020}}}', '{{{}}}', '{{}}', '{{}}', '{{}}', '{{{holder}}}')",
            ttl.as_micros()
        );
        self.mouth.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

fn hex(number: u8) -> String {
    format!("{number:02x}").repeat(6)
}

/// Begins to wait, and tells when it was granted.
fn wait_for(locker: &Locker) -> JoinHandle<(Guard, Moment)> {
    let locker = locker.clone();
    tokio::spawn(async move {
        let guard = hold(&locker, NAME, Options::default().ttl(TTL).wait(TIME_MAX)).await;
        (guard, Moment::now())
    })
}

async fn see_waiting(locker: &Locker, waiting: usize) {
    let name = locker.mutex(NAME).unwrap().name().clone();
    eventually("so many wait", TIME_MAX, async || {
        locker.inspect(&name).await.unwrap().waiting == waiting
    })
    .await;
}

/// B46, P9: a release reaches the next process soon, however many waiters of a process that hangs are
/// ahead of it; when that is heard of again, it has its places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_process_that_hangs() {
    for ahead in [1, 2, 6] {
        let postgres = start();
        let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
        let guard = hold(&one, NAME, ttl(TTL)).await;
        let silent = Silent::start(&postgres, 10).await;
        for holder in 1..=ahead {
            assert!(silent.ask(2, holder, TTL).await <= 3);
        }
        let waiter = wait_for(&two);
        see_waiting(&one, ahead + 1).await;
        let late = wait_for(&one);
        see_waiting(&one, ahead + 2).await;
        let (machine, released) = (Lateness::watch(), Moment::now());
        guard.release().await.unwrap();
        let (guard, granted) = bounded(waiter).await.unwrap();
        println!("{ahead} waiters of a process that hangs: {:?}", granted.since(released));
        machine.check(&format!("{ahead} ahead"), DELAY_MAX, released, granted);
        // Heard of again, what is left of it comes before whoever came later.
        if ahead > 1 {
            assert_eq!(silent.ask(2, ahead, TTL).await, if ahead == 2 { 2 } else { 3 });
            guard.release().await.unwrap();
            assert_eq!(silent.ask(2, 2, TTL).await, 1);
            for holder in 2..=ahead {
                assert_eq!(silent.ask(2, holder, TTL).await, 1, "{holder} of {ahead}");
                assert_eq!(silent.ask(3, holder, TTL).await, 1);
            }
        } else {
            guard.release().await.unwrap();
        }
        drop(bounded(late).await.unwrap());
    }
}

/// B46, P9: the same when the holder's lease ran out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_before_waiters_that_hang() {
    const SHORT: Duration = Duration::from_secs(3);
    for ahead in [1, 6] {
        let postgres = start();
        let (dead, silent) =
            (Silent::start(&postgres, 11).await, Silent::start(&postgres, 10).await);
        let (machine, taken) = (Lateness::watch(), Moment::now());
        assert_eq!(dead.ask(2, 1, SHORT).await, 1);
        for holder in 1..=ahead {
            assert!(silent.ask(2, holder, TTL).await <= 3);
        }
        let locker = connect(&url(&postgres)).await;
        let (_guard, granted) = bounded(wait_for(&locker)).await.unwrap();
        let end = taken + SHORT;
        println!("{ahead} waiters that hang, and a lease that ends: {:?}", granted.since(end));
        machine.check(&format!("{ahead} ahead"), DELAY_MAX, end, granted);
    }
}

/// B19, P9: a holder and the first waiter are dead; the next is served when the lease has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_and_a_dead_waiter() {
    const SHORT: Duration = Duration::from_secs(8);
    let postgres = start();
    let (holder, mut waiter) =
        (Silent::start(&postgres, 11).await, Silent::start(&postgres, 10).await);
    let (machine, taken) = (Lateness::watch(), Moment::now());
    assert_eq!(holder.ask(2, 1, SHORT).await, 1);
    assert_eq!(waiter.ask(2, 1, TTL).await, 2);
    let locker = connect(&url(&postgres)).await;
    let next = wait_for(&locker);
    see_waiting(&locker, 2).await;
    drop(waiter.ear.take());
    drop(holder);
    let (_guard, granted) = bounded(next).await.unwrap();
    let end = taken + SHORT;
    println!("a dead holder and a dead waiter: {:?}", granted.since(end));
    machine.check("the next", Duration::from_secs(1), end, granted);
}

/// P5, P10: what a dead process waited for is not counted any more, and is removed before long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_dead_process() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    let mut silent = Silent::start(&postgres, 10).await;
    for holder in 1..=3 {
        silent.ask(2, holder, TTL).await;
    }
    see_waiting(&locker, 3).await;
    drop(silent.ear.take());
    see_waiting(&locker, 0).await;
    let sweep = "SELECT lockfast.sweep('\\x000000000000', 0)";
    postgres.sql(sweep);
    // It might have been a connection that broke, so the places are kept for a while.
    let kept = "SELECT count(*) FROM lockfast.claims WHERE stage = -1";
    assert_eq!(postgres.sql(kept), "3");
    postgres.sql("UPDATE lockfast.locks SET passed_us = 1 WHERE passed_us > 0");
    postgres.sql(sweep);
    assert_eq!(postgres.sql("SELECT count(*) FROM lockfast.claims"), "0");
    assert_eq!(postgres.sql("SELECT crowd, passed_us FROM lockfast.locks"), "0|0");
}
