//! Members of a cluster fail. What was measured is printed, for the page.

use std::time::Duration;

use lockfast::{ErrorKind, Guard, Locker, Moment, Options, Released};
use lockfast_faults::lateness::Lateness;
use tokio::task::JoinHandle;

use crate::kit::values::append_through;
use crate::kit::{
    Etcd, OneCluster, Server as _, TIME_MAX, bounded, connect, eventually, failure, hold, loss,
    queue_for, start_cluster, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
/// Longer than an election takes on a busy machine.
const TTL: Duration = Duration::from_secs(15);
/// How much later than its deadline a loss may be told.
const TOLD_MAX: Duration = Duration::from_millis(200);

/// A holder and a waiter, each with connections of its own.
struct Scene {
    cluster: OneCluster,
    near: Locker,
    far: Locker,
    guard: Guard,
    waiter: JoinHandle<Guard>,
}

impl Scene {
    async fn start(span: Duration) -> Self {
        let cluster = start_cluster();
        let (near, far) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
        let guard = hold(&near, NAME, ttl(span)).await;
        let waiter = queue_for(&far, NAME, Options::default().ttl(span).wait(TIME_MAX * 4)).await;
        Self { cluster, near, far, guard, waiter }
    }

    /// P1, P3, P10: the lease goes on, others can take locks, and the waiter is served after the
    /// holder and not before; a fence rises.
    async fn outlive(self, fault: &str) -> OneCluster {
        let began = Moment::now();
        let options = ttl(TTL).retries(100);
        let other = hold(&self.far, "another", options).await;
        let served = Moment::now().since(began);
        wait_for_renewal(&self.guard, TTL).await;
        let renewed = Moment::now().since(began);
        println!("measured: {fault}: a free lock after {served:.1?}, renewed after {renewed:.1?}");
        assert!(!self.waiter.is_finished(), "two hold it");
        assert!(self.guard.check().is_ok(), "{:?}", self.guard.status());
        other.release().await.unwrap();
        let fence = self.guard.fence().get();
        let released = Moment::now();
        assert!(matches!(self.guard.release().await.unwrap(), Released::Released));
        let next = bounded(self.waiter).await.unwrap();
        println!("measured: {fault}: handed over in {:.1?}", Moment::now().since(released));
        assert!(next.fence().get() > fence);
        assert!(next.check().is_ok());
        self.cluster
    }
}

/// P1, P3, P10: the leader dies, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed() {
    let mut scene = Scene::start(TTL).await;
    let leader = scene.cluster.leader();
    scene.cluster.member_mut(leader).kill();
    let mut cluster = scene.outlive("leader killed").await;
    cluster.member_mut(leader).launch();
    cluster.settle();
}

/// P1, P3, P10: a member that does not lead dies, also the one that we are connected to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_killed() {
    let mut scene = Scene::start(TTL).await;
    let [follower, _] = scene.cluster.followers();
    scene.cluster.member_mut(follower).kill();
    scene.outlive("follower killed").await;
}

/// P1, P3, P10: the leader stands still, with all connections open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_paused() {
    let scene = Scene::start(TTL).await;
    let leader = scene.cluster.leader();
    scene.cluster.member(leader).pause();
    let cluster = scene.outlive("leader paused").await;
    cluster.member(leader).resume();
    cluster.settle();
}

/// P1, P3, P10: the leader is cut off from the others, while clients still reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_cut_off() {
    let scene = Scene::start(TTL).await;
    let leader = scene.cluster.leader();
    scene.cluster.cut_off(leader);
    let cluster = scene.outlive("leader cut off").await;
    cluster.rejoin(leader);
    cluster.settle();
}

/// P1, P3, P10: a member that does not lead is cut off, also the one that we are connected to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_is_cut_off_in_turn() {
    let scene = Scene::start(TTL).await;
    for member in 0..3 {
        scene.cluster.cut_off(member);
        scene.cluster.leader_besides(member);
        wait_for_renewal(&scene.guard, TTL).await;
        scene.cluster.rejoin(member);
        scene.cluster.settle();
    }
    scene.outlive("each cut off in turn").await;
}

/// P2, P3, P10: without a quorum nothing is granted, the holder is told by its deadline, and waiting
/// resumes when the quorum is back.
/// The user sees: `Unreachable` or `NoQuorum`, with the server's words; the loss `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_quorum() {
    let mut scene = Scene::start(Duration::from_secs(5)).await;
    let [first, second] = scene.cluster.followers();
    let machine = Lateness::watch();
    for member in [first, second] {
        scene.cluster.member_mut(member).kill();
    }
    let error = failure(&scene.near, "another", ttl(TTL).retries(0)).await;
    let is_told = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum);
    assert!(is_told, "{:?}: {error}", error.kind());
    loss(&scene.guard, TIME_MAX).await;
    machine.check("to tell the loss", TOLD_MAX, scene.guard.deadline(), Moment::now());
    assert!(!scene.waiter.is_finished(), "granted without a quorum");
    for member in [first, second] {
        scene.cluster.member_mut(member).launch();
    }
    scene.cluster.settle();
    let back = Moment::now();
    let next = bounded(scene.waiter).await.unwrap();
    println!("measured: quorum back: handed over after {:.1?}", Moment::now().since(back));
    assert!(next.fence().get() > scene.guard.fence().get());
    let far = &scene.far;
    eventually("others are served", TIME_MAX, async || {
        let mutex = far.mutex("another").unwrap().with_options(ttl(TTL));
        mutex.acquire().await.is_ok()
    })
    .await;
}

