//! The way to the server fails, or the server does not answer.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Moment, Released, RevokeOutcome};
use lockfast_conformance::way::{Arrival, NAME, Succession, Way};
use lockfast_faults::proxy::Link;

use crate::kit::sieve::Sieve;
use crate::kit::{
    Home, TIME_MAX, bounded, connect, eventually, hold, queue_for, start_cluster, ttl, url_at,
};

/// Each answer has a sixth of it, which is to do for two round trips on a busy machine.
const TTL: Duration = Duration::from_secs(6);

/// A server, and a way to it that fails.
struct Net {
    server: Home,
    way: Way,
}

impl Net {
    async fn start() -> Self {
        Self::start_at(Home::alone()).await
    }

    async fn start_at(server: Home) -> Self {
        let way = Way::start(server.address(), url_at, lockfast_backend_etcd::connect).await;
        Self { server, way: Way { span: TTL, ..way } }
    }

    /// Who holds the lock or stands in line for it.
    fn claims(&self) -> Vec<String> {
        self.server.keys(&format!("{NAME}/"))
    }
}

/// P1, P3: a cut that ends in time costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        net.way.outlive(cut).await;
        assert_eq!(net.claims(), [""; 0]);
    }
}

/// P10 (B239): a cluster that takes long to grant the first lease is connected to, and used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_slow_at_first() {
    // More than half of the shortest lease, and less than a request may take.
    const SLOW: Duration = Duration::from_millis(1200);
    let server = Home::alone();
    let sieve = Sieve::start(server.address()).await;
    // A request for a second.
    let granted = sieve.keep_answer([8, 1, 16]);
    let url = url_at(sieve.address);
    let connecting = tokio::spawn(async move { connect(&url).await });
    eventually("a lease is asked for", TIME_MAX, async || granted.is_kept()).await;
    tokio::time::sleep(SLOW).await;
    granted.let_go().await;
    let locker = bounded(connecting).await.unwrap();
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// P9: a process that dies as soon as it stands in line, before it knows of it, hangs on a lease of its
/// ttl.
/// The user sees: two seconds at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_dies_as_it_comes_delays_nobody() {
    for arrival in Arrival::ALL {
        Net::start().await.way.pass_over_who_dies_as_it_comes(arrival).await;
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that
/// the next gets in, within a second.
/// The user sees: the loss `Expired` with what the renewals met; the release is `AlreadyLost`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let Succession { lost, next, .. } = net.way.lose().await;
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P3: connections that are open at both ends but carry nothing are given up in time, and the
/// lease goes on over a new one.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    net.way.outlive_silence().await;
    assert_eq!(net.claims(), [""; 0]);
}

/// P10: a waiter, too, finds out although nothing tells it.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_while_waiting() {
    Net::start().await.way.wait_in_silence().await;
}

/// P3: nothing that is sent is lost, but it comes later than a lease can bear: a new connection
/// overtakes it.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_link() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL * 2)).await;
    net.way.proxy.set_open(Link::Stall);
    crate::kit::wait_for_renewal(&guard, TTL * 2).await;
    net.way.proxy.set_open(Link::Pass);
    crate::kit::wait_for_renewal(&guard, TTL * 2).await;
    crate::kit::refusal(&net.way.near, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(net.claims(), [""; 0]);
}

/// P5: waiters give up while the store is out of reach, for longer than their ttl: they are out of the
/// line when it is there again.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_give_up_during_a_cut() {
    Net::start().await.way.give_up_during_a_cut().await;
}

/// P5, P7: an acquisition whose reply was lost is repeated and has the lock once; nothing is left
/// after its release.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    a_lost_reply_at(Home::alone()).await;
}

async fn a_lost_reply_at(server: Home) {
    let net = Net::start_at(server).await;
    net.way.repeat_a_lost_grant().await;
    assert_eq!(net.claims(), [""; 0]);
}

/// P5, P7: an acquisition that arrives after its release does not take effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request() {
    let net = Net::start().await;
    // What is made on first use is there.
    hold(&net.way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    let before = net.way.proxy.accepted();
    // The first connections only: whatever is sent over them is delivered much later.
    net.way.proxy.set_open(Link::HoldRequests);
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(ttl(TTL).retries(0));
    let taking = tokio::time::timeout(Duration::from_millis(300), mutex.acquire());
    assert!(taking.await.is_err(), "it was granted over a held link");
    // The engine undoes it over a new connection.
    eventually("a new connection", TTL * 5, async || net.way.proxy.accepted() > before).await;
    // Asked after the release, so answered after it.
    eventually("it is undone", TTL * 3, async || net.way.far.inspect(mutex.name()).await.is_ok())
        .await;
    let ended = net.way.proxy.ended();
    net.way.proxy.set_open(Link::Pass);
    // The server has done with what was late when it has closed that connection.
    eventually("what was late has arrived", TTL * 5, async || net.way.proxy.ended() > ended).await;
    assert_eq!(net.claims(), [""; 0], "what was late took effect");
    let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
    assert!(guard.check().is_ok());
}

/// P5, P7: the reply to a claim that has to wait is lost: it stands in line once, and gets its turn.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_waiter_is_lost() {
    the_reply_to_a_waiter_is_lost_at(Home::alone()).await;
}

async fn the_reply_to_a_waiter_is_lost_at(server: Home) {
    let net = Net::start_at(server).await;
    let guard = hold(&net.way.near, NAME, ttl(TTL * 4)).await;
    let before = net.way.proxy.accepted();
    net.way.proxy.set_open(Link::SwallowReplies);
    let far = net.way.far.clone();
    let options = ttl(TTL * 2).wait(TIME_MAX);
    let waiter = tokio::spawn(async move { hold(&far, NAME, options).await });
    // What was not answered is taken back over a new connection.
    eventually("a new connection", TTL * 5, async || net.way.proxy.accepted() > before).await;
    eventually("it stands in line", TTL * 3, async || net.claims().len() == 2).await;
    let fence = guard.fence().get();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
    crate::kit::wait_for_renewal(&next, TTL * 2).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    assert_eq!(net.claims(), [""; 0]);
}

