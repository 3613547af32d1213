//! The way to the server fails, or the server does not answer.

use std::time::Duration;

use lockfast::{ErrorKind, Guard, Moment, Released};
use lockfast_conformance::way::{NAME, Succession, TTL, Way};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{
    Kind, TIME_MAX, ZooKeeper, bounded, check_error, claims, connect, eventually, hold, queue_for,
    refusal, stories, ttl, url_at, wait_for_renewal,
};

/// A server, and a way to it that fails.
struct Net {
    server: ZooKeeper,
    way: Way,
}

impl Net {
    async fn start() -> Self {
        let server = ZooKeeper::start();
        let way = stories::way_to(&server).await;
        Self { server, way }
    }

    /// How many have the lock or wait for it.
    fn claims(&self) -> usize {
        claims(&self.server, NAME).len()
    }
}

/// P1, P3: a cut that ends in time costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        net.way.outlive(cut).await;
        assert_eq!(net.claims(), 0);
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that
/// the next gets in.
/// The user sees: the loss `Expired` with what the renewals met; the release is `AlreadyLost`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let Succession { lost, next, .. } = net.way.lose().await;
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
    assert_eq!(net.claims(), 1);
}

/// P3: connections that are open at both ends but carry nothing are given up in time, and the
/// lease goes on over a new one.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    net.way.outlive_silence().await;
    assert_eq!(net.claims(), 0);
}

/// P6, P10: a waiter, too, finds out although nothing tells it: what the server told of the node that
/// it watches is lost. Its release does not need the connection that is silent still.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_lost_in_silence() {
    let net = Net::start().await;
    stories::lose_a_watch(&net.server, &net.way).await;
}

/// P10: the same while the connection is cut: whoever waits is still in line, and gets in when it is
/// connected again.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_lost_in_a_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
        let fence = guard.fence().get();
        let waiter = queue_for(&net.way.far, NAME, ttl(TTL).wait(TIME_MAX)).await;
        net.way.proxy.set(cut);
        guard.release().await.unwrap();
        net.way.proxy.set(Link::Pass);
        let next = bounded(waiter).await.unwrap();
        assert!(next.fence().get() > fence);
        wait_for_renewal(&next, TTL).await;
        assert!(matches!(next.release().await.unwrap(), Released::Released));
        assert_eq!(net.claims(), 0);
    }
}

/// P5 (B76): waiters that give up during a cut are out of the line when it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_give_up_during_a_cut() {
    let net = Net::start().await;
    net.way.give_up_during_a_cut().await;
    eventually("nothing is left", TTL * 3, async || net.claims() == 0).await;
}

/// P1, P5, P7: replies are lost just after a hand-over, while the claim's node moves from the session
/// of those who wait to that of its leases: whether it has is found out. Nobody else gets in, and
/// nothing is left.
/// The user sees: nothing, or a loss that is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_lost_during_a_hand_over() {
    let net = Net::start().await;
    for late in [0, 1, 2, 5, 20].map(Duration::from_millis) {
        let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
        let waiter = queue_for(&net.way.far, NAME, ttl(TTL).wait(TIME_MAX)).await;
        guard.release().await.unwrap();
        let next = bounded(waiter).await.unwrap();
        tokio::time::sleep(late).await;
        net.way.proxy.set_open(Link::SwallowReplies);
        let seen = next.deadline();
        eventually("it is renewed or lost", TTL * 2, async || {
            next.check().is_err() || next.deadline().since(seen) > Duration::ZERO
        })
        .await;
        if next.check().is_ok() {
            refusal(&net.way.near, NAME).await;
        }
        let after = hold_after(&net, next).await;
        assert!(after.check().is_ok());
        after.release().await.unwrap();
        eventually("nothing is left", TTL * 3, async || net.claims() == 0).await;
    }
}

