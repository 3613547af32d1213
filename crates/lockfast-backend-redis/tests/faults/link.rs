//! The way to the server fails, or the server does not answer.

use std::time::Duration;

use lockfast::{Attempt, ErrorKind, Guard, LockName, LossCause, Mode, Moment, Options, Released};
use lockfast_conformance::way::{NAME, SLACK, Succession, TOLD_MAX, TTL, Way};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::Link;
use lockfast_faults::server::Server as _;

use crate::kit::{
    Redis, bounded, check_error, eventually, failure, hold, loss, queue_for, refusal, ttl,
    wait_for_jeopardy, wait_for_renewal,
};

/// A server, and a way to it that fails.
struct Net {
    redis: Redis,
    way: Way,
}

impl Net {
    async fn start() -> Self {
        let redis = Redis::start();
        let url_at = |address| redis.url_at(address);
        let way = Way::start(redis.address(), url_at, lockfast_backend_redis::connect).await;
        Self { redis, way }
    }

    fn value(&self) -> String {
        self.redis.cli(&["GET", NAME])
    }

    async fn wait_until_free(&self, bound: Duration) {
        eventually("the key is gone", bound, async || self.value().is_empty()).await;
    }

    /// How many scripts the server has run.
    fn scripts_run(&self) -> u64 {
        self.count_scripts(":calls=")
    }

    /// How many of them have ended with a complaint.
    fn scripts_refused(&self) -> u64 {
        self.count_scripts(",failed_calls=")
    }

    fn count_scripts(&self, which: &str) -> u64 {
        let stats = self.redis.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| {
            let rest = line.strip_prefix("cmdstat_eval")?.split_once(which)?.1;
            rest.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }
}

/// A long lease for which nobody waits long.
fn impatient() -> Options {
    ttl(Duration::from_secs(60)).request_timeout(Duration::from_millis(500)).retries(0)
}

/// P1, P3: a cut that ends in time costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        net.way.outlive(cut).await;
        assert_eq!(net.value(), "");
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that
/// the next gets in, within a second.
/// The user sees: the loss `Expired` with what the renewals met; the release is `AlreadyLost`,
/// and a new try is `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let Succession { lost, next } = net.way.lose().await;
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    check_error(&failure(&net.way.far, NAME, ttl(TTL)).await, ErrorKind::Unreachable, &[]);
    assert!(next.check().is_ok());
}

/// P3: connections that are open at both ends but carry nothing are given up in time, and the
/// lease goes on over a new one.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    net.way.outlive_silence().await;
    assert_eq!(net.value(), "");
}

/// P10: a waiter whose connections went half-open does not hear its grant; it still gets in, on
/// new connections, before anybody gives up.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_while_waiting() {
    let took = Net::start().await.way.wait_in_silence().await;
    // The poll of 5 to 6 s, then the time in which a request must be answered, twice.
    assert!(took < Duration::from_secs(13), "{took:?}");
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

/// P10: an operator ends the connections of a waiter, and the message that it has the lock is
/// lost. It gets in by the slow poll at the latest.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_kill_while_waiting() {
    for kind in ["normal", "pubsub"] {
        let net = Net::start().await;
        let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
        let waiter = queue_for(&net.way.far, NAME, ttl(TTL).wait(Duration::from_secs(25))).await;
        net.redis.cli(&["CLIENT", "KILL", "TYPE", kind]);
        let start = Moment::now();
        // The holder's own connections were ended too: then the keeper goes on releasing.
        let released = guard.release().await.unwrap();
        assert!(!matches!(released, Released::StillHeld), "{released:?}");
        let next = bounded(waiter).await.unwrap();
        let took = Moment::now().since(start);
        assert!(took < Duration::from_secs(8), "{kind}: {took:?}");
        assert!(matches!(next.release().await.unwrap(), Released::Released));
    }
}

