//! The way to the server fails, or the server does not answer.

use std::time::Duration;

use lockfast::{LeaseStatus, Locker, LossCause, Moment, Options, Released};
use lockfast_conformance::fault::proxy::{Link, Proxy};

use crate::kit::{
    Postgres, SCHEMA, bounded, connect, eventually, hold, loss, queue_for, refusal, start, ttl,
    url, url_at, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(1);

/// A server, a proxy before it, somebody who goes through the proxy and somebody who does not.
struct Net {
    postgres: Postgres,
    proxy: Proxy,
    far: Locker,
    near: Locker,
}

impl Net {
    async fn start() -> Self {
        let postgres = start();
        let proxy = Proxy::start(postgres.address()).await.unwrap();
        let far = connect(&url_at(proxy.address())).await;
        let near = connect(&url(&postgres)).await;
        Self { postgres, proxy, far, near }
    }

    /// Who has the lock, by the table.
    fn holders(&self) -> String {
        self.postgres.sql(&format!("SELECT count(holder) FROM {SCHEMA}.locks"))
    }
}

/// P1, P3: a cut that ends in time costs nothing.
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
        refusal(&net.near, NAME).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        assert_eq!(net.holders(), "0");
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that the
/// next gets in, within a second.
/// The user sees: the loss `Expired` with what the renewals met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let guard = hold(&net.far, NAME, ttl(TTL)).await;
    let waiter = queue_for(&net.near, NAME).await;
    net.proxy.set(Link::Close);
    let cause = loss(&guard, TTL + SLACK).await;
    assert!(matches!(cause, LossCause::Expired { last_failure: Some(_) }), "{cause:?}");
    let deadline = guard.deadline();
    let next = bounded(waiter).await.unwrap();
    let granted = Moment::now();
    assert!(deadline.has_passed(granted));
    assert!(granted.since(deadline) < SLACK + TTL / 50, "{:?}", granted.since(deadline));
    assert!(next.fence().get() > guard.fence().get());
}

/// P3, P10: connections that are open at both ends but carry nothing are given up in time: the
/// lease goes on over a new one, and who waits is still woken.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections() {
    let net = Net::start().await;
    let guard = hold(&net.far, "mine", ttl(TTL)).await;
    let taken = hold(&net.near, NAME, ttl(TTL * 4)).await;
    let waiter = queue_for(&net.far, NAME).await;
    net.proxy.set_open(Link::HalfOpen);
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(taken.release().await.unwrap(), Released::Released));
    let next = tokio::time::timeout(Duration::from_secs(20), waiter).await.unwrap().unwrap();
    assert!(next.check().is_ok());
}

/// P7: a reply that is lost is asked for again, and the answer is the same: one grant.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    let net = Net::start().await;
    net.proxy.set_open(Link::SwallowReplies);
    let guard = hold(&net.far, NAME, Options::default().ttl(TTL * 3)).await;
    let view = net.near.inspect(guard.name()).await.unwrap();
    assert_eq!(view.holders.len(), 1);
    assert_eq!(view.holders[0].fence, Some(guard.fence()));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(net.holders(), "0");
}

/// P5: an acquisition that was given up and arrives later, by a connection that was given up too,
/// takes no effect.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_late() {
    let net = Net::start().await;
    net.proxy.set_open(Link::HoldRequests);
    let mutex = net.far.mutex(NAME).unwrap().with(Options::default().ttl(TTL)).unwrap();
    let asked = tokio::spawn(async move { mutex.acquire().await.map(drop) });
    // Long enough for it to be sent, given up with its connection, and asked again by another.
    eventually("it was granted and given back", TTL * 2, async || asked.is_finished()).await;
    eventually("it is free", TTL, async || net.holders() == "0").await;
    net.proxy.set_open(Link::Pass);
    // What was held arrives now; the server refuses it, or the connection is gone.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(net.holders(), "0");
    drop(hold(&net.near, NAME, ttl(TTL)).await);
}

/// P2, P3: a server that hangs and comes back late finds that the lease is over.
/// The user sees: the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs() {
    let net = Net::start().await;
    let guard = hold(&net.far, NAME, ttl(TTL)).await;
    net.postgres.pause();
    loss(&guard, TTL + SLACK).await;
    net.postgres.resume();
    let next = hold(&net.near, NAME, Options::default().ttl(TTL).wait(TTL * 3)).await;
    assert!(next.fence().get() > guard.fence().get());
}