/// P1, P5: a waiter hears of its turn, but what it sends to confirm it arrives much later: it keeps
/// the lock or is told of the loss in time, and whatever arrives later harms nobody.
/// The user sees: nothing, or a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_comes_late() {
    let net = Net::start().await;
    let guard = hold(&net.way.near, NAME, ttl(TTL * 4)).await;
    let waiter = queue_for(&net.way.far, NAME, ttl(TTL * 2).wait(TIME_MAX)).await;
    net.way.proxy.set_open(Link::HoldRequests);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let far = bounded(waiter).await.unwrap();
    let near = net.way.near.clone();
    let options = ttl(TTL).wait(TIME_MAX);
    let next = tokio::spawn(async move { (hold(&near, NAME, options).await, Moment::now()) });
    eventually("it is renewed or lost", TIME_MAX, async || far.check().is_err() || far.is_full())
        .await;
    net.way.proxy.set_open(Link::Pass);
    let deadline = far.deadline();
    if far.check().is_ok() {
        assert!(!next.is_finished(), "two hold it");
        crate::kit::wait_for_renewal(&far, TTL * 2).await;
        assert!(matches!(far.release().await.unwrap(), Released::Released));
        bounded(next).await.unwrap().0.release().await.unwrap();
    } else {
        let (next, granted) = bounded(next).await.unwrap();
        assert!(deadline.has_passed(granted), "granted while another believed in it");
        next.release().await.unwrap();
    }
    eventually("nothing is left", TTL * 3, async || net.claims().is_empty()).await;
}

/// P6, P7: a release whose reply was lost is repeated and finds nothing: that is no loss, because
/// the first may have been made.
/// The user sees: `Released` or `Unknown`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_release_is_lost() {
    the_reply_to_a_release_is_lost_at(Home::alone()).await;
}

async fn the_reply_to_a_release_is_lost_at(server: Home) {
    let net = Net::start_at(server).await;
    let guard = hold(&net.way.far, NAME, ttl(TTL * 8)).await;
    net.way.proxy.set_open(Link::SwallowReplies);
    let releasing = tokio::spawn(guard.release());
    eventually("it is released", TTL * 3, async || net.claims().is_empty()).await;
    net.way.proxy.set_open(Link::Close);
    let released = bounded(releasing).await.unwrap().unwrap();
    let is_told = matches!(released, Released::Released | Released::Unknown { .. });
    assert!(is_told, "{released:?}");
    hold(&net.way.near, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// B104, P7, P8: a lock is taken away over a connection on which no reply comes.
/// The user sees: who had it, and nobody else, loses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_revocation_is_lost() {
    Net::start().await.way.revoke_without_a_reply().await;
}

/// B104, P7, P8: the same for each of the two steps alone: the next has the lock already when the last one
/// is repeated, and keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_step_of_a_revocation_is_lost() {
    for is_last in [false, true] {
        the_reply_to_a_step_of_a_revocation_is_lost_at(Home::alone(), is_last).await;
    }
}

async fn the_reply_to_a_step_of_a_revocation_is_lost_at(server: Home, is_last: bool) {
    let sieve = Sieve::start(server.address()).await;
    let near = connect(&server.url()).await;
    let far = connect(&format!("{}?request_timeout=1s", url_at(sieve.address))).await;
    let guard = hold(&near, NAME, ttl(TTL * 4)).await;
    let key = server.keys(&format!("{NAME}/")).remove(0);
    let waiter = queue_for(&near, NAME, ttl(TTL * 4).wait(TIME_MAX)).await;
    let reply = match is_last {
        false => sieve.keep_answer("state=revoked"),
        true => sieve.keep_answer(deletion(&key)),
    };
    let RevokeOutcome::Revoked(whom) = bounded(far.revoke(NAME, "a drill")).await.unwrap() else {
        panic!("it was revoked")
    };
    assert!(reply.is_kept(), "no reply was lost");
    let fences: Vec<u64> = whom.iter().filter_map(|it| it.fence).map(|it| it.get()).collect();
    assert_eq!(fences, [guard.fence().get()]);
    let next = bounded(waiter).await.unwrap();
    assert!(guard.check().is_err());
    crate::kit::wait_for_renewal(&next, TTL * 4).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// What deletes a key: the field 3 of a step, in which the key is the field 1.
fn deletion(key: &str) -> Vec<u8> {
    let length = u8::try_from(key.len()).unwrap();
    [&[0x1a, length + 2, 0x0a, length], key.as_bytes()].concat()
}

/// P9: somebody hangs, with one or with many who wait: the next is delayed by 2 s at most.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_of_one_process_that_hangs() {
    for (count, has_seen) in [(1, true), (2, false), (6, true), (40, false), (40, true)] {
        Net::start().await.way.pass_over_who_hangs(count, has_seen).await;
    }
}

/// P5, P6, P7, P8: replies are lost between a client and a member that does not lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_a_member_are_lost() {
    let cluster = Arc::new(start_cluster());
    a_lost_reply_at(Home::member(&cluster).await).await;
    the_reply_to_a_waiter_is_lost_at(Home::member(&cluster).await).await;
    the_reply_to_a_release_is_lost_at(Home::member(&cluster).await).await;
    for is_last in [false, true] {
        let home = Home::member(&cluster).await;
        the_reply_to_a_step_of_a_revocation_is_lost_at(home, is_last).await;
    }
}
