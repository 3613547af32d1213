//! The wall clocks of members are stepped.

use std::time::Duration;

use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{
    Server as _, Setup, TIME_MAX, connect, hold, refusal, start_cluster_as, ttl, url_at,
    wait_for_renewal,
};

const NAME: &str = "nightly";
/// Longer than an election takes on a busy machine.
const TTL: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// P1, P4, P13: the wall clocks of the leader and of a follower are set a day ahead and a day back.
/// Leases are measured by another clock and fences are revisions, so nothing is lost, nothing lasts
/// longer and fences rise.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_are_stepped() {
    let cluster = start_cluster_as(&Setup::new().clock());
    let (near, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let guard = hold(&near, NAME, ttl(TTL)).await;
    let (leader, follower) = (cluster.leader(), cluster.followers()[0]);
    for (ahead, behind) in [(leader, follower), (follower, leader)] {
        cluster.member(ahead).clock().step_forward(DAY);
        cluster.member(behind).clock().step_back(DAY);
        wait_for_renewal(&guard, TTL).await;
        refusal(&other, NAME).await;
    }
    // Who is gone is noticed as ever.
    let proxy = Proxy::start(cluster.member(follower).address()).await.unwrap();
    let far = connect(&url_at(proxy.address())).await;
    let lost = hold(&far, "gone", ttl(SHORT)).await;
    proxy.set(Link::HalfOpen);
    let next = hold(&other, "gone", ttl(SHORT).wait(TIME_MAX)).await;
    assert!(lost.check().is_err(), "held twice: {:?}", lost.status());
    assert!(next.fence().get() > lost.fence().get());
    next.release().await.unwrap();
    let fence = guard.fence().get();
    guard.release().await.unwrap();
    assert!(hold(&other, NAME, ttl(TTL)).await.fence().get() > fence);
}
