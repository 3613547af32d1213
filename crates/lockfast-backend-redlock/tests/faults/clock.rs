//! Nodes whose wall clock steps, by which Redis counts expiry and which bounds proposals.

use std::time::Duration;

use lockfast::{ErrorKind, Locker, Moment, Released};
use lockfast_faults::server::Server as _;

use crate::kit::{
    Nodes, check_error, connect, eventually, failure, hold, hold_on_all, refusal, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_secs(600);
const SLACK: Duration = Duration::from_secs(8);

/// P1: a minority that steps ahead ends its part of the lease early; nobody else gets in, and the
/// lease is renewed on the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_steps_ahead() {
    for (count, wrong) in [(3, 1), (5, 2)] {
        let nodes = Nodes::start_with_clocks(count);
        let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
        let guard = hold_on_all(&first, &nodes, NAME, ttl(TTL)).await;
        nodes.0[..wrong].iter().for_each(|node| node.clock().step_forward(STEP));
        eventually("gone there", SLACK, async || nodes.count_key(NAME) <= count - wrong).await;
        refusal(&second, NAME).await;
        let seen = guard.deadline();
        eventually("a renewal", SLACK, async || guard.deadline().since(seen) > Duration::ZERO)
            .await;
        refusal(&second, NAME).await;
        let fence = guard.fence().get();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        let next = hold(&second, NAME, ttl(TTL)).await;
        assert!(next.fence().get() > fence);
        assert!(next.release().await.is_ok());
    }
}

/// P4: a minority that is ten minutes behind refuses every proposal as too far ahead, and does no
/// harm; when all nodes are, the client goes by their clocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_step_back() {
    let nodes = Nodes::start_with_clocks(3);
    let locker = connect(&nodes.url()).await;
    let mut fences = Vec::new();
    for behind in [1, 3] {
        nodes.0[..behind].iter().for_each(|node| node.clock().step_back(STEP));
        let start = Moment::now();
        let name = format!("{NAME} {behind}");
        for _ in 0..3 {
            let guard = hold(&locker, &name, ttl(TTL)).await;
            fences.push((name.clone(), guard.fence().get()));
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        }
        assert!(Moment::now().since(start) < SLACK);
    }
    for pair in fences.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!(pair[0].1 < pair[1].1, "{fences:?}");
    }
    // What was granted by right clocks is not undercut by what is granted by wrong ones.
    let guard = hold(&locker, &format!("{NAME} 1"), ttl(TTL).retries(0)).await;
    assert!(guard.fence().get() > fences[2].1, "{} {fences:?}", guard.fence());
}

/// The fence of a hold that ends at once.
async fn next_fence(locker: &Locker, nodes: &Nodes, name: &str) -> u64 {
    let guard = hold(locker, name, ttl(TTL)).await;
    let fence = guard.fence().get();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    eventually("free everywhere", SLACK, async || nodes.count_key(name) == 0).await;
    fence
}

/// All nodes forget the fence of a lock, as after a restart of all of them.
fn forget_fence(nodes: &Nodes, name: &str) {
    let key = format!("lockfast:{{{name}}}:fence");
    nodes.0.iter().for_each(|node| drop(node.cli(&["DEL", &key])));
}

/// B140, P4: one node whose clock is behind is not believed, also when another is silent: nobody's
/// fences are behind from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_behind_beside_one_that_is_silent() {
    let nodes = Nodes::start_with_clocks(3);
    let first = connect(&nodes.url()).await;
    nodes.0[2].clock().step_back(STEP);
    nodes.0[0].pause();
    let error = failure(&first, "z", ttl(Duration::from_secs(30))).await;
    check_error(&error, ErrorKind::NoQuorum, &["ahead"]);
    nodes.0[0].resume();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = connect(&nodes.url()).await;
    let before = next_fence(&second, &nodes, NAME).await;
    forget_fence(&nodes, NAME);
    let after = next_fence(&first, &nodes, NAME).await;
    assert!(after > before, "{after} after {before}");
}

/// B140, P4: whoever once went by the nodes' clocks goes by its own again when they agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_were_wrong_once() {
    let nodes = Nodes::start_with_clocks(3);
    let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    nodes.0.iter().for_each(|node| node.clock().step_back(STEP));
    let low = next_fence(&first, &nodes, "x").await;
    nodes.0.iter().for_each(|node| node.clock().step_forward(STEP));
    let before = next_fence(&second, &nodes, NAME).await;
    assert!(before > low + 300_000_000, "{before} after {low}");
    forget_fence(&nodes, NAME);
    let after = next_fence(&first, &nodes, NAME).await;
    assert!(after > before, "{after} after {before}");
}