/// P1, P3, P5: everything is silent from just after a hand-over until the sessions are over. The
/// holder is told before the next gets in, and nothing is left.
/// The user sees: the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_during_a_hand_over() {
    let net = Net::start().await;
    for late in [0, 1, 5].map(Duration::from_millis) {
        let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
        let waiter = queue_for(&net.way.far, NAME, ttl(TTL).wait(TIME_MAX)).await;
        guard.release().await.unwrap();
        let lost = bounded(waiter).await.unwrap();
        tokio::time::sleep(late).await;
        net.way.proxy.set(Link::HalfOpen);
        let next = hold(&net.way.near, NAME, ttl(TTL).wait(TIME_MAX)).await;
        assert!(lost.check().is_err(), "held twice: {:?}", lost.status());
        assert!(next.fence().get() > lost.fence().get());
        net.way.proxy.reset_open();
        net.way.proxy.set(Link::Pass);
        let released = lost.release().await.unwrap();
        assert!(matches!(released, Released::AlreadyLost(_)), "{released:?}");
        assert!(next.check().is_ok(), "{:?}", next.status());
        next.release().await.unwrap();
        eventually("nothing is left", TTL * 3, async || net.claims() == 0).await;
    }
}

/// Gives a lock back that may be lost, and takes it by the other way.
async fn hold_after(net: &Net, guard: Guard) -> Guard {
    let fence = guard.fence().get();
    guard.release().await.unwrap();
    let after = hold(&net.way.near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    assert!(after.fence().get() > fence);
    after
}

/// P5, P7: the connection is lost while the node is created and nobody hears of it: the node is found
/// again by its name, so there is no second one, and nothing is left after the release.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    let net = Net::start().await;
    stories::lose_replies(&net.server, &net.way).await;
}

/// B137: P7, P10. The same for several of one process who ask for permits: each finds its node again, and
/// has its permit beside the others.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_to_those_who_ask_for_permits() {
    const PERMITS: u32 = 8;
    let net = Net::start().await;
    let semaphore = net.way.far.semaphore(NAME, PERMITS).unwrap().with_options(ttl(TTL * 3));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    net.way.proxy.set_open(Link::SwallowReplies);
    let acquiring: Vec<_> = (0..PERMITS)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { bounded(semaphore.acquire()).await.unwrap() })
        })
        .collect();
    let mut held = Vec::new();
    for acquired in acquiring {
        held.push(acquired.await.unwrap());
    }
    assert_eq!(net.claims(), held.len());
    for guard in held {
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    assert_eq!(net.claims(), 0);
}