/// P1, P3: a link that stalls for less than the ttl and then delivers everything costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_link() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL * 2)).await;
    net.way.proxy.set(Link::Stall);
    wait_for_jeopardy(&guard, TTL * 2).await;
    net.way.proxy.set(Link::Pass);
    wait_for_renewal(&guard, TTL * 2).await;
    refusal(&net.way.near, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P7: the server grants and its reply is lost. The same request on a new connection answers the
/// same grant: one key, one fence, and no waiting for oneself.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_of_an_acquisition_is_lost() {
    let net = Net::start().await;
    net.way.proxy.set_open(Link::SwallowReplies);
    let acquiring = tokio::spawn({
        let far = net.way.far.clone();
        async move { hold(&far, NAME, ttl(TTL * 2)).await }
    });
    eventually("the server grants", TTL, async || !net.value().is_empty()).await;
    let granted = net.value();
    let guard = bounded(acquiring).await.unwrap();
    assert_eq!(net.value(), granted);
    assert!(granted.ends_with(&format!(".{}", guard.fence())), "{granted}");
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(net.value(), "");
}

/// P5: the server grants, its reply is lost, and the caller gives up: the grant is undone as soon
/// as the server can be reached, long before its ttl.
/// The user sees: `Unreachable`, how long there was no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_grant_is_undone() {
    let net = Net::start().await;
    net.way.proxy.set(Link::SwallowReplies);
    let error = failure(&net.way.far, NAME, impatient()).await;
    check_error(&error, ErrorKind::Unreachable, &["no answer"]);
    assert_ne!(net.redis.cli(&["GET", "lockfast:fence"]), "", "nothing was granted");
    net.way.proxy.set(Link::Pass);
    net.wait_until_free(Duration::from_secs(10)).await;
    let next = hold(&net.way.near, NAME, ttl(TTL)).await;
    assert!(next.check().is_ok());
}

/// P6, P7: the server lets go and its reply is lost: the lock is free, and a second release on a
/// new connection changes nothing.
/// The user sees: `Released`, or `Unknown` with the time after which it is free at the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_of_a_release_is_lost() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
    net.way.proxy.set_open(Link::SwallowReplies);
    let released = bounded(guard.release()).await.unwrap();
    match released {
        Released::Unknown { expires_in, ref error } => {
            check_error(error, ErrorKind::Unreachable, &[]);
            assert!(expires_in <= TTL);
        }
        Released::Released | Released::AlreadyLost(_) => {}
        other => panic!("{other:?}"),
    }
    let next = hold(&net.way.near, NAME, ttl(TTL).wait(TTL)).await;
    net.way.proxy.set(Link::Pass);
    // The keeper goes on releasing for the first; that must not hurt the second.
    wait_for_renewal(&next, TTL).await;
}

/// P7, P15: the server makes a reader of a writer, and its reply is lost. The reader that waits is in
/// before the writer hears of it, and asking again on a new connection changes nothing.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_of_a_downgrade_is_lost() {
    let net = Net::start().await;
    let options = ttl(TTL * 10).wait_forever().retries(20);
    let lock = net.way.far.rwlock(NAME).unwrap().with_options(options.clone());
    let other = net.way.near.rwlock(NAME).unwrap().with_options(options);
    let guard = bounded(lock.write()).await.unwrap();
    let fence = guard.fence();
    let reader = tokio::spawn(async move { other.read().await });
    let queue = format!("lockfast:{{{NAME}}}:queue");
    eventually("a reader waits", TTL, async || net.redis.cli(&["ZCARD", &queue]) == "1").await;
    let accepted = net.way.proxy.accepted();
    net.way.proxy.set_open(Link::SwallowReplies);
    let (downgraded, reader) = tokio::join!(bounded(lock.downgrade(&guard)), async {
        let reader = bounded(reader).await.unwrap().unwrap();
        assert_eq!(net.way.proxy.accepted(), accepted, "the reader came in by the first request");
        reader
    });
    downgraded.unwrap();
    assert!(net.way.proxy.accepted() > accepted, "it was answered although replies were lost");
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let shared = net.redis.cli(&["HVALS", &format!("lockfast:{{{NAME}}}:shared")]);
    for fence in [fence, reader.fence()] {
        assert!(shared.lines().any(|it| it.ends_with(&format!(".{fence}"))), "{shared}");
    }
    for guard in [guard, reader] {
        assert!(guard.check().is_ok());
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    assert_eq!(net.value(), "");
}

