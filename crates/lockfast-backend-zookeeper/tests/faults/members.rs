//! Members of an ensemble fail: the leader, a follower, a majority, all of them; killed, paused and
//! with clocks that are wrong.

use std::time::Duration;

use lockfast::{ErrorKind, Guard, Locker, LossCause, Moment, Released};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::values::append_through;
use crate::kit::{
    Ensemble, MEMBERS, Server as _, Setup, TIME_MAX, bounded, connect, failure, hold, loss,
    queue_for, refusal, ttl, url_at, wait_for_renewal,
};

const NAME: &str = "nightly";
/// What an election takes on a busy machine must not end a lease.
const TTL: Duration = Duration::from_secs(15);
const TICK: Duration = Duration::from_millis(500);

fn setup() -> Setup {
    Setup::new().tick(TICK).line("maxSessionTimeout=60000")
}

fn url(ensemble: &Ensemble) -> String {
    format!("{}?tick={}ms", ensemble.url(), TICK.as_millis())
}

/// An ensemble, a holder and a waiter.
struct Scene {
    ensemble: Ensemble,
    first: Locker,
    second: Locker,
    guard: Guard,
    waiter: tokio::task::JoinHandle<Guard>,
}

impl Scene {
    async fn start(setup: impl Fn() -> Setup) -> Self {
        let ensemble = Ensemble::start_of(setup);
        let url = url(&ensemble);
        let (first, second) = (connect(&url).await, connect(&url).await);
        let guard = hold(&first, NAME, ttl(TTL)).await;
        let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX * 4)).await;
        Self { ensemble, first, second, guard, waiter }
    }

    /// The lease goes on, a free lock can be had, and the waiter still waits and gets in after the
    /// release. Tells how long it took until a lock could be had.
    #[allow(clippy::print_stdout, reason = "the times are for the page")]
    async fn go_on(self, what: &str) -> Ensemble {
        let start = Moment::now();
        hold(&self.second, "free", ttl(TTL).wait(TIME_MAX)).await.release().await.unwrap();
        println!("{what}: a lock could be had after {:?}", Moment::now().since(start));
        wait_for_renewal(&self.guard, TTL).await;
        refusal(&self.first, NAME).await;
        let fence = self.guard.fence().get();
        assert!(matches!(self.guard.release().await.unwrap(), Released::Released));
        let next = bounded(self.waiter).await.unwrap();
        assert!(next.fence().get() > fence);
        next.release().await.unwrap();
        self.ensemble
    }
}

/// P1, P4, P10: the leader is killed. Another takes over, and nobody loses anything.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed() {
    let _turn = crate::TURN.lock().await;
    let mut scene = Scene::start(setup).await;
    let leader = scene.ensemble.leader().unwrap();
    scene.ensemble.members[leader].kill();
    scene.go_on("the leader is killed").await;
}

/// P1, P10: both followers are killed and started again, one after the other. Whoever was connected
/// to them goes on with another.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_are_killed() {
    let _turn = crate::TURN.lock().await;
    let mut scene = Scene::start(setup).await;
    for follower in scene.ensemble.followers() {
        scene.ensemble.members[follower].kill();
        wait_for_renewal(&scene.guard, TTL).await;
        scene.ensemble.restart(follower);
        scene.ensemble.wait_until_all_serve();
    }
    scene.go_on("followers were killed").await;
}

/// P1, P3: the leader stands still for longer than the others wait for it, and then a follower.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_paused() {
    let _turn = crate::TURN.lock().await;
    let scene = Scene::start(setup).await;
    let leader = scene.ensemble.leader().unwrap();
    scene.ensemble.members[leader].pause();
    let mut ensemble = scene.go_on("the leader is paused").await;
    ensemble.members[leader].resume();
    ensemble.wait_until_all_serve();
    let follower = ensemble.followers()[0];
    let (first, other) = (connect(&url(&ensemble)).await, connect(&url(&ensemble)).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    ensemble.members[follower].pause();
    wait_for_renewal(&guard, TTL).await;
    refusal(&other, NAME).await;
    ensemble.members[follower].resume();
    wait_for_renewal(&guard, TTL).await;
}

