//! Nodes that are killed, paused, cut off or late: a minority of them is not waited for, and
//! nothing of what they may have granted is left behind.

use std::pin::pin;
use std::time::Duration;

use lockfast::{Attempt, ErrorKind, LeaseStatus, LossCause, Moment, Released, RevokeOutcome};
use lockfast_core::Vote;
use lockfast_faults::lateness::Lateness;
use lockfast_faults::server::Server as _;

use crate::kit::{
    Link, Nodes, Signpost, TIME_MAX, Ways, bounded, calls, check_error, connect, eventually,
    failure, hold, hold_on_all, loss, queue_for, refusal, refused_calls, ttl, wait_for_renewal,
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
    check_error(&error, ErrorKind::NoQuorum, &["connection refused"]);
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
        let machine = Lateness::watch();
        let mut times = Vec::new();
        for _ in 0..21 {
            let start = Moment::now();
            let guard = hold(&locker, NAME, ttl(TTL)).await;
            let end = Moment::now();
            times.push(end.since(start).saturating_sub(machine.between(start, end)));
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        }
        times.sort_unstable();
        assert!(times[10] < Duration::from_millis(60), "{link:?}: {times:?}");
    }
    ways.0[2].set(Link::Pass);
    eventually("nothing is left", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// P5: what nodes granted whose answers never came, and that could not be undone as long as there
/// was a connection, is undone on the next one, although nobody else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_never_come() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    let mut tries = 0;
    let name = loop {
        tries += 1;
        assert!(tries <= 20, "it was undone each time");
        let name = format!("{NAME} {tries}");
        let guard = hold_on_all(&locker, &nodes, "ready", ttl(TTL)).await;
        ways.0[1..].iter().for_each(|way| way.set(Link::SwallowReplies));
        let losing = async {
            while nodes.count_key(&name) < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ways.0[1..].iter().for_each(|way| way.set(Link::HalfOpen));
        };
        let error = {
            let mut asking = pin!(failure(&locker, &name, ttl(Duration::from_secs(600))));
            tokio::select! {
                error = asking.as_mut() => error,
                () = losing => asking.await,
            }
        };
        check_error(&error, ErrorKind::NoQuorum, &[]);
        let silent = |vote: &Vote| matches!(vote, Vote::Late { .. } | Vote::Unreachable { .. });
        assert_eq!(error.votes().iter().filter(|it| silent(&it.vote)).count(), 2, "{error}");
        drop(guard.release().await);
        // On a slow machine it may have been undone before the way was lost.
        if nodes.count_key(&name) == 2 {
            break name;
        }
        ways.0.iter().for_each(|way| way.set(Link::Pass));
    };
    ways.0.iter().for_each(|way| way.set(Link::Pass));
    eventually("undone on all nodes", TIME_MAX, async || nodes.count_key(&name) == 0).await;
    assert!(hold_on_all(&locker, &nodes, &name, ttl(TTL)).await.release().await.is_ok());
}

/// P5: a node that was out of reach when a lock was released is told when it is back, although
/// nobody else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_node_is_owed() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries <= 20, "the release was faster each time");
        let guard = hold_on_all(&locker, &nodes, NAME, ttl(Duration::from_secs(600))).await;
        ways.0[2].set(Link::Close);
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        eventually("released by the others", SLACK, async || nodes.count_key(NAME) <= 1).await;
        // The release may have passed before the connection was closed.
        if nodes.0[2].cli(&["EXISTS", NAME]) == "1" {
            break;
        }
        ways.0[2].set(Link::Pass);
    }
    ways.0[2].set(Link::Pass);
    eventually("released by all", TIME_MAX, async || nodes.count_key(NAME) == 0).await;
}

