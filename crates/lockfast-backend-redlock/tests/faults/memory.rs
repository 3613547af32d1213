//! Nodes that restart empty. A minority that forgets is noticed; what it means for a lease is the
//! option `on_restart`.

use std::time::Duration;

use lockfast::{LossCause, Released};

use crate::kit::{
    Link, Nodes, Ways, bounded, connect, eventually, hold, hold_detached, hold_on_all, loss,
    refusal, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(8);

/// P1, P8: a lease goes on without a node that has forgotten it, and is not silently locked there
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_forgets() {
    let mut nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    nodes.0[1].restart_empty();
    for _ in 0..2 {
        let seen = guard.deadline();
        eventually("a renewal", SLACK, async || guard.deadline().since(seen) > Duration::ZERO)
            .await;
    }
    assert_eq!(nodes.count_key(NAME), 2);
    refusal(&locker, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// With `on_restart=relock` the node has the lease again, with the same holder and fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_forgets_and_is_told_again() {
    let mut nodes = Nodes::start(3);
    let locker = connect(&nodes.url_with("&on_restart=relock")).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    let value = nodes.0[1].cli(&["GET", NAME]);
    nodes.0[1].restart_empty();
    eventually("locked again", SLACK, async || nodes.0[1].cli(&["GET", NAME]) == value).await;
    assert!(value.ends_with(&format!(".{}", guard.fence())), "{value}");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    eventually("released everywhere", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// B85: also when the node that has forgotten it answers each renewal before the others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgets_and_answers_first_is_told_again() {
    let mut nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("&on_restart=relock")).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    let value = nodes.0[1].cli(&["GET", NAME]);
    for way in [&ways.0[0], &ways.0[2]] {
        way.set(Link::Delay(Duration::from_millis(40)));
    }
    nodes.0[1].restart_empty();
    eventually("locked again", SLACK, async || nodes.0[1].cli(&["GET", NAME]) == value).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P3: when a majority has forgotten the lease it is lost, and not locked again by any option.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_forgets() {
    for options in ["", "&on_restart=relock"] {
        let mut nodes = Nodes::start(3);
        let locker = connect(&nodes.url_with(options)).await;
        let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
        nodes.0[1].restart_empty();
        nodes.0[2].restart_empty();
        let cause = loss(&guard, SLACK).await;
        let is_told = matches!(cause, LossCause::DataLost | LossCause::Expired { .. });
        assert!(is_told, "{cause:?}");
        assert!(nodes.count_key(NAME) <= 1, "it was created again");
    }
}

/// P4: fences rise although every node has forgotten everything, by the clients' clocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_over_the_loss_of_all_data() {
    let mut nodes = Nodes::start(3);
    let mut last = 0;
    for _ in 0..2 {
        let locker = connect(&nodes.url()).await;
        let lease = hold_detached(&locker, NAME, Duration::from_secs(60)).await;
        assert!(lease.fence.get() > last);
        last = lease.fence.get();
        drop(locker);
        nodes.0.iter_mut().for_each(|node| node.restart_empty());
    }
    let locker = connect(&nodes.url()).await;
    assert!(hold(&locker, NAME, ttl(TTL)).await.fence().get() > last);
}

/// B148: for as long as the others have it, also when the lease was extended since it was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_forgets_what_was_extended() {
    const LONG: Duration = Duration::from_secs(30);
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url_with("&on_restart=relock")).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    bounded(guard.extend(LONG)).await.unwrap();
    nodes.0[1].cli(&["FLUSHALL"]);
    bounded(guard.extend(LONG)).await.unwrap();
    eventually("locked again", SLACK, async || nodes.count_key(NAME) == 3).await;
    let left_ms: u64 = nodes.0[1].cli(&["PTTL", NAME]).parse().unwrap();
    assert!(left_ms > 2 * TTL.as_millis() as u64, "{left_ms} ms");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}