/// P5, P15: a downgrade that is held up on its way arrives when its connection was given up. It does
/// nothing.
/// The user sees: `Unreachable`; asking again makes a reader of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_comes_too_late() {
    let net = Net::start().await;
    let (name, proxy) = (LockName::new(NAME).unwrap(), &net.way.proxy);
    let lock = net.way.far.rwlock(NAME).unwrap().with_options(impatient());
    let guard = bounded(lock.write()).await.unwrap();
    let (held, accepted) = (net.value(), proxy.accepted());
    proxy.set_open(Link::HoldRequests);
    let error = bounded(lock.downgrade(&guard)).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &[]);
    eventually("an answer by a new connection", Duration::from_secs(15), async || {
        net.way.far.inspect(&name).await.is_ok() && proxy.accepted() > accepted
    })
    .await;
    let refused = net.scripts_refused();
    proxy.set_open(Link::Pass);
    eventually("it is refused", TTL * 2, async || net.scripts_refused() > refused).await;
    assert_eq!(net.value(), held);
    bounded(lock.downgrade(&guard)).await.unwrap();
    assert_eq!(net.value(), "lockfast:shared");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P5: an acquisition that is held up on its way arrives after its caller gave up and released on
/// another connection. It must not take effect.
/// The user sees: `Unreachable`; the lock stays free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_arrives_after_its_release() {
    let net = Net::start().await;
    net.way.proxy.set_open(Link::HoldRequests);
    let connections = net.way.proxy.accepted();
    let error = failure(&net.way.far, NAME, impatient()).await;
    check_error(&error, ErrorKind::Unreachable, &[]);
    let before = net.scripts_run();
    eventually("the release came another way", Duration::from_secs(15), async || {
        net.way.proxy.accepted() > connections && net.scripts_run() > before
    })
    .await;
    let before = net.scripts_run();
    net.way.proxy.set_open(Link::Pass);
    eventually("the late request arrived", Duration::from_secs(5), async || {
        net.scripts_run() > before
    })
    .await;
    net.wait_until_free(Duration::from_secs(2)).await;
    let next = hold(&net.way.near, NAME, ttl(TTL)).await;
    wait_for_renewal(&next, TTL).await;
}

/// P2, P5: a server that answers only after the lease would have ended grants nothing that is
/// used: there is no guard past its deadline, and the late grant is undone.
/// The user sees: `Unreachable` or `TooLate`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_pause() {
    let net = Net::start().await;
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(ttl(Duration::from_secs(1)));
    net.redis.cli(&["CLIENT", "PAUSE", "2500", "WRITE"]);
    match bounded(mutex.try_acquire()).await {
        Err(error) => {
            let expected = [ErrorKind::Unreachable, ErrorKind::TooLate];
            assert!(expected.contains(&error.kind()), "{error:?}");
        }
        Ok(Attempt::Acquired(guard)) => panic!("granted while it slept: {guard:?}"),
        Ok(Attempt::Taken(refusal)) => panic!("taken: {refusal}"),
    }
    net.redis.cli(&["CLIENT", "UNPAUSE"]);
    let next = hold(&net.way.near, NAME, ttl(TTL).wait(Duration::from_secs(5))).await;
    wait_for_renewal(&next, TTL).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    assert_eq!(net.value(), "");
}