/// An error does not wait for a new connection: nodes whose answers stay away are late, and those
/// whose connection is gone and not yet made anew are not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_breaks_keeps_nobody_waiting() {
    // A connection is given up after a second without an answer, and so is a try to make one.
    const SILENCE: Duration = Duration::from_secs(1);
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let url = ways.url_within("50ms", "");
    for is_cut in [false, true] {
        let start = Moment::now();
        loop {
            let locker = connect(&url).await;
            let accepted = ways.0[1].accepted();
            ways.0[1..].iter().for_each(|way| way.set(Link::SwallowReplies));
            if is_cut {
                ways.0[1..].iter().for_each(|way| way.set_open(Link::Close));
                let again = async || ways.0[1].accepted() > accepted;
                eventually("a new connection is tried", SLACK, again).await;
            }
            let asked = Moment::now();
            let error = failure(&locker, NAME, ttl(TTL)).await;
            let took = Moment::now().since(asked);
            check_error(&error, ErrorKind::NoQuorum, &[]);
            ways.0.iter().for_each(|way| way.set(Link::Pass));
            // Once is enough: without this it takes a second each time, however fast the machine.
            if took < SILENCE * 3 / 4 {
                break;
            }
            assert!(Moment::now().since(start) < TIME_MAX, "cut off: {is_cut}, took {took:?}");
        }
    }
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
    let node = &nodes.0[2];
    let (asked, refused) = (calls(node), refused_calls(node));
    ways.0[2].set_open(Link::Pass);
    eventually("it arrives", SLACK, async || calls(node) > asked).await;
    assert_eq!(refused_calls(node), refused + 1, "it was served");
    assert_eq!(nodes.count_key(NAME), 0);
    assert!(guard.release().await.is_ok());
}

/// P5: a node refuses whatever arrives on a connection that was given up: an acquisition does not
/// lock, a renewal does not prolong, a release has nothing to do any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_a_connection_that_was_given_up() {
    const LEASE: Duration = Duration::from_secs(600);
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let (node, way) = (&nodes.0[2], &ways.0[2]);
    let locker = connect(&ways.url_with("")).await;
    for what in ["acquire", "renew", "release"] {
        drop(hold_on_all(&locker, &nodes, "ready", ttl(TTL)).await.release().await);
        eventually("nothing is asked", SLACK, async || nodes.count_key("ready") == 0).await;
        let mut held = None;
        if what != "acquire" {
            held = Some(hold_on_all(&locker, &nodes, what, ttl(LEASE)).await);
        }
        let accepted = way.accepted();
        way.set_open(Link::HoldRequests);
        held = match held {
            None => Some(hold(&locker, what, ttl(LEASE)).await),
            Some(guard) if what == "renew" => {
                bounded(guard.extend(LEASE * 2)).await.unwrap();
                Some(guard)
            }
            Some(guard) => {
                assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
                None
            }
        };
        eventually("a new connection", TIME_MAX, async || way.accepted() > accepted).await;
        let other = hold_on_all(&locker, &nodes, "other", ttl(LEASE)).await;
        let (asked, refused) = (calls(node), refused_calls(node));
        way.set_open(Link::Pass);
        eventually("it arrives", SLACK, async || calls(node) > asked).await;
        assert_eq!(refused_calls(node), refused + 1, "{what}");
        let left_ms: i64 = node.cli(&["PTTL", what]).parse().unwrap();
        match what {
            "renew" => assert!((0..=600_000).contains(&left_ms), "{left_ms}"),
            _ => assert_eq!(left_ms, -2, "{what}"),
        }
        drop((held, other));
        eventually("all is released", SLACK, async || {
            nodes.count_key(what) + nodes.count_key("other") == 0
        })
        .await;
    }
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

/// P11: a holder that hears from the first node that its lock is taken away lets go of the others,
/// before the operator's word is there; the operator is told that it was taken away (B71).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_lets_go_while_its_lock_is_taken_away() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let (first, operator) = (connect(&nodes.url()).await, connect(&ways.url_with("")).await);
    let guard = hold_on_all(&first, &nodes, NAME, ttl(TTL)).await;
    let holder = tokio::spawn(async move {
        loss(&guard, TIME_MAX).await;
        drop(guard.release().await);
    });
    ways.0[1..].iter().for_each(|way| way.set(Link::Delay(Duration::from_millis(80))));
    let outcome = bounded(operator.revoke(NAME, "maintenance")).await.unwrap();
    assert!(
        matches!(&outcome, RevokeOutcome::Revoked(holders) if holders.len() == 1),
        "{outcome:?}"
    );
    bounded(holder).await.unwrap();
    eventually("nothing is left", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// B139, P11: a lock that is held on a quorum of which the looker does not reach all is shown, listed
/// and can be taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_which_a_part_is_out_of_reach() {
    let nodes = Nodes::start(3);
    let (ways, others) = (Ways::to(&nodes).await, Ways::to(&nodes).await);
    ways.0[2].set(Link::Close);
    others.0[1].set(Link::Close);
    let (holder, looker) = (connect(&ways.url_with("")).await, connect(&others.url_with("")).await);
    let guard = hold(&holder, NAME, ttl(TTL)).await;
    let fence = Some(guard.fence());
    let view = bounded(looker.inspect(guard.name())).await.unwrap();
    assert_eq!(view.holders.iter().map(|it| it.fence).collect::<Vec<_>>(), [fence], "{view:?}");
    assert!(view.holders[0].remaining <= TTL, "{view:?}");
    let listed = bounded(looker.list("", None, 10)).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), [NAME]);
    let outcome = bounded(looker.revoke(NAME, "maintenance")).await.unwrap();
    let RevokeOutcome::Revoked(holders) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(holders.iter().map(|it| it.fence).collect::<Vec<_>>(), [fence]);
    let cause = loss(&guard, SLACK).await;
    assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
}

