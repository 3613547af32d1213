//! A member is cut off from the others while clients still reach it.

use std::time::Duration;

use lockfast::{LossCause, Moment, Released};
use lockfast_core::{Address, Severity};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{
    Ensemble, Port, Session, Setup, TIME_MAX, ZooKeeper, bounded, claims, connect, eventually,
    hold, loss, queue_for, refusal, ttl, url_at, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// Members that notice only much later that they are cut off: until then they answer their clients
/// as if nothing were.
fn start() -> Ensemble {
    Ensemble::start_of(|| Setup::new().line("syncLimit=30"))
}

/// P1, P2: the client's follower is cut off from the leader, and goes on answering the client: all
/// that says nothing, because the leader ends the session. The holder is told before the next gets
/// in.
/// The user sees: the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_of_a_client_is_cut_off() {
    let _turn = crate::TURN.lock().await;
    let ensemble = start();
    let (follower, leader) = (ensemble.followers()[0], ensemble.leader().unwrap());
    let far = connect(&url_at(ensemble.members[follower].address())).await;
    let near = connect(&url_at(ensemble.members[leader].address())).await;
    let lost = hold(&far, NAME, ttl(TTL)).await;
    let waiter = queue_for(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
    let machine = Lateness::watch();
    let cut = Moment::now();
    ensemble.cut_off(follower);
    let telling = tokio::spawn({
        let lease = lost.lease().clone();
        async move {
            lease.lost().await;
            Moment::now()
        }
    });
    let (next, granted) = bounded(waiter).await.unwrap();
    assert!(lost.check().is_err(), "held twice: {:?}", lost.status());
    assert!(lost.deadline().has_passed(granted), "it was let in before the holder's deadline");
    let told = bounded(telling).await.unwrap();
    assert!(granted.since(told) > Duration::ZERO, "it was let in before the holder was told");
    machine.check("to let the next in", TTL * 2, cut, granted);
    assert!(next.fence().get() > lost.fence().get());
    // The one who is cut off cannot have anything, and does not free what it lost.
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
    ensemble.join(follower);
    eventually("the follower serves", TIME_MAX, async || {
        ensemble.members[follower].mode().as_deref() == Some("follower")
    })
    .await;
    refusal(&near, NAME).await;
    next.release().await.unwrap();
    hold(&far, NAME, ttl(TTL).wait(TIME_MAX)).await.release().await.unwrap();
}

/// P1: the same for a client of the leader: the others choose another, and the client of the one who
/// led is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_a_client_is_cut_off() {
    let _turn = crate::TURN.lock().await;
    let ensemble = Ensemble::start();
    let (follower, leader) = (ensemble.followers()[0], ensemble.leader().unwrap());
    let far = connect(&url_at(ensemble.members[leader].address())).await;
    let others: Vec<_> =
        ensemble.followers().iter().map(|place| ensemble.members[*place].address()).collect();
    let near = connect(&ensemble.url_of(&others)).await;
    let lost = hold(&far, NAME, ttl(TTL)).await;
    let waiter = queue_for(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
    ensemble.cut_off(leader);
    loss(&lost, TTL * 2).await;
    let (next, granted) = bounded(waiter).await.unwrap();
    assert!(lost.deadline().has_passed(granted));
    assert!(next.fence().get() > lost.fence().get());
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    ensemble.join(leader);
    assert!(ensemble.members[follower].mode().is_some());
    next.release().await.unwrap();
    hold(&far, NAME, ttl(TTL).wait(TIME_MAX * 2)).await.release().await.unwrap();
}

/// B113: P1, P2. A leader that is cut off from the others answers its clients for a while, also what goes
/// to the leader, while the others may long have another: that renews nothing.
/// The user sees: the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_renews_nothing() {
    let _turn = crate::TURN.lock().await;
    let ensemble = start();
    let leader = ensemble.leader().unwrap();
    let locker = connect(&url_at(ensemble.members[leader].address())).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    wait_for_renewal(&guard, TTL).await;
    let machine = Lateness::watch();
    let cut = Moment::now();
    ensemble.cut_off(leader);
    loss(&guard, TTL * 3).await;
    machine.check("to tell the loss", TTL * 2, cut, Moment::now());
    assert_eq!(ensemble.leader(), Some(leader), "it has noticed that it is cut off");
}