/// P2: whatever the way does to requests and replies, the holder never believes in its lease for
/// longer than the server keeps it.
/// The user sees: a guard that is good, or `TooLate` or `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_is_before_the_end_in_the_server() {
    let net = Net::start().await;
    let check = |guard: &Guard| {
        let (asked, remaining) = (Moment::now(), guard.remaining());
        let kept: i64 = net.redis.cli(&["PTTL", NAME]).parse().unwrap();
        // Both shrink alike, and a renewal in between would only have made the server's longer;
        // what redis-cli took is added, as the server answered before now.
        let believed = remaining.saturating_sub(Moment::now().since(asked));
        let kept = Duration::from_millis(kept.try_into().unwrap_or(0));
        assert!(believed <= kept, "believes in {believed:?}, the server keeps it for {kept:?}");
    };
    for delay in [0, 50, 150] {
        net.way.proxy.set(Link::Delay(Duration::from_millis(delay)));
        let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
        check(&guard);
        for _ in 0..2 {
            wait_for_renewal(&guard, TTL).await;
            check(&guard);
        }
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    // A request that was answered only after its lease would have ended.
    net.way.proxy.set(Link::Pass);
    net.redis.cli(&["CLIENT", "PAUSE", "2000", "WRITE"]);
    let options = ttl(Duration::from_secs(1)).wait(Duration::from_secs(8)).retries(0);
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(options);
    match bounded(mutex.acquire()).await {
        Ok(guard) => check(&guard),
        Err(error) => {
            let expected = [ErrorKind::TooLate, ErrorKind::Unreachable];
            assert!(expected.contains(&error.kind()), "{error:?}");
        }
    }
    net.wait_until_free(Duration::from_secs(3)).await;
}

/// P1, P3: a lease outlives a pause of the server that is shorter than it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_a_short_client_pause() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL * 2)).await;
    net.redis.cli(&["CLIENT", "PAUSE", "2500", "ALL"]);
    wait_for_renewal(&guard, TTL * 2).await;
    wait_for_renewal(&guard, TTL * 2).await;
    refusal(&net.way.near, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P3, P9: a server that is stopped beyond the ttl: the holder is told by its own clock. When the
/// server goes on, it may find a renewal that was sent in time; after that lease the lock is free.
/// The user sees: the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped() {
    let net = Net::start().await;
    let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
    net.redis.pause();
    let machine = Lateness::watch();
    let cause = loss(&guard, TTL * 3).await;
    machine.check("to tell the loss", TOLD_MAX, guard.deadline(), Moment::now());
    assert!(matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    net.redis.resume();
    let next = hold(&net.way.near, NAME, ttl(TTL).wait(TTL + SLACK * 2)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    wait_for_renewal(&next, TTL).await;
}

/// B144, P5: a batch that tells the server who we are, and that arrives when there is a new
/// connection, does not let the old one speak for us again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enrolment_that_comes_too_late() {
    const WAY: Duration = Duration::from_millis(300);
    let net = Net::start().await;
    let (redis, proxy) = (&net.redis, &net.way.proxy);
    let client = {
        let guard = hold(&net.way.far, NAME, ttl(TTL)).await;
        let client = net.value()[..8].to_owned();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        format!("lockfast:client:{client}")
    };
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries <= 20, "it arrived in time each time");
        redis.cli(&["DEL", &client]);
        let (accepted, refused) = (proxy.accepted(), net.scripts_refused());
        proxy.set_open(Link::Delay(WAY));
        let asking = tokio::spawn({
            let far = net.way.far.clone();
            async move { hold(&far, NAME, ttl(TTL * 10).retries(20)).await }
        });
        eventually("it knows nobody", TTL, async || net.scripts_refused() > refused).await;
        // Before the answer is there, so that what follows it is held up.
        proxy.set_open(Link::HoldRequests);
        let is_held = net.value().is_empty() && redis.cli(&["EXISTS", &client]) == "0";
        eventually("a new connection", TTL * 5, async || proxy.accepted() > accepted).await;
        let guard = bounded(asking).await.unwrap();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        if is_held {
            break;
        }
    }
    let known = redis.cli(&["GET", &client]);
    assert!(!known.is_empty());
    let refused = net.scripts_refused();
    proxy.set_open(Link::Pass);
    eventually("it is refused", TTL * 2, async || net.scripts_refused() > refused).await;
    assert_eq!(redis.cli(&["GET", &client]), known);
    assert_eq!(net.value(), "", "it was served");
}