/// B147, P11: a node takes a lock away and its answer is lost; the holder lets go of the others
/// before they are asked. The operator is not told that nothing was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_revocation_is_lost() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let first = connect(&nodes.url()).await;
    let mut was_lost = false;
    for _ in 0..10 {
        let operator = connect(&ways.url_with("")).await;
        let guard = hold_on_all(&first, &nodes, NAME, ttl(TTL)).await;
        ways.0[0].set(Link::Delay(Duration::from_millis(40)));
        ways.0[1..].iter().for_each(|way| way.set(Link::Delay(Duration::from_millis(100))));
        let revoking = tokio::spawn(async move { operator.revoke(NAME, "maintenance").await });
        loss(&guard, TIME_MAX).await;
        ways.0[0].set(Link::Close);
        drop(guard.release().await);
        let is_free = nodes.count_key(NAME) == 0;
        match bounded(revoking).await.unwrap() {
            Ok(RevokeOutcome::Revoked(holders)) => assert_eq!(holders.len(), 1),
            Ok(outcome) => panic!("{outcome:?}"),
            Err(error) => check_error(&error, ErrorKind::NoQuorum, &[]),
        }
        was_lost |= is_free;
        ways.0.iter().for_each(|way| way.set(Link::Pass));
    }
    assert!(was_lost, "the holder was slower each time");
}

/// P7, P8: a lock is taken away on all nodes, and no answer comes. Whoever has it next keeps it, also when
/// the operator asks again as it is told to, by the fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_without_an_answer_spares_the_next() {
    const TTL: Duration = Duration::from_secs(6);
    // Answers come this much later than the holder is told.
    const DELAY: Duration = Duration::from_millis(250);
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let operator = connect(&ways.url_within("2s", "")).await;
    let guard = hold_on_all(&first, &nodes, NAME, ttl(TTL)).await;
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    ways.0.iter().for_each(|way| way.set(Link::Delay(DELAY)));
    let asking = operator.clone();
    let revoking = tokio::spawn(async move { asking.revoke(NAME, "it hangs").await });
    let cause = loss(&guard, TIME_MAX).await;
    assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
    ways.0.iter().for_each(|way| way.set_open(Link::SwallowReplies));
    let next = bounded(waiter).await.unwrap();
    for way in &ways.0 {
        // What has a hole cannot go on, and whoever would ask again gets through.
        way.reset_open();
        way.set(Link::Pass);
    }
    let error = bounded(revoking).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::NoQuorum, &[]);
    wait_for_renewal(&next, TTL).await;
    let mut again = None;
    eventually("it is answered", TIME_MAX, async || {
        again = bounded(operator.revoke_fence(NAME, guard.fence(), "it hangs")).await.ok();
        again.is_some()
    })
    .await;
    assert!(matches!(again, Some(RevokeOutcome::OtherFence(_))), "{again:?}");
    wait_for_renewal(&next, TTL).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// B145, P10: servers that change places behind their addresses are taken for what they are, and
/// the locks go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_change_places() {
    let nodes = Nodes::start(3);
    let posts: Vec<Signpost> = nodes.0.iter().map(|it| Signpost::to(it.address())).collect();
    let hosts: Vec<String> = posts.iter().map(|post| post.address().to_string()).collect();
    let locker = connect(&format!("redlock://{}?node_timeout=500ms", hosts.join(","))).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    posts[0].turn_to(nodes.0[1].address());
    posts[1].turn_to(nodes.0[0].address());
    let mutex = locker.mutex("other").unwrap().with_options(ttl(TTL));
    eventually("all nodes take part", TIME_MAX, async || {
        let attempt = bounded(mutex.try_acquire()).await;
        let is_granted = matches!(attempt, Ok(Attempt::Acquired(_)));
        is_granted && nodes.count_key("other") == 3
    })
    .await;
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    // Two addresses of one server are still refused.
    posts[0].turn_to(nodes.0[2].address());
    eventually("it is refused", TIME_MAX, async || {
        let Ok(Attempt::Acquired(guard)) = bounded(mutex.try_acquire()).await else { return false };
        let votes = nodes.count_key("other");
        drop(guard.release().await);
        votes == 2
    })
    .await;
}

