//! The way to the server fails, or the server does not answer.

use std::time::Duration;

use lockfast::{ErrorKind, Mode, Options, Released};
use lockfast_conformance::way::{NAME, SLACK, TTL, Way};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, ClientId, DowngradeOutcome, DowngradeRequest, HolderId,
    ReleaseOutcome, ReleaseRequest, Wait,
};
use lockfast_faults::proxy::Link;
use lockfast_faults::server::Server as _;

use crate::kit::{
    Postgres, ROLE, SCHEMA, TIME_MAX, bounded, check_error, connect, connect_both, eventually,
    hold, loss, name, start, ttl, url_at,
};

/// A server, and a way to it that fails.
struct Net {
    postgres: Postgres,
    way: Way,
}

impl Net {
    async fn start() -> Self {
        let postgres = start();
        let connect = lockfast_backend_postgres::connect;
        let way = Way::start(postgres.address(), url_at, connect).await;
        Self { postgres, way }
    }

    /// Who has the lock, by the table.
    fn holders(&self) -> String {
        self.postgres.sql(&format!("SELECT count(holder) FROM {SCHEMA}.locks"))
    }

    /// How often the server refused a connection that was given up.
    fn refused(&self) -> usize {
        let log = self.postgres.socket_directory().join("log");
        let said = std::fs::read_to_string(log).unwrap();
        said.matches("this connection is not registered").count()
    }
}

/// P1, P3: a cut that ends in time costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        net.way.outlive(cut).await;
        assert_eq!(net.holders(), "0");
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that the
/// next gets in, within a second.
/// The user sees: the loss `Expired` with what the renewals met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    Net::start().await.way.lose().await;
}

/// P3: connections that are open at both ends but carry nothing are given up in time: the lease
/// goes on over a new one.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    net.way.outlive_silence().await;
    assert_eq!(net.holders(), "0");
}

/// P10: a waiter whose connections went half-open does not hear its grant, and still gets in.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_while_waiting() {
    Net::start().await.way.wait_in_silence().await;
}

/// P5 (B76): waiters that give up while the way is cut for longer than their leases last are out of
/// the line when it is there again.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_give_up_during_a_cut() {
    Net::start().await.way.give_up_during_a_cut().await;
}

/// P7, P8 (B130): a lock is taken away and the reply is lost: the next holder keeps it.
/// The user sees: `Unreachable`, and the lock as it is then by `show`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_revocation_is_lost() {
    Net::start().await.way.revoke_without_a_reply().await;
}

/// P7: a reply that is lost is asked for again, and the answer is the same: one grant.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    let net = Net::start().await;
    net.way.repeat_a_lost_grant().await;
    assert_eq!(net.holders(), "0");
}

/// B45, P6, P7: a release that was done but whose reply was lost is not told as a loss.
/// The user sees: `Unknown`, and the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_release() {
    for role in ["app", "postgres"] {
        let net = Net::start().await;
        let address = net.way.proxy.address();
        let far =
            connect(&format!("postgres://{role}@{address}/postgres?request_timeout=1s")).await;
        let long = ttl(Duration::from_secs(60));
        let guard = hold(&far, NAME, long.clone()).await;
        net.way.proxy.set_open(Link::SwallowReplies);
        let released = guard.release().await.unwrap();
        assert!(matches!(released, Released::Unknown { .. }), "{released:?}");
        assert_eq!(net.holders(), "0");
        // One that was not done before is.
        let guard = hold(&far, NAME, long).await;
        net.way.proxy.set_open(Link::HalfOpen);
        let released = guard.release().await.unwrap();
        assert!(matches!(released, Released::Released), "{released:?}");
    }
}

/// P7, P15: a downgrade that was done but whose reply was lost is asked for again, and known.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_downgrade() {
    let net = Net::start().await;
    net.way.downgrade_without_a_reply().await;
    assert_eq!(net.holders(), "0");
}

