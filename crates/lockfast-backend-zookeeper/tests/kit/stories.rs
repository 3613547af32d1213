//! What happens on one server and on a member of an ensemble alike.

use std::time::Duration;

use lockfast::{ErrorKind, Guard, Locker, LossCause, Moment, Released, RevokeOutcome};
use lockfast_conformance::way::{NAME, TTL, Way};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};

use super::{
    TIME_MAX, ZooKeeper, bounded, claims, connect, eventually, hold, loss, queue_for, ttl, url_at,
    wait_for_renewal,
};

/// A way to a server that fails.
pub async fn way_to(server: &ZooKeeper) -> Way {
    Way::start(server.address(), url_at, lockfast_backend_zookeeper::connect).await
}

/// Nobody has the lock or waits for it within this, on a busy machine.
async fn check_free(server: &ZooKeeper, name: &str) {
    eventually("nothing is left", TTL * 3, async || claims(server, name).is_empty()).await;
}

/// P5, P7: the connection is lost while the node is created and nobody hears of it: the node is found
/// again by its name, so there is no second one, and nothing is left after the release.
pub async fn lose_replies(server: &ZooKeeper, way: &Way) {
    // The lock's own node is there already, so that the first request creates the claim's.
    hold(&way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    for _ in 0..3 {
        way.proxy.set_open(Link::SwallowReplies);
        let guard = hold(&way.far, NAME, ttl(TTL * 3)).await;
        assert_eq!(claims(server, NAME).len(), 1, "a second node");
        assert!(guard.check().is_ok());
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        assert!(claims(server, NAME).is_empty(), "an orphan");
    }
    way.repeat_a_lost_grant().await;
    assert!(claims(server, NAME).is_empty());
}

/// P6, P10: a waiter, too, finds out although nothing tells it: what the server told of the node that
/// it watches is lost. Its release does not need the connection that is silent still.
pub async fn lose_a_watch(server: &ZooKeeper, way: &Way) {
    // The session of its leases is there already, and becomes silent, too.
    hold(&way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    way.wait_in_silence().await;
    check_free(server, NAME).await;
}

/// P7, P8: a lock is taken away, and the reply is lost once the holder knows. Whoever has it next keeps
/// it.
pub async fn lose_the_reply_to_a_revocation(way: &Way) {
    // Later than the holder is told, but not as late as silence.
    const DELAY: Duration = Duration::from_millis(100);
    let guard = hold(&way.near, NAME, ttl(TTL)).await;
    let waiter = queue_for(&way.near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    way.far.revoke("another", "it hangs").await.unwrap();
    way.proxy.set(Link::Delay(DELAY));
    let far = way.far.clone();
    let revoking = tokio::spawn(async move { far.revoke(NAME, "it hangs").await });
    let cause = loss(&guard, TIME_MAX).await;
    assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
    way.proxy.set_open(Link::SwallowReplies);
    let next = bounded(waiter).await.unwrap();
    match bounded(revoking).await.unwrap() {
        Ok(RevokeOutcome::Revoked(holders)) => {
            let fences: Vec<_> = holders.iter().map(|holder| holder.fence).collect();
            assert_eq!(fences, [Some(guard.fence())], "taken from somebody else");
        }
        Ok(outcome) => panic!("{outcome:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
    }
    way.proxy.set(Link::Pass);
    wait_for_renewal(&next, TTL).await;
    // Who asks again by the fence that it meant hits nobody.
    let again = bounded(way.far.revoke_fence(NAME, guard.fence(), "it hangs")).await.unwrap();
    assert!(matches!(again, RevokeOutcome::OtherFence(_)), "{again:?}");
    wait_for_renewal(&next, TTL).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// P3, P5: the session expires while nobody can tell its holder. The holder knows by its deadline;
/// when it can connect again it has a new session, and its locks work as ever.
pub async fn expire_a_session(server: &ZooKeeper) {
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
    for name in [NAME, "other"] {
        check_free(server, name).await;
    }
}

async fn hold_many(locker: &Locker, many: usize, span: Duration) -> Vec<Guard> {
    const PARTS: usize = 100;
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..PARTS {
        let locker = locker.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in 0..many / PARTS {
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

/// P3: so many locks of one session are lost at once. All are told by their deadline, and the store
/// has none of them any more.
pub async fn lose_many(server: &ZooKeeper, many: usize) {
    const TTL: Duration = Duration::from_secs(9);
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = connect(&url_at(proxy.address())).await;
    let guards = hold_many(&far, many, TTL).await;
    assert_eq!(guards.len(), many);
    let ephemerals = || server.count("zk_ephemerals_count");
    assert_eq!(ephemerals(), many as u64);
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