/// P5: an acquisition that is given up while its reply is lost leaves no node behind, although its
/// session lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_of_somebody_who_gave_up() {
    let net = Net::start().await;
    let kept = hold(&net.way.far, "kept", ttl(TTL)).await;
    hold(&net.way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    net.way.proxy.set_open(Link::SwallowReplies);
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(ttl(TTL));
    let taking = tokio::spawn(async move { mutex.acquire().await });
    eventually("the node is created", TTL * 3, async || net.claims() == 1).await;
    taking.abort();
    eventually("it is undone", TTL * 3, async || net.claims() == 0).await;
    assert!(kept.check().is_ok(), "{:?}", kept.status());
    hold(&net.way.near, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// P5, P7: an acquisition that arrives after its release does not take effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request() {
    let net = Net::start().await;
    hold(&net.way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    let before = net.way.proxy.accepted();
    // The connections of now only: whatever is sent over them is delivered much later.
    net.way.proxy.set_open(Link::HoldRequests);
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(ttl(TTL).retries(0));
    let taking = tokio::time::timeout(Duration::from_millis(300), mutex.acquire());
    assert!(taking.await.is_err(), "it was granted over a held link");
    // The engine undoes it over a new connection.
    eventually("a new connection", TTL * 4, async || net.way.proxy.accepted() > before).await;
    // Asked after the release, so answered after it.
    eventually("it is undone", TTL * 4, async || net.way.far.inspect(mutex.name()).await.is_ok())
        .await;
    let ended = net.way.proxy.ended();
    net.way.proxy.set_open(Link::Pass);
    // The server has done with what was late when it has closed that connection.
    eventually("what was late has arrived", TTL * 4, async || net.way.proxy.ended() > ended).await;
    assert_eq!(net.claims(), 0);
    let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
    assert!(guard.check().is_ok());
}

/// P6, P7: a release whose reply was lost is repeated and finds nothing: that is no loss, because the
/// first may have been made.
/// The user sees: `Released` or `Unknown`, and the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_release_is_lost() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL * 3)).await;
    net.way.proxy.set_open(Link::SwallowReplies);
    let releasing = tokio::spawn(guard.release());
    eventually("it is released", TTL * 3, async || net.claims() == 0).await;
    net.way.proxy.set_open(Link::Close);
    let released = bounded(releasing).await.unwrap().unwrap();
    assert!(!matches!(released, Released::AlreadyLost(_)), "{released:?}");
    hold(&net.way.near, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// P7, P8: a lock is taken away, and the reply is lost: whoever has it next keeps it.
/// The operator sees: `Unreachable`, and that it may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_revocation_is_lost() {
    stories::lose_the_reply_to_a_revocation(&Net::start().await.way).await;
}

/// P1: a link that stalls for less than the ttl costs nothing, and nothing that was sent is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
    for _ in 0..2 {
        net.way.proxy.set(Link::Stall);
        tokio::time::sleep(TTL / 3).await;
        refusal(&net.way.near, NAME).await;
        net.way.proxy.set(Link::Pass);
        wait_for_renewal(&guard, TTL).await;
    }
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(net.claims(), 0);
}

/// B118: P10. A process that had many locks dies, and another is granted all of them at once, over a way
/// that takes its time: all move to the session of their leases side by side, and none is lost.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_handed_over_at_once() {
    const LOCKS: usize = 250;
    let net = Net::start().await;
    let names: Vec<String> = (0..LOCKS).map(|number| format!("many-{number}")).collect();
    // All its nodes go in one step, when its session ends.
    let mut dying = net.server.session();
    let mut waiters = Vec::new();
    for name in &names {
        dying.create(&format!("/{name}"), b"");
        let claim = format!("/{name}/lock-");
        dying.try_create(&claim, b"", Kind::EphemeralSequential, &[]).unwrap();
        let (locker, name) = (net.way.far.clone(), name.clone());
        waiters
            .push(tokio::spawn(async move { hold(&locker, &name, ttl(TTL).wait(TIME_MAX)).await }));
    }
    let mut session = net.server.session();
    let mut has_waiter = |name: &String| session.children(&format!("/{name}")).len() == 2;
    eventually("all wait", TIME_MAX, async || names.iter().all(&mut has_waiter)).await;
    net.way.proxy.set(Link::Delay(Duration::from_millis(20)));
    drop(dying);
    let mut held = Vec::new();
    for waiter in waiters {
        held.push(bounded(waiter).await.unwrap());
    }
    for guard in &held {
        bounded(guard.full()).await.unwrap();
    }
    assert!(held.iter().all(|guard| guard.check().is_ok()));
}

/// B119: P10, P11. Those who ask a server that does not serve are all told at the same time, and not one
/// after the other.
/// The user sees: `Unreachable` after `request_timeout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_told_that_nobody_serves() {
    const ASKERS: u32 = 12;
    const REQUEST: Duration = Duration::from_secs(1);
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let locker = connect(&format!("{}?request_timeout=1s", url_at(proxy.address()))).await;
    proxy.set(Link::HalfOpen);
    let machine = Lateness::watch();
    let start = Moment::now();
    let options = ttl(TTL).wait(TIME_MAX).retries(0);
    let asking: Vec<_> = (0..ASKERS)
        .map(|_| {
            let mutex = locker.mutex(NAME).unwrap().with_options(options.clone());
            tokio::spawn(async move { mutex.acquire().await.unwrap_err() })
        })
        .collect();
    for asked in asking {
        check_error(&bounded(asked).await.unwrap(), ErrorKind::Unreachable, &["answer"]);
    }
    machine.check("to tell all", REQUEST * (ASKERS / 3), start, Moment::now());
}
