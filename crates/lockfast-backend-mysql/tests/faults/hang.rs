//! Clients that hang: the server has their connections, but nobody takes what they are given. And
//! holders and waiters that die together.

use std::time::Duration;

use lockfast::{Locker, Moment};
use lockfast_faults::lateness::Lateness;

use crate::kit::foreign::{Session, holder};
use crate::kit::{
    Mysql, bounded, connect, eventually, hold, hold_detached, prepare, start_server, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
/// P9: how long somebody who hangs or is dead may delay the others.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Checks that a delay is short: from when until when it was.
async fn check_delay(what: &str, measure: impl AsyncFn() -> (Moment, Moment)) {
    let machine = Lateness::watch();
    let (from, to) = measure().await;
    machine.check(what, DELAY_MAX, from, to);
}

struct Line {
    server: Mysql,
    url: String,
    first: Locker,
    second: Locker,
}

impl Line {
    async fn start() -> Self {
        let server = start_server();
        let url = prepare(&server).await;
        let (first, second) = (connect(&url).await, connect(&url).await);
        Self { server, url, first, second }
    }

    /// Waits for the lock, as the last of so many.
    async fn wait(&self, count: usize) -> tokio::task::JoinHandle<(lockfast::Guard, Moment)> {
        let locker = self.second.clone();
        let waiter = tokio::spawn(async move {
            (hold(&locker, NAME, ttl(TTL).wait_forever()).await, Moment::now())
        });
        let name = lockfast::LockName::new(NAME).unwrap();
        eventually("all wait", TTL, async || {
            self.first.inspect(&name).await.unwrap().waiting == count
        })
        .await;
        waiter
    }
}

/// A client with so many claims that wait, of which nobody will take what it is given.
async fn hang(url: &str, count: u8) -> Session {
    let mut session = Session::open(url, 1).await;
    for claim in 1..=count {
        let said = session.take_as(holder(1, claim), NAME, 0, TTL, true).await;
        // Every one that waits is told for how long, because who is ahead of it may be dead.
        let blocked: u64 = said.strip_prefix("W\t").unwrap().parse().unwrap();
        assert!(blocked > 0, "{said}");
    }
    session
}

/// B46, P9: however many claims of a client that hangs are ahead, the next client is delayed by one
/// offer, and not by one for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_of_one_client_that_hangs() {
    for count in [1, 2, 6, 40] {
        check_delay(&format!("{count} claims"), async || {
            let line = Line::start().await;
            let guard = hold(&line.first, NAME, ttl(TTL)).await;
            let _hung = hang(&line.url, count).await;
            let waiter = line.wait(usize::from(count) + 1).await;
            let released = Moment::now();
            guard.release().await.unwrap();
            let (_next, granted) = bounded(waiter).await.unwrap();
            (released, granted)
        })
        .await;
    }
}

/// B46, P10: who hung is passed over, but keeps its places: once it is heard again, its claims are
/// served before those that came later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_heard_again_has_its_place() {
    let line = Line::start().await;
    let guard = hold(&line.first, NAME, ttl(TTL)).await;
    let mut hung = hang(&line.url, 3).await;
    let waiter = line.wait(4).await;
    guard.release().await.unwrap();
    let (second, _) = bounded(waiter).await.unwrap();
    let last = tokio::spawn({
        let locker = line.first.clone();
        async move { hold(&locker, NAME, ttl(TTL).wait_forever()).await }
    });
    let name = lockfast::LockName::new(NAME).unwrap();
    let waiting = async || line.second.inspect(&name).await.unwrap().waiting;
    eventually("it waits behind", TTL, async || waiting().await == 3).await;
    // Any of its claims will do.
    let said = hung.take_as(holder(1, 3), NAME, 0, TTL, true).await;
    assert!(said.starts_with("W\t"), "{said}");
    second.release().await.unwrap();
    // The first was dropped with its offer, so this is the second.
    let said = hung.take_as(holder(1, 2), NAME, 0, TTL, false).await;
    assert!(said.starts_with("G\t"), "{said}");
    assert!(!last.is_finished());
    drop(hung);
    last.abort();
}

/// B19, P9: the holder dies, and so does the first that waits for it: the next one gets in soon
/// after the lease has ended, whether the server knows that the waiter is dead or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_and_the_first_waiter_die() {
    for is_known in [true, false] {
        check_delay(if is_known { "known" } else { "not known" }, async || {
            let line = Line::start().await;
            let lease = Duration::from_secs(4);
            let start = Moment::now();
            hold_detached(&line.first, NAME, lease).await;
            let first = hang(&line.url, 1).await;
            let waiter = line.wait(2).await;
            let _kept = match is_known {
                true => first.conn.disconnect().await.map(|()| None).unwrap(),
                false => Some(first),
            };
            let (_next, granted) = bounded(waiter).await.unwrap();
            (start + lease, granted)
        })
        .await;
    }
}

/// B62, P9: a waiter that dies while it looks has been granted the lock by a call that nobody hears
/// the answer of. It has it no longer than one that was given it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_dies_while_it_looks() {
    for is_given in [true, false] {
        check_delay(if is_given { "given" } else { "expired" }, async || {
            let line = Line::start().await;
            let mut guard = Some(hold(&line.first, NAME, ttl(TTL)).await);
            let mut dying = hang(&line.url, 1).await;
            let waiter = line.wait(2).await;
            if is_given {
                guard.take().unwrap().release().await.unwrap();
            } else {
                // Nobody has seen yet that the lease is over.
                line.server.sql("UPDATE lockfast_locks SET until_us = 1");
            }
            let looked = Moment::now();
            let said = dying.take_as(holder(1, 1), NAME, 0, TTL, true).await;
            assert!(said.starts_with("W\t"), "{said}");
            let (_next, granted) = bounded(waiter).await.unwrap();
            (looked, granted)
        })
        .await;
    }
}