/// B210: P1, P2. The same where the leader was a single server when the client connected, which was then
/// started again as one of three: whoever has seen it alone, and whoever has not, is told by the
/// deadline. What was held meanwhile is lost, because it counted on one server.
/// The user sees: the loss `SessionEnded`, and later `Expired`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_alone_renews_nothing_as_leader() {
    const LONG: Duration = Duration::from_secs(30);
    let _turn = crate::TURN.lock().await;
    let setup = || Setup::new().line("syncLimit=30").line("maxSessionTimeout=60000");
    let mut ensemble = Ensemble::start_alone(setup);
    let url = format!("{}?tick=500ms", url_at(ensemble.members[0].address()));
    let old = connect(&url).await;
    let kept = hold(&old, "kept", ttl(LONG)).await;
    ensemble.grow();
    assert_eq!(loss(&kept, LONG).await, LossCause::SessionEnded);
    let leader = ensemble.leader().unwrap();
    assert_eq!(leader, 0, "it knows more than the others");
    let address = Address::parse(&url).unwrap();
    let diagnosis = lockfast_backend_zookeeper::diagnose(address).await.unwrap();
    let members = diagnosis.findings.iter().find(|finding| finding.check == "members").unwrap();
    assert_ne!(members.severity, Severity::Warn, "{members:?}");
    let new = connect(&url).await;
    let guards = [hold(&old, "old", ttl(TTL)).await, hold(&new, "new", ttl(TTL)).await];
    for guard in &guards {
        wait_for_renewal(guard, TTL).await;
    }
    ensemble.cut_off(leader);
    for guard in &guards {
        let cause = loss(guard, TTL * 3).await;
        assert!(matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    }
    assert_eq!(ensemble.leader(), Some(leader), "it has noticed that it is cut off");
}

/// B210: P1. A single server that can be given others while it serves (`reconfig`) counts as one of several
/// from the start.
/// The user sees: shorter leases, by three quarters of a tick.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_of_one_is_one_of_several() {
    let _turn = crate::TURN.lock().await;
    let alone = ZooKeeper::start();
    let ports = [Port::take(), Port::take()];
    let [follow, vote] = ports.each_ref().map(Port::number);
    let setup = Setup::new().line("standaloneEnabled=false");
    let one = setup.line(format!("server.1=127.0.0.1:{follow}:{vote}")).start_as(1);
    let most = async |server: &ZooKeeper| connect(&server.url()).await.profile().ttl.max;
    let (of_one, of_alone) = (most(&one).await, most(&alone).await);
    assert_eq!(of_alone - of_one, Duration::from_millis(375));
}

/// B114: P5. Two of a process ask for permits, and their connection breaks while the leader decides. What
/// the next member says of the line before it knows of their claims is not believed: none is left
/// behind.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lags_is_asked_for_the_line() {
    const TTL: Duration = Duration::from_secs(9);
    const PERMITS: u32 = 2;
    let _turn = crate::TURN.lock().await;
    let ensemble = start();
    let followers = ensemble.followers();
    let mut proxies = Vec::new();
    for place in &followers {
        proxies.push(Proxy::start(ensemble.members[*place].address()).await.unwrap());
    }
    proxies[1].set(Link::Close);
    let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let locker = connect(&ensemble.url_of(&addresses)).await;
    let semaphore = locker.semaphore(NAME, PERMITS).unwrap().with_options(ttl(TTL));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    for place in followers {
        ensemble.set_links_of(place, Link::Delay(Duration::from_millis(300)));
    }
    let acquiring: Vec<_> = (0..PERMITS)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { bounded(semaphore.acquire()).await.unwrap() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxies[1].set(Link::Pass);
    proxies[0].set(Link::Reset);
    for acquired in acquiring {
        acquired.await.unwrap().release().await.unwrap();
    }
    let leader = &ensemble.members[ensemble.leader().unwrap()];
    eventually("nothing is left", TTL, async || claims(leader, NAME).is_empty()).await;
}

/// P1: a client that knows all members goes on with another when its own is cut off, also where that
/// one notices much later than the lease would last.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_all_members_goes_on() {
    const TTL: Duration = Duration::from_secs(9);
    let _turn = crate::TURN.lock().await;
    let ensemble = start();
    let locker = connect(&ensemble.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    for follower in ensemble.followers() {
        ensemble.cut_off(follower);
        wait_for_renewal(&guard, TTL).await;
        wait_for_renewal(&guard, TTL).await;
        ensemble.join(follower);
        // It says that it follows as long as it has not noticed that it was cut off, but nobody can
        // open a session there. Without it, the next one would leave no majority.
        let address = ensemble.members[follower].address();
        eventually("it decides with the others", TIME_MAX, async || {
            Session::try_open(address, TTL).is_ok()
        })
        .await;
    }
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}