/// P1, P3, P11: without a majority nothing is granted, and holders are told by their deadline. When
/// there is one again, locks can be had again.
/// The user sees: the loss `Expired`; `Unreachable` for who asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_quorum() {
    const TTL: Duration = Duration::from_secs(3);
    let _turn = crate::TURN.lock().await;
    let mut ensemble = Ensemble::start();
    let locker = connect(&ensemble.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let followers = ensemble.followers();
    for follower in &followers {
        ensemble.members[*follower].kill();
    }
    let cause = loss(&guard, TTL * 2).await;
    assert!(matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    let error = failure(&locker, "free", ttl(TTL).retries(0)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    for follower in &followers {
        ensemble.restart(*follower);
    }
    ensemble.wait_until_all_serve();
    let next = hold(&locker, NAME, ttl(TTL).wait(TIME_MAX)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(guard.check().is_err());
}

/// P9: a dead holder's lock is free after its ttl, and after a change of the leader no later than the
/// page says: the new one gives every session its whole time again, which ends up to two and a quarter
/// ticks after the ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the times are for the page")]
async fn the_holder_and_the_leader_die() {
    const SPAN: Duration = Duration::from_secs(4);
    const SLACK: Duration = Duration::from_secs(1);
    let _turn = crate::TURN.lock().await;
    let mut ensemble = Ensemble::start_of(setup);
    let leader = ensemble.leader().unwrap();
    let follower = &ensemble.members[ensemble.followers()[0]];
    let proxy = Proxy::start(follower.address()).await.unwrap();
    let dying = connect(&format!("{}?tick={}ms", url_at(proxy.address()), TICK.as_millis())).await;
    let near = connect(&url(&ensemble)).await;
    let guard = hold(&dying, NAME, ttl(SPAN)).await;
    let waiter = queue_for(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
    let machine = Lateness::watch();
    let died = Moment::now();
    proxy.set(Link::HalfOpen);
    ensemble.members[leader].kill();
    ensemble.wait_for_leader(&[leader]);
    let elected = Moment::now();
    let (next, freed) = bounded(waiter).await.unwrap();
    println!(
        "holder and leader dead, ttl {SPAN:?}: a leader after {:.1?}, the lock after {:.1?}",
        elected.since(died),
        freed.since(died)
    );
    machine.check("to be free", SPAN + TICK * 9 / 4 + SLACK, elected, freed);
    assert!(guard.deadline().has_passed(freed));
    assert!(guard.check().is_err());
    assert!(next.fence().get() > guard.fence().get());
}

/// P1, P4: all members crash at once and come back: every lease that lasts longer than that is still
/// there.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_crash() {
    let _turn = crate::TURN.lock().await;
    let mut scene = Scene::start(setup).await;
    for member in &mut scene.ensemble.members {
        member.kill();
    }
    (0..MEMBERS).for_each(|place| scene.ensemble.restart(place));
    scene.go_on("all members crashed").await;
}

/// P1, P13: the wall clocks of the leader and of a follower are set a day ahead and a day back.
/// Sessions are measured by other clocks, so nothing is lost and nothing lasts longer.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_are_stepped() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const SHORT: Duration = Duration::from_secs(5);
    let _turn = crate::TURN.lock().await;
    let scene = Scene::start(|| setup().clock()).await;
    let leader = scene.ensemble.leader().unwrap();
    let follower = scene.ensemble.followers()[0];
    let other = connect(&url(&scene.ensemble)).await;
    for (ahead, behind) in [(leader, follower), (follower, leader)] {
        scene.ensemble.members[ahead].clock().step_forward(DAY);
        scene.ensemble.members[behind].clock().step_back(DAY);
        wait_for_renewal(&scene.guard, TTL).await;
        refusal(&other, NAME).await;
    }
    // Who is gone is noticed as ever.
    let proxy = Proxy::start(scene.ensemble.members[follower].address()).await.unwrap();
    let far = connect(&format!("{}?tick={}ms", url_at(proxy.address()), TICK.as_millis())).await;
    let lost = hold(&far, "gone", ttl(SHORT)).await;
    proxy.set(Link::HalfOpen);
    let next = hold(&other, "gone", ttl(SHORT).wait(TIME_MAX)).await;
    assert!(lost.check().is_err(), "held twice: {:?}", lost.status());
    assert!(next.fence().get() > lost.fence().get());
    next.release().await.unwrap();
    scene.go_on("clocks were stepped").await;
}

/// P7, P14: the leader is killed, and the next one paused, while values are written: every update is there, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_written_while_leaders_fail() {
    let _turn = crate::TURN.lock().await;
    let mut ensemble = Ensemble::start_of(setup);
    let url = url(&ensemble);
    append_through(&url, async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = ensemble.leader().unwrap();
        ensemble.members[leader].kill();
        let next = ensemble.wait_for_leader(&[leader]);
        ensemble.restart(leader);
        ensemble.wait_until_all_serve();
        ensemble.members[next].pause();
        ensemble.wait_for_leader(&[next]);
        ensemble.members[next].resume();
        ensemble.wait_until_all_serve();
    })
    .await;
}
