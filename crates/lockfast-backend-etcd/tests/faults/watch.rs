//! What the server would have told is lost: it was compacted, or the stream was cut.

use std::sync::Arc;
use std::time::Duration;

use lockfast::Released;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::sieve::Sieve;
use crate::kit::{
    Etcd, Home, TIME_MAX, bounded, connect, eventually, hold, loss, queue_for, start_cluster, ttl,
    url_at, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(20);

/// Forgets everything that happened so far.
fn compact(server: &Etcd) {
    server.ctl(&["put", "filler", "1"]);
    let said = server.ctl(&["get", "filler", "--write-out=fields"]);
    let line = said.lines().find(|line| line.starts_with("\"Revision\""));
    let revision = line.and_then(|line| line.rsplit(' ').next()).unwrap();
    server.ctl(&["compact", revision]);
}

/// P10: a waiter is cut off while the lock becomes free, and what happened meanwhile is compacted: it
/// gets in nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_compacted_while_a_waiter_is_cut_off() {
    events_are_compacted_while_a_waiter_is_cut_off_at(Home::alone()).await;
}

async fn events_are_compacted_while_a_waiter_is_cut_off_at(server: Home) {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let near = connect(&server.url()).await;
    let far = connect(&url_at(proxy.address())).await;
    let guard = hold(&near, NAME, ttl(TTL)).await;
    let waiter = queue_for(&far, NAME, ttl(TTL).wait(TIME_MAX)).await;
    proxy.set(Link::Close);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    compact(&server);
    proxy.set(Link::Pass);
    let next = bounded(waiter).await.unwrap();
    assert!(next.check().is_ok());
}

/// P3: a holder's key is deleted while it is cut off, and that is compacted: it learns of it as soon as
/// it is connected, not at its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_compacted_while_the_holder_is_cut_off() {
    a_deletion_is_compacted_while_the_holder_is_cut_off_at(Home::alone()).await;
}

async fn a_deletion_is_compacted_while_the_holder_is_cut_off_at(server: Home) {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = connect(&url_at(proxy.address())).await;
    let guard = hold(&far, NAME, ttl(TTL * 3)).await;
    proxy.set(Link::Close);
    server.ctl(&["del", "--prefix", "--", &format!("{NAME}/")]);
    compact(&server);
    proxy.set(Link::Pass);
    let cause = loss(&guard, TTL * 2).await;
    assert!(!matches!(cause, lockfast::LossCause::Expired { .. }), "{cause:?}");
}

/// P10: compaction under those who are connected disturbs nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_compacted_all_the_time() {
    events_are_compacted_all_the_time_at(Home::alone()).await;
}

async fn events_are_compacted_all_the_time_at(server: Home) {
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut guard = hold(&first, NAME, ttl(TTL)).await;
    for round in 0..10 {
        let locker = if round % 2 == 0 { &second } else { &first };
        let waiter = queue_for(locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
        compact(&server);
        let fence = guard.fence().get();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        compact(&server);
        guard = bounded(waiter).await.unwrap();
        assert!(guard.fence().get() > fence);
    }
}

/// B107, P3, P8: the server does not tell that a holder's key was deleted, as some versions do: the next
/// renewal finds it.
/// The user sees: the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_lock_is_not_told() {
    the_end_of_a_lock_is_not_told_at(Home::alone()).await;
}

async fn the_end_of_a_lock_is_not_told_at(server: Home) {
    let sieve = Sieve::start(server.address()).await;
    let far = connect(&url_at(sieve.address)).await;
    let guard = hold(&far, NAME, ttl(TTL / 2)).await;
    // By then its key is watched.
    wait_for_renewal(&guard, TTL).await;
    let keys = server.keys(&format!("{NAME}/"));
    sieve.lose(&keys[0]);
    server.ctl(&["del", "--", &keys[0]]);
    eventually("the news of it is lost", TTL, async || sieve.has_lost()).await;
    loss(&guard, TTL / 2).await;
}

/// B106, P10: the server does not tell that the holder is gone, while the line changes all the time: those
/// behind it get in all the same.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_not_told_while_the_line_is_busy() {
    a_release_is_not_told_while_the_line_is_busy_at(Home::alone()).await;
}

async fn a_release_is_not_told_while_the_line_is_busy_at(server: Home) {
    let sieve = Sieve::start(server.address()).await;
    let (near, far) = (connect(&server.url()).await, connect(&url_at(sieve.address)).await);
    let guard = hold(&near, NAME, ttl(TTL)).await;
    let key = server.keys(&format!("{NAME}/")).remove(0);
    let waiter = queue_for(&far, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let crowd = tokio::spawn(async move {
        // Something happens to the line much more often than it would be looked at for silence.
        loop {
            let lock = near.mutex(NAME).unwrap().with_options(ttl(TTL).wait(TTL / 40));
            drop(lock.acquire().await);
        }
    });
    sieve.lose(&key);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = tokio::time::timeout(TTL, waiter).await.expect("it waits for ever").unwrap();
    crowd.abort();
    assert!(sieve.has_lost() && next.check().is_ok());
}

/// B132, B200, P1: the server does not tell that somebody stands in line: whoever comes behind it does not
/// have the lock beside it, not even for a moment, when those in front are gone.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_not_told_to_those_behind_it() {
    a_claim_is_not_told_to_those_behind_it_at(Home::alone()).await;
}

async fn a_claim_is_not_told_to_those_behind_it_at(server: Home) {
    let sieve = Sieve::start(server.address()).await;
    let (near, far) = (connect(&server.url()).await, connect(&url_at(sieve.address)).await);
    let keys = || server.keys(&format!("{NAME}/"));
    let wait = || ttl(TTL).wait(TIME_MAX);
    let guard = hold(&near, NAME, ttl(TTL)).await;
    // Both watch the line from then on.
    let mut early = vec![queue_for(&far, NAME, wait()).await, queue_for(&near, NAME, wait()).await];
    let known = keys();
    early.push(queue_for(&near, NAME, wait()).await);
    // The claims of a process that watches the line hang on one lease, and are written once.
    let key = keys().into_iter().find(|key| !known.contains(key)).unwrap();
    sieve.lose(key.split_once('-').unwrap().0);
    let ahead = queue_for(&near, NAME, wait()).await;
    eventually("the news of it is lost", TTL, async || sieve.has_lost()).await;
    let behind = queue_for(&far, NAME, wait()).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    for waiter in early {
        bounded(bounded(waiter).await.unwrap().release()).await.unwrap();
    }
    let first = bounded(ahead).await.unwrap();
    // The news that it has its turn, as far as it was told, is there by then.
    tokio::time::sleep(TTL / 10).await;
    assert!(!behind.is_finished(), "two had it");
    assert!(first.check().is_ok());
    bounded(first.release()).await.unwrap();
    assert!(bounded(behind).await.unwrap().check().is_ok());
}

/// The same on three members, over a way to one that does not lead: what it tells comes later than what
/// the leader tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let cluster = Arc::new(start_cluster());
    events_are_compacted_while_a_waiter_is_cut_off_at(Home::member(&cluster).await).await;
    a_deletion_is_compacted_while_the_holder_is_cut_off_at(Home::member(&cluster).await).await;
    events_are_compacted_all_the_time_at(Home::member(&cluster).await).await;
    the_end_of_a_lock_is_not_told_at(Home::member(&cluster).await).await;
    a_release_is_not_told_while_the_line_is_busy_at(Home::member(&cluster).await).await;
    a_claim_is_not_told_to_those_behind_it_at(Home::member(&cluster).await).await;
}
