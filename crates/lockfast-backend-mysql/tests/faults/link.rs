//! The way to the server fails, or the server does not answer.

use std::time::Duration;

use lockfast::{LeaseStatus, Locker, LossCause, Moment, Options, Released};
use lockfast_conformance::fault::proxy::{Link, Proxy};

use crate::kit::{
    MariaDb, bounded, connect, eventually, hold, loss, prepare, refusal, ttl, url_at,
    wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(1);

/// A server, a proxy before it, somebody who goes through the proxy and somebody who does not.
struct Net {
    mariadb: MariaDb,
    proxy: Proxy,
    far: Locker,
    near: Locker,
}

impl Net {
    async fn start() -> Self {
        let mariadb = MariaDb::start();
        let url = prepare(&mariadb).await;
        let proxy = Proxy::start(mariadb.address()).await.unwrap();
        let far = connect(&url_at(proxy.address())).await;
        let near = connect(&url).await;
        Self { mariadb, proxy, far, near }
    }

    /// Who has the lock.
    fn holder(&self) -> String {
        let query = format!("SELECT HEX(holder) FROM lockfast_locks WHERE name = '{NAME}'");
        self.mariadb.sql(&query).trim().to_owned()
    }
}

/// P1, P3: a cut that ends in time costs nothing: the lease is in jeopardy at most, and goes on
/// over a new connection. Nobody else gets in meanwhile.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        let guard = hold(&net.far, NAME, ttl(TTL)).await;
        net.proxy.set(cut);
        eventually("jeopardy", TTL, async || {
            matches!(guard.status(), LeaseStatus::Jeopardy { .. })
        })
        .await;
        refusal(&net.near, NAME).await;
        net.proxy.set(Link::Pass);
        wait_for_renewal(&guard, TTL).await;
        eventually("held", TTL, async || guard.status() == LeaseStatus::Held).await;
        refusal(&net.near, NAME).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        assert_eq!(net.holder(), "NULL");
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that
/// the next gets in, within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let guard = hold(&net.far, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let near = net.near.clone();
        async move {
            let next = hold(&near, NAME, Options::default().wait(TTL * 3)).await;
            (next, Moment::now())
        }
    });
    net.proxy.set(Link::Close);
    let cause = loss(&guard, TTL + SLACK).await;
    assert!(matches!(cause, LossCause::Expired { last_failure: Some(_) }), "{cause:?}");
    let deadline = guard.deadline();
    let (next, granted) = bounded(waiter).await.unwrap();
    assert!(deadline.has_passed(granted));
    assert!(granted.since(deadline) < SLACK + TTL / 50, "{:?}", granted.since(deadline));
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P3: connections that are open at both ends but carry nothing are given up in time, and the
/// lease goes on over a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    let guard = hold(&net.far, NAME, ttl(TTL * 2)).await;
    // Those that are open carry nothing any more; new ones work.
    net.proxy.set_open(Link::HalfOpen);
    wait_for_renewal(&guard, TTL * 2).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    // A waiter, too, finds out although nothing tells it.
    let guard = hold(&net.near, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let far = net.far.clone();
        async move { hold(&far, NAME, ttl(TTL).wait(TTL * 10)).await }
    });
    eventually("somebody waits", TTL, async || refusal(&net.near, NAME).await.lock.waiting == 1)
        .await;
    net.proxy.set_open(Link::HalfOpen);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.check().is_ok());
}

/// P5, P7: an acquisition whose reply was lost is repeated and has the lock once; nothing is left
/// after its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    let net = Net::start().await;
    net.proxy.set_open(Link::SwallowReplies);
    let guard = hold(&net.far, NAME, ttl(TTL).retries(5)).await;
    assert_ne!(net.holder(), "NULL");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(net.holder(), "NULL");
}

/// P5, P7: an acquisition that arrives after its release does not take effect, because its
/// connection was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request() {
    let net = Net::start().await;
    // The first connections only: whatever is sent over them is delivered much later.
    net.proxy.set_open(Link::HoldRequests);
    let mutex = net.far.mutex(NAME).unwrap().with(ttl(TTL).retries(0)).unwrap();
    let taking = tokio::time::timeout(Duration::from_millis(300), mutex.acquire());
    assert!(taking.await.is_err(), "it was granted over a held link");
    // The engine undoes it over a new connection.
    eventually("a new connection", TTL * 3, async || net.proxy.accepted() >= 3).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    net.proxy.set_open(Link::Pass);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let guard = hold(&net.near, NAME, ttl(TTL)).await;
    assert!(guard.check().is_ok());
}
