//! Nodes that are killed, paused, cut off or late: a minority of them is not waited for, and
//! nothing of what they may have granted is left behind.

use std::time::Duration;

use lockfast::{ErrorKind, LeaseStatus, Moment, Released, Vote};

use crate::kit::{
    Link, Nodes, Ways, check_error, connect, eventually, failure, hold, hold_on_all, loss, refusal,
    ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(30);
const SLACK: Duration = Duration::from_secs(5);

/// P1, P8: with a minority of three and of five killed, locks are taken, excluded, renewed and
/// released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_down() {
    for (count, down) in [(3, 1), (5, 2)] {
        let mut nodes = Nodes::start(count);
        let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
        let before = hold(&first, NAME, ttl(Duration::from_secs(3))).await;
        nodes.0[..down].iter_mut().for_each(|node| node.kill());
        refusal(&second, NAME).await;
        let seen = before.deadline();
        eventually("it is renewed", SLACK, async || before.deadline().since(seen) > Duration::ZERO)
            .await;
        assert!(matches!(before.release().await.unwrap(), Released::Released));
        let after = hold(&second, NAME, ttl(TTL)).await;
        refusal(&first, NAME).await;
        assert!(matches!(after.release().await.unwrap(), Released::Released));
    }
}

/// P3: without a quorum nothing is granted, a lease goes on until its deadline and then is lost,
/// and all of it is told with each node's vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_down() {
    let mut nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold(&locker, NAME, ttl(Duration::from_secs(3))).await;
    nodes.0[1].kill();
    nodes.0[2].kill();
    let error = failure(&locker, "other", ttl(TTL)).await;
    check_error(&error, ErrorKind::NoQuorum, &["nobody listens"]);
    eventually("in jeopardy", SLACK, async || {
        matches!(guard.status(), LeaseStatus::Jeopardy { .. } | LeaseStatus::Lost(_))
    })
    .await;
    let cause = loss(&guard, SLACK).await;
    assert!(cause.to_string().contains("no quorum"), "{cause}");
    eventually("undone", SLACK, async || nodes.count_key("other") == 0).await;
}

/// P10: a node that answers 200 ms late, and one that does not answer at all, slow nobody down
/// who has a quorum; and nothing is left there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_late() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    for link in [Link::Delay(Duration::from_millis(100)), Link::Stall] {
        ways.0[2].set(link);
        let mut times = Vec::new();
        for _ in 0..21 {
            let start = Moment::now();
            let guard = hold(&locker, NAME, ttl(TTL)).await;
            times.push(Moment::now().since(start));
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        }
        times.sort_unstable();
        assert!(times[10] < Duration::from_millis(60), "{link:?}: {times:?}");
    }
    ways.0[2].set(Link::Pass);
    eventually("nothing is left", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// P5: what nodes granted whose answers never came is undone there when they can be reached
/// again, although nobody else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_never_come() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    ways.0[1].set(Link::SwallowReplies);
    ways.0[2].set(Link::SwallowReplies);
    let error = failure(&locker, NAME, ttl(Duration::from_secs(60))).await;
    check_error(&error, ErrorKind::NoQuorum, &[]);
    let silent = |vote: &Vote| matches!(vote, Vote::Late { .. } | Vote::Unreachable { .. });
    assert_eq!(error.votes().iter().filter(|it| silent(&it.vote)).count(), 2, "{error}");
    ways.0.iter().for_each(|way| way.set(Link::Pass));
    eventually("undone on all nodes", SLACK, async || nodes.count_key(NAME) == 0).await;
    // A connection that was begun while nothing was answered is given up only after a while.
    let guard = hold(&locker, NAME, ttl(TTL).wait(SLACK)).await;
    assert!(guard.release().await.is_ok());
}

/// P5: a request that was held up on a connection which was given up meanwhile does not take
/// effect when it arrives at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_too_late() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    ways.0[2].set_open(Link::HoldRequests);
    let guard = hold(&locker, NAME, ttl(Duration::from_secs(60))).await;
    // The connection is given up and made anew; then the old one delivers what it held.
    eventually("a new connection", SLACK, async || ways.0[2].accepted() > 1).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let guard = hold_on_all(&locker, &nodes, "other", ttl(TTL)).await;
    ways.0[2].set_open(Link::Pass);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(nodes.count_key(NAME), 0);
    assert!(guard.release().await.is_ok());
}

/// P1, P5: a paused node that comes back has nothing of what happened meanwhile, and takes part
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_paused() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    nodes.0[0].pause();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    for _ in 0..3 {
        assert!(hold(&locker, NAME, ttl(TTL)).await.release().await.is_ok());
    }
    nodes.0[0].resume();
    eventually("nothing is left", SLACK, async || nodes.count_key(NAME) == 0).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    eventually("it takes part", SLACK, async || {
        let again = nodes.count_key(NAME);
        if again < 3 {
            drop(locker.mutex("probe").unwrap().try_acquire().await);
        }
        nodes.count_key("probe") + again >= 3
    })
    .await;
    assert!(guard.release().await.is_ok());
}
