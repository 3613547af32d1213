//! Sessions end, and with them all locks that they hold.

use std::time::Duration;

use lockfast::LossCause;
use lockfast_conformance::way::Arrival;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{Setup, TIME_MAX, ZooKeeper, connect, hold, loss, stories, ttl, url_at};

const NAME: &str = "nightly";
const MANY: usize = 10_000;

/// P3, P5: the session expires while nobody can tell its holder. The holder knows by its deadline;
/// when it can connect again it has a new session, and its locks work as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_expires() {
    stories::expire_a_session(&ZooKeeper::start()).await;
}

/// P9: a lease that is made shorter ends with a session that is as short, also when its process is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_made_shorter_ends_sooner() {
    // Nobody waits for so long.
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_secs(2);
    let server = Setup::new().line("maxSessionTimeout=120000").start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (far, near) = (connect(&url_at(proxy.address())).await, connect(&server.url()).await);
    let guard = hold(&far, NAME, ttl(LONG)).await;
    guard.lease().extend(SHORT).await.unwrap();
    proxy.set(Link::HalfOpen);
    let next = hold(&near, NAME, ttl(SHORT).wait(TIME_MAX)).await;
    assert!(guard.check().is_err(), "held twice: {:?}", guard.status());
    assert!(next.fence().get() > guard.fence().get());
}

/// P9 (B240): a process that dies as soon as it stands in line, before it knows of it, delays others
/// by the short session of those who wait, and not by its ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_dies_as_it_comes_delays_nobody() {
    for arrival in Arrival::ALL {
        let server = Setup::new().line("maxSessionTimeout=40000").start();
        stories::way_to(&server).await.pass_over_who_dies_as_it_comes(arrival).await;
    }
}

/// P3: 10 000 locks of one session are lost at once. All are told by their deadline, and the store
/// has none of them any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_of_one_session() {
    stories::lose_many(&ZooKeeper::start(), MANY).await;
}

/// P3: when the server says that the session is over, all its locks are lost in one step, before any
/// deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_the_session_ends_all_locks() {
    const TTL: Duration = Duration::from_secs(60);
    // It comes back with nothing, so it knows no session.
    let mut server = Setup::new().line("maxSessionTimeout=120000").start();
    let locker = connect(&server.url()).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(hold(&locker, &format!("lock-{number}"), ttl(TTL)).await);
    }
    server.restart_empty();
    // Nobody who has seen more uses it, until it has as many transactions.
    let mut session = server.session();
    for number in 0..1000 {
        session.create(&format!("/filler-{number}"), b"");
    }
    for guard in &guards {
        assert_eq!(loss(guard, TIME_MAX).await, LossCause::SessionEnded);
    }
}
