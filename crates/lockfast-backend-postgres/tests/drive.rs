//! The link for commands is driven on the runtime that asks. Nothing may depend on that runtime's
//! going on: it is blocked, dropped or left alone here, has no I/O, or is one of several, and the
//! keeper must do what it does not. Nothing may panic when a runtime ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use kit::{
    Postgres, SCHEMA, TIME_MAX, bounded, connect, eventually, hold, session, start, ttl, url,
    wait_until,
};
use lockfast::{Locker, Moment, Options};
use lockfast_core::{
    Address, ClientId, ConnectContext, HolderId, Label, LockName, LossReporter, ReleaseRequest,
};
use tokio::runtime::{Builder, Runtime};

/// So long that no renewal lets the keeper drive.
const LONG: Duration = Duration::from_secs(300);

/// How many threads panicked because a runtime had ended.
static ENDED: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.to_string().contains("shutdown") {
                ENDED.fetch_add(1, Ordering::SeqCst);
            }
            usual(info);
        }));
    });
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn several() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Asks for so long that the link is driven here and nowhere else.
async fn settle_in(locker: &Locker) {
    let start = Moment::now();
    while Moment::now().since(start) < Duration::from_millis(250) {
        hold(locker, "settling in", ttl(LONG)).await.release().await.unwrap();
    }
}

/// Others take, wait for and give back locks of the same connection.
fn check_that_others_are_served(locker: &Locker) {
    let locker = locker.clone();
    let others = std::thread::spawn(move || {
        single().block_on(async {
            let first = hold(&locker, "others", ttl(LONG)).await;
            let waiting = kit::queue_for(&locker, "others").await;
            // The keeper gives it back.
            drop(first);
            bounded(waiting).await.unwrap().release().await.unwrap();
        });
    });
    others.join().unwrap();
}

/// Waits until a request of ours is in flight.
async fn see_it_wait(postgres: &Postgres) {
    let sql = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("it is in flight", TIME_MAX, async || postgres.sql(sql) == "t").await;
}

/// A thread that blocks its runtime while an answer is under way.
#[test]
fn a_blocked_runtime() {
    let postgres = start();
    let (blocked, is_blocked) = mpsc::channel();
    let (unblock, unblocked) = mpsc::channel::<()>();
    let url = url(&postgres);
    let home = std::thread::spawn(move || {
        single().block_on(async {
            let locker = connect(&url).await;
            let kept = hold(&locker, "kept", ttl(Duration::from_secs(3))).await;
            settle_in(&locker).await;
            let mutex = locker.mutex("asked").unwrap().with_options(ttl(LONG));
            let asked = tokio::spawn(async move { mutex.acquire().await });
            tokio::task::yield_now().await;
            blocked.send((locker, kept.lease().clone())).unwrap();
            // The thread does nothing else from here.
            unblocked.recv().unwrap();
            kept.check().expect("it was renewed all the time");
            bounded(asked).await.unwrap().unwrap().release().await.unwrap();
            kept.release().await.unwrap();
        });
    });
    let (locker, kept) = is_blocked.recv().unwrap();
    check_that_others_are_served(&locker);
    let seen = kept.deadline();
    wait_until("it is renewed twice", TIME_MAX, || {
        kept.deadline().since(seen) > Duration::from_millis(1200)
    });
    unblock.send(()).unwrap();
    home.join().unwrap();
}

/// A runtime that ends while an answer is under way.
#[test]
fn a_runtime_that_is_dropped() {
    count_panics();
    let postgres = start();
    for home in [single(), several()] {
        let (locker, asked, stopper) = home.block_on(async {
            let locker = connect(&url(&postgres)).await;
            let settling = locker.clone();
            tokio::spawn(async move { settle_in(&settling).await }).await.unwrap();
            let stopper = several();
            let stopping = stopper.spawn(stop_everything(postgres.address()));
            let stopped = stopping.await.unwrap();
            let mutex = locker.mutex("asked").unwrap().with_options(ttl(LONG));
            let asked = tokio::spawn(async move { mutex.acquire().await.map(drop) });
            see_it_wait(&postgres).await;
            (locker, asked, (stopper, stopped))
        });
        drop(home);
        let (stopper, stopped) = stopper;
        stopper.block_on(async { stopped.batch_execute("COMMIT").await.unwrap() });
        assert!(asked.is_finished(), "it ended with its runtime");
        check_that_others_are_served(&locker);
        // What was asked is given back, and the next runtime is as good a home.
        single().block_on(async {
            settle_in(&locker).await;
            hold(&locker, "asked", Options::default().ttl(LONG)).await.release().await.unwrap();
        });
        stopper.shutdown_background();
    }
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
}