/// P1, P9: a holder whose own member is cut off together with it knows by its deadline, and only
/// then the next gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_cut_off_with_its_member() {
    let cluster = start_cluster();
    let leader = cluster.leader();
    let alone = connect(&cluster.member(leader).url()).await;
    let others: Vec<String> = (0..3)
        .filter(|number| *number != leader)
        .map(|number| cluster.member(number).address().to_string())
        .collect();
    let rest = connect(&format!("etcd://{}", others.join(","))).await;
    let span = Duration::from_secs(5);
    let guard = hold(&alone, NAME, ttl(span)).await;
    let waiter = queue_for(&rest, NAME, ttl(TTL).wait(TIME_MAX * 2)).await;
    let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
    let began = Moment::now();
    cluster.cut_off(leader);
    loss(&guard, TIME_MAX).await;
    let (next, granted) = bounded(waiter).await.unwrap();
    assert!(guard.deadline().has_passed(granted), "let in before the first knew");
    // Another election may follow below, and a lock that is not yet confirmed does not outlast one.
    bounded(next.full()).await.unwrap();
    println!(
        "measured: holder cut off with its member, ttl {span:?}: the next after {:.1?}",
        granted.since(began)
    );
    assert!(next.fence().get() > guard.fence().get());
    cluster.rejoin(leader);
    cluster.settle();
    // What the first does now harms nobody.
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    wait_for_renewal(&next, TTL).await;
}

/// P1: the only member that a holder knows leads, stands still until another leads, and goes on: what
/// it says then about leases is not taken for what the cluster says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_member_of_a_holder_stands_still() {
    let cluster = start_cluster();
    let leader = cluster.leader();
    let alone = connect(&cluster.member(leader).url()).await;
    let others: Vec<String> = (0..3)
        .filter(|number| *number != leader)
        .map(|number| cluster.member(number).address().to_string())
        .collect();
    let rest = connect(&format!("etcd://{}", others.join(","))).await;
    let span = Duration::from_secs(8);
    let guard = hold(&alone, NAME, ttl(span)).await;
    let waiter = queue_for(&rest, NAME, ttl(span).wait(TIME_MAX * 2)).await;
    cluster.member(leader).pause();
    cluster.leader_besides(leader);
    // Until shortly before the holder gives up.
    let left = guard.remaining().saturating_sub(Duration::from_secs(2));
    tokio::time::sleep(left).await;
    cluster.member(leader).resume();
    let began = Moment::now();
    while Moment::now().since(began) < span * 2 && !waiter.is_finished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The next is asked after the first, who must have known by then.
    let is_granted = waiter.is_finished();
    if guard.check().is_ok() {
        assert!(!is_granted, "two hold it");
        wait_for_renewal(&guard, span).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// P9: a dead holder's lock is free after its ttl, and after a change of the leader no later than the
/// page says: the new one lets every lease begin again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_and_the_leader_die() {
    let span = Duration::from_secs(4);
    let mut cluster = start_cluster();
    let proxies = Proxies::before(cluster.members()).await;
    let dying = connect(&proxies.url).await;
    let near = connect(&cluster.url()).await;
    let guard = hold(&dying, NAME, ttl(span)).await;
    let machine = Lateness::watch();
    let died = Moment::now();
    proxies.cut();
    let leader = cluster.leader();
    cluster.member_mut(leader).kill();
    cluster.leader_besides(leader);
    let elected = Moment::now();
    let next = hold(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let freed = Moment::now();
    println!(
        "measured: holder and leader dead, ttl {span:?}: a leader after {:.1?}, the lock after {:.1?}",
        elected.since(died),
        freed.since(died)
    );
    // The new leader prolongs what it found, and looks twice a second what has ended.
    machine.check("to be free", span + Duration::from_secs(3), elected, freed);
    assert!(next.fence().get() > guard.fence().get());
    assert!(guard.check().is_err());
}

/// A proxy before each member.
struct Proxies {
    proxies: Vec<lockfast_faults::proxy::Proxy>,
    url: String,
}

impl Proxies {
    async fn before(members: &[Etcd]) -> Self {
        let mut proxies = Vec::new();
        for member in members {
            proxies.push(lockfast_faults::proxy::Proxy::start(member.address()).await.unwrap());
        }
        let places: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        Self { proxies, url: format!("etcd://{}", places.join(",")) }
    }

    fn cut(&self) {
        for proxy in &self.proxies {
            proxy.set(lockfast_faults::proxy::Link::Close);
        }
    }
}

/// P7, P14: leaders are killed and paused while values are written: every update is there, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_written_while_leaders_fail() {
    let mut cluster = start_cluster();
    let url = cluster.url();
    append_through(&url, async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = cluster.leader();
        cluster.member_mut(leader).kill();
        let next = cluster.leader_besides(leader);
        cluster.member_mut(leader).launch();
        cluster.settle();
        cluster.member_mut(next).pause();
        cluster.leader_besides(next);
        cluster.member_mut(next).resume();
    })
    .await;
}