/// B261, P15: a downgrade that was done but whose reply was lost is asked for again, and refused.
/// The user sees: the refusal, not that nothing was done; the guard is not relied on as a writer's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_downgrade_and_a_refusal() {
    let net = Net::start().await;
    let lock = net.way.far.rwlock(NAME).unwrap().ttl(TTL * 10);
    let guard = bounded(lock.write()).await.unwrap();
    net.way.proxy.set(Link::SwallowReplies);
    let downgrading = tokio::spawn(async move { (lock.downgrade(&guard).await, guard) });
    let shared = format!("SELECT count(*) FROM {SCHEMA}.claims WHERE stage = 1");
    eventually("it is done", TIME_MAX, async || net.postgres.sql(&shared) == "1").await;
    net.postgres.sql(&format!("REVOKE EXECUTE ON FUNCTION {SCHEMA}.downgrade FROM {ROLE}"));
    net.way.proxy.set(Link::Close);
    net.way.proxy.reset_open();
    net.way.proxy.set(Link::Pass);
    let (downgraded, guard) = bounded(downgrading).await.unwrap();
    let error = downgraded.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["function downgrade"]);
    assert!(!error.is_without_effect() && guard.mode() == Mode::Shared, "{error}");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P8, P15: a downgrade that was given up and arrives later, by a connection that was given up too, does
/// nothing: its holder has released the lock since, and has it again as a writer.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_comes_late() {
    let net = Net::start().await;
    let address = format!("{}?request_timeout=1s", url_at(net.way.proxy.address()));
    let (_locker, far) = connect_both(&address).await;
    let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
    let request = AcquireRequest {
        name: name(NAME),
        mode: Mode::Exclusive,
        holder,
        ttl: TTL * 10,
        lock_delay: Duration::ZERO,
        wait: Wait::No,
        detached: false,
        floor: None,
    };
    let taken = || far.acquire(request.clone());
    assert!(matches!(bounded(taken()).await.unwrap(), AcquireOutcome::Granted(_)));
    net.way.proxy.set_open(Link::HoldRequests);
    let downgrade = DowngradeRequest { name: name(NAME), holder };
    assert_eq!(bounded(far.downgrade(downgrade)).await.unwrap(), DowngradeOutcome::Downgraded);
    let release = ReleaseRequest { name: name(NAME), holder };
    assert_eq!(bounded(far.release(release)).await.unwrap(), ReleaseOutcome::Released);
    assert!(matches!(bounded(taken()).await.unwrap(), AcquireOutcome::Granted(_)));
    assert_eq!(net.refused(), 0);
    net.way.proxy.set_open(Link::Pass);
    eventually("what was held has arrived", TIME_MAX, async || net.refused() > 0).await;
    let view = net.way.near.inspect(&name(NAME)).await.unwrap();
    let modes: Vec<_> = view.holders.iter().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Mode::Exclusive]);
}

/// P5: an acquisition that was given up and arrives later, by a connection that was given up too,
/// takes no effect: the server refuses it, whether the role may change the tables or not.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_late() {
    for role in ["app", "postgres"] {
        let net = Net::start().await;
        let far = connect(&format!("postgres://{role}@{}/postgres", net.way.proxy.address())).await;
        net.way.proxy.set_open(Link::HoldRequests);
        let mutex = far.mutex(NAME).unwrap().ttl(TTL);
        let asked = tokio::spawn(async move { mutex.acquire().await.map(drop) });
        // Sent, given up with its connection, asked again by another, granted and given back.
        bounded(asked).await.unwrap().unwrap();
        eventually("it is free", TIME_MAX, async || net.holders() == "0").await;
        assert_eq!(net.refused(), 0);
        net.way.proxy.set_open(Link::Pass);
        eventually("what was held has arrived", TIME_MAX, async || net.refused() > 0).await;
        assert_eq!(net.holders(), "0");
        drop(hold(&net.way.near, NAME, ttl(TTL)).await);
    }
}

/// P2, P3: a server that hangs and comes back late finds that the lease is over.
/// The user sees: the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
    net.postgres.pause();
    loss(&guard, TTL + SLACK).await;
    net.postgres.resume();
    let next = hold(&net.way.near, NAME, Options::default().ttl(TTL).wait(TTL * 3)).await;
    assert!(next.fence().get() > guard.fence().get());
}