/// B149, P3: on a way that takes longer than a tenth of the ttl, leases are renewed within the time
/// that nodes were given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewing_over_a_slow_way() {
    const BRIEF: Duration = Duration::from_secs(6);
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_within("900ms", "")).await;
    let guard = hold(&locker, NAME, ttl(BRIEF)).await;
    ways.0.iter().for_each(|way| way.set(Link::Delay(Duration::from_millis(330))));
    tokio::time::sleep(BRIEF * 2).await;
    assert!(guard.check().is_ok(), "{:?}", guard.status());
}

/// B146, P11: on a way that is slower than most, locks are seen, listed and taken away within the
/// time that nodes were given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_over_a_slow_way() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let (holder, looker) =
        (connect(&nodes.url()).await, connect(&ways.url_within("900ms", "")).await);
    let guard = hold_on_all(&holder, &nodes, NAME, ttl(TTL)).await;
    ways.0.iter().for_each(|way| way.set(Link::Delay(Duration::from_millis(200))));
    let view = bounded(looker.inspect(guard.name())).await.unwrap();
    assert!(view.holders.len() == 1 && view.holders[0].label.is_some(), "{view:?}");
    assert_eq!(bounded(looker.list("", None, 10)).await.unwrap().len(), 1);
    let outcome = bounded(looker.revoke(NAME, "maintenance")).await.unwrap();
    assert!(matches!(outcome, RevokeOutcome::Revoked(_)), "{outcome:?}");
}

/// B146, P11: an operator who does not even reach enough nodes to look is told that nothing was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_out_of_reach() {
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let (holder, operator) = (connect(&nodes.url()).await, connect(&ways.url_with("")).await);
    let guard = hold_on_all(&holder, &nodes, NAME, ttl(TTL)).await;
    ways.0[1..].iter().for_each(|way| way.set(Link::Close));
    let error = bounded(operator.revoke(NAME, "maintenance")).await.unwrap_err();
    check_error(&error, ErrorKind::NoQuorum, &["nothing was done"]);
    assert!(error.is_without_effect());
    assert!(guard.check().is_ok());
}

/// B144, P5: a batch that tells a node who we are, and that arrives when there is a new connection,
/// does not let the old one speak for us again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enrolment_that_comes_too_late() {
    const WAY: Duration = Duration::from_millis(300);
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    let (node, way) = (&nodes.0[2], &ways.0[2]);
    let client = node.cli(&["KEYS", "lockfast:client:*"]);
    let mut tries = 0;
    let late = loop {
        tries += 1;
        assert!(tries <= 20, "it arrived in time each time");
        let name = format!("{NAME} {tries}");
        drop(hold_on_all(&locker, &nodes, "ready", ttl(TTL)).await.release().await);
        eventually("nothing is asked", SLACK, async || nodes.count_key("ready") == 0).await;
        node.cli(&["DEL", &client]);
        let (accepted, refused) = (way.accepted(), refused_calls(node));
        way.set_open(Link::Delay(WAY));
        let guard = hold(&locker, &name, ttl(TTL)).await;
        eventually("it knows nobody", SLACK, async || refused_calls(node) > refused).await;
        // Before the answer is there, so that what follows it is held up.
        way.set_open(Link::HoldRequests);
        eventually("a new connection", TIME_MAX, async || way.accepted() > accepted).await;
        drop(hold_on_all(&locker, &nodes, "ready", ttl(TTL)).await.release().await);
        if node.cli(&["EXISTS", &name]) == "0" {
            break guard;
        }
    };
    let known = node.cli(&["GET", &client]);
    assert!(!known.is_empty());
    let (asked, refused) = (calls(node), refused_calls(node));
    way.set_open(Link::Pass);
    eventually("it arrives", SLACK, async || calls(node) > asked).await;
    eventually("it is refused", SLACK, async || refused_calls(node) > refused).await;
    assert_eq!(node.cli(&["GET", &client]), known);
    assert_eq!(node.cli(&["EXISTS", late.name().as_str()]), "0", "it was served");
}