/// Keeps all locks of the store from changing until it commits.
async fn stop_everything(address: SocketAddr) -> tokio_postgres::Client {
    let client = session(address, "postgres").await;
    let stop = format!("BEGIN; LOCK TABLE {SCHEMA}.locks IN EXCLUSIVE MODE");
    client.batch_execute(&stop).await.unwrap();
    client
}

/// A runtime of one thread that nobody polls any more.
#[test]
fn a_runtime_that_nobody_drives() {
    let postgres = start();
    let home = single();
    let (locker, kept) = home.block_on(async {
        let locker = connect(&url(&postgres)).await;
        let kept = hold(&locker, "kept", ttl(Duration::from_secs(3))).await;
        settle_in(&locker).await;
        (locker, kept)
    });
    check_that_others_are_served(&locker);
    let seen = kept.deadline();
    wait_until("it is renewed twice", TIME_MAX, || {
        kept.deadline().since(seen) > Duration::from_millis(1200)
    });
    home.block_on(async {
        kept.check().expect("the keeper renews it");
        kept.release().await.unwrap();
        settle_in(&locker).await;
    });
}

/// Such a runtime cannot tell what arrives; its tasks are served all the same.
#[test]
fn a_runtime_without_io() {
    let postgres = start();
    let locker = single().block_on(connect(&url(&postgres)));
    let home = Builder::new_current_thread().enable_time().build().unwrap();
    home.block_on(settle_in(&locker));
    check_that_others_are_served(&locker);
}

/// Several runtimes ask at once, some of which end while the others go on.
#[test]
fn several_runtimes() {
    count_panics();
    let postgres = start();
    let locker = single().block_on(connect(&url(&postgres)));
    let work = |number: usize| {
        let locker = locker.clone();
        std::thread::spawn(move || {
            for round in 0..5 {
                let runtime = if (number + round).is_multiple_of(2) { single() } else { several() };
                runtime.block_on(async {
                    for _ in 0..10 {
                        let own = format!("own-{number}");
                        hold(&locker, &own, ttl(LONG)).await.release().await.unwrap();
                        let shared = ttl(LONG).wait(TIME_MAX);
                        hold(&locker, "shared", shared).await.release().await.unwrap();
                    }
                });
            }
        })
    };
    let threads: Vec<_> = (0..4).map(work).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
}

/// The keeper's own runtime ends while another drives the link: whoever asks is told, and nobody
/// panics.
#[test]
fn a_keeper_that_ends() {
    count_panics();
    let postgres = start();
    let asking = several();
    for _ in 0..10 {
        let keeper = several();
        let address = Address::parse(&url(&postgres)).unwrap();
        let context = ConnectContext {
            runtime: keeper.handle().clone(),
            client: ClientId::random().unwrap(),
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        };
        let connecting = lockfast_backend_postgres::connect(address, context);
        let backend = asking.block_on(connecting).unwrap();
        let (asked, is_asked) = mpsc::channel();
        let ask = |number: u8| {
            let (backend, asked) = (Arc::clone(&backend), asked.clone());
            asking.spawn(async move {
                loop {
                    let name = LockName::new("nobody's").unwrap();
                    let holder = HolderId::from_bytes([number; 16]);
                    let answer = backend.release(ReleaseRequest { name, holder }).await;
                    if answer.is_err() {
                        return;
                    }
                    let _ = asked.send(());
                }
            })
        };
        let tasks: Vec<_> = (1..5).map(ask).collect();
        is_asked.iter().take(200).for_each(drop);
        drop(keeper);
        for task in tasks {
            asking.block_on(bounded(task)).expect("it is told and does not panic");
        }
    }
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
}
