//! Sessions end, and with them all locks that they hold.

use std::time::Duration;

use lockfast::{Guard, Locker, LossCause, Moment, Released};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{
    Setup, TIME_MAX, ZooKeeper, bounded, connect, eventually, hold, loss, queue_for, ttl, url_at,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);
const MANY: usize = 10_000;

/// P3, P5: the session expires while nobody can tell its holder. The holder knows by its deadline;
/// when it can connect again it has a new session, and its locks work as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_expires() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (far, near) = (connect(&url_at(proxy.address())).await, connect(&server.url()).await);
    let guard = hold(&far, NAME, ttl(TTL)).await;
    let waiter = queue_for(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    // One who waits in the session that ends keeps waiting in the next.
    let other = hold(&near, "other", ttl(TTL)).await;
    let far_waiter = queue_for(&far, "other", ttl(TTL).wait(TIME_MAX * 2)).await;
    proxy.set(Link::HalfOpen);
    let cause = loss(&guard, TTL * 2).await;
    assert!(matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > guard.fence().get());
    proxy.reset_open();
    proxy.set(Link::Pass);
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    next.release().await.unwrap();
    hold(&far, NAME, ttl(TTL).wait(TIME_MAX)).await.release().await.unwrap();
    other.release().await.unwrap();
    bounded(far_waiter).await.unwrap().release().await.unwrap();
    let mut session = server.session();
    for name in [NAME, "other"] {
        let is_empty = async || session.children(&format!("/{name}")).is_empty();
        eventually("nothing is left", TTL * 2, is_empty).await;
    }
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

async fn hold_many(locker: &Locker, span: Duration) -> Vec<Guard> {
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..100 {
        let locker = locker.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in 0..MANY / 100 {
                guards.push(hold(&locker, &format!("{part}-{number}"), ttl(span)).await);
            }
            guards
        });
    }
    let mut guards = Vec::new();
    while let Some(part) = tasks.join_next().await {
        guards.extend(part.unwrap());
    }
    guards
}

/// P3: 10 000 locks of one session are lost at once. All are told by their deadline, and the store
/// has none of them any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_of_one_session() {
    const TTL: Duration = Duration::from_secs(10);
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = connect(&url_at(proxy.address())).await;
    let guards = hold_many(&far, TTL).await;
    assert_eq!(guards.len(), MANY);
    let ephemerals = || server.count("zk_ephemerals_count");
    assert_eq!(ephemerals(), MANY as u64);
    let machine = Lateness::watch();
    proxy.set(Link::HalfOpen);
    let deadline =
        guards.iter().map(|guard| guard.deadline()).max_by_key(|moment| moment.host_ns()).unwrap();
    for guard in &guards {
        loss(guard, TTL * 3).await;
    }
    machine.check("to tell all", Duration::from_secs(2), deadline, Moment::now());
    assert!(guards.iter().all(|guard| guard.check().is_err()));
    eventually("the store has none", TTL * 2, async || ephemerals() == 0).await;
    proxy.reset_open();
    proxy.set(Link::Pass);
    hold(&far, NAME, ttl(TTL).wait(TIME_MAX)).await.release().await.unwrap();
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
