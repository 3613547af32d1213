use lockfast_core::{
    Address, ClientId, ConnectContext, HolderId, Label, LockName, LossReporter, Mode, Result,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::*;
use crate::config::Config;
use crate::record::Seen;
use crate::wire::{Dialer, Pipeline, Traffic as _};

/// A store of three nodes that nobody is connected to: what is asked of them stays in their queues.
fn store() -> Result<Arc<Store>> {
    let address = Address::parse("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")?;
    let config = Config::read(&address)?;
    let dialer = |node: &crate::wire::Config| Arc::new(Dialer::new(node.clone()).unwrap());
    let dialers = config.nodes.iter().map(dialer).collect();
    let context = ConnectContext {
        runtime: Handle::current(),
        client: ClientId::random()?,
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    Ok(Store::new(config, dialers, context))
}

fn request(store: &Store) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new("nightly").unwrap(),
        mode: Mode::Exclusive,
        holder: HolderId::random(store.client).unwrap(),
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        wait: Wait::Forever,
        detached: false,
        floor: None,
    }
}

/// Asks, and lets the first node be sent what there is.
fn ask(store: &Arc<Store>, request: &AcquireRequest) -> Arc<Claim> {
    let (asker, _) = oneshot::channel();
    store.acquire(request.clone(), asker);
    store.find(request.holder).unwrap()
}

/// How many releases the first node is sent.
fn releases(store: &Store) -> usize {
    let sent = store.nodes[0].load(&mut Pipeline::default());
    sent.map_or(0, |(batch, _)| batch.gives.len())
}

/// B12, P1: a grant that nobody heard is given back, but not when the holder has asked again and is
/// told of it by then.
#[tokio::test]
async fn who_asks_again_keeps_what_it_has() {
    let store = store().unwrap();
    let request = request(&store);
    let earlier = ask(&store, &request);
    assert_eq!(releases(&store), 0);
    ask(&store, &request);
    // What the deciding vote does when it finds that nobody listens any more.
    store.give_up(&earlier, Ending::Hold);
    assert_eq!(releases(&store), 0);
}

/// B12, P1: when it asks again while that is being given back, it gets a higher fence, and what is
/// on its way undoes only the lower one.
#[tokio::test]
async fn who_asks_again_during_a_release_gets_a_higher_fence() {
    let store = store().unwrap();
    let request = request(&store);
    let earlier = ask(&store, &request);
    assert_eq!(releases(&store), 0);
    for node in 0..2 {
        store.vote(&earlier, 1, node, Said::Granted);
    }
    assert!(store.find(request.holder).is_none(), "nobody heard of it");
    let (asker, _told) = oneshot::channel();
    let again = Claim::new(request, 3, asker);
    again.succeed(&earlier);
    assert!(again.state().was_undone);
    assert_eq!(releases(&store), 1);
}

/// B86, P10: a wait that ends while nodes are late is over because the lock is taken, as they said
/// before; a wait that they never answered is not.
#[tokio::test]
async fn who_waited_in_vain_is_told_that_it_is_taken() {
    let late = || Said::Late(Duration::from_millis(5));
    let held = || {
        let left = Some(Duration::from_secs(9));
        Said::Held(Seen { value: b"another".to_vec(), left, callers: 1, place: Some(0) })
    };
    for (before, is_expected) in [(held as fn() -> Said, true), (late as fn() -> Said, false)] {
        let store = store().unwrap();
        let until = Moment::now() + Duration::from_millis(30);
        let request = AcquireRequest { wait: Wait::Until(until), ..request(&store) };
        let (asker, answer) = oneshot::channel();
        store.acquire(request.clone(), asker);
        let claim = store.find(request.holder).unwrap();
        (0..3).for_each(|node| store.vote(&claim, 1, node, before()));
        tokio::time::sleep(until.remaining(Moment::now()) + Duration::from_millis(1)).await;
        store.lobby.take(request.holder).unwrap();
        store.retry(&claim);
        for (node, said) in [late(), late(), held()].into_iter().enumerate() {
            store.vote(&claim, 2, node, said);
        }
        // The answer comes when what may be left is undone, or cannot be.
        let gone = Failure::new(ErrorKind::Unreachable, "gone");
        store.nodes.iter().for_each(|node| node.fail_waiting(&gone));
        let Ok(Outcome::Refused { votes, is_taken }) = answer.await else { panic!("no answer") };
        assert_eq!(is_taken, is_expected, "{votes:?}");
    }
}

/// B64: a node that is slower than the others still learns who waits, and grants it nothing, because
/// nobody counts its vote any more.
#[tokio::test]
async fn a_slow_node_learns_who_waits() {
    let store = store().unwrap();
    let request = request(&store);
    let (asker, _answer) = oneshot::channel();
    store.acquire(request.clone(), asker);
    let claim = store.find(request.holder).unwrap();
    let send = |node: usize| {
        let sent = store.nodes[node].load(&mut Pipeline::default());
        let takes = sent.map_or_else(Vec::new, |(batch, _)| batch.takes);
        takes.iter().map(|sent| (sent.counts, sent.ticket.how)).collect::<Vec<_>>()
    };
    for node in 0..2 {
        assert_eq!(send(node), [(true, 1)]);
        let left = Some(Duration::from_secs(9));
        let seen = Seen { value: b"another".to_vec(), left, callers: 1, place: Some(0) };
        store.vote(&claim, 1, node, Said::Held(seen));
    }
    assert_eq!(claim.state().phase, Phase::Waiting);
    assert_eq!(send(2), [(false, 8)]);
    assert!(claim.was_sent(2), "what it is told is undone in the end");
}

/// B140, P4: an acquisition goes by the nodes' clocks when so many say that ours is ahead that no
/// quorum can be had without them; the next one goes by our own again.
#[tokio::test]
async fn the_nodes_clocks_are_followed_for_one_try() {
    const BEHIND_US: u64 = 600_000_000;
    let now_us = lockfast_core::time::wall_clock_us();
    let ahead = || Said::Ahead(now_us - BEHIND_US);
    let store = store().unwrap();
    let request = request(&store);
    let claim = ask(&store, &request);
    assert!(claim.state().proposal >= now_us);
    (0..2).for_each(|node| store.vote(&claim, 1, node, ahead()));
    let low = claim.state().proposal;
    assert!((now_us - BEHIND_US..now_us - BEHIND_US / 2).contains(&low), "{low}");
    // Also when that must be raised, as where they have seen more.
    (0..2).for_each(|node| store.vote(&claim, 2, node, Said::TooLow(low + 9)));
    assert_eq!(claim.state().proposal, low + 10);
    let next = ask(&store, &self::request(&store));
    assert!(next.state().proposal >= now_us);
}

/// B140, P4: one node of three that says so is not believed, also when another is silent.
#[tokio::test]
async fn the_clock_of_one_node_is_not_followed() {
    let now_us = lockfast_core::time::wall_clock_us();
    let store = store().unwrap();
    let claim = ask(&store, &request(&store));
    store.vote(&claim, 1, 0, Said::Late(Duration::ZERO));
    store.vote(&claim, 1, 1, Said::Granted);
    store.vote(&claim, 1, 2, Said::Ahead(now_us - 600_000_000));
    assert_eq!(claim.state().phase, Phase::Waiting);
    store.retry(&claim);
    assert!(claim.state().proposal >= now_us);
}

/// B139, P1: what an operator takes away on a node before a quorum has granted it does not count,
/// whether the node's answer was heard before that or comes after it.
#[tokio::test]
async fn what_is_taken_away_before_it_is_a_hold_does_not_count() {
    for is_heard_first in [true, false] {
        let store = store().unwrap();
        let request = request(&store);
        let (asker, _answer) = oneshot::channel();
        store.acquire(request.clone(), asker);
        let claim = store.find(request.holder).unwrap();
        let message = format!("R\t{}\tmaintenance", claim.tag());
        if is_heard_first {
            store.vote(&claim, 1, 0, Said::Granted);
        }
        store.hear(0, message.as_bytes());
        store.vote(&claim, 1, 0, Said::Granted);
        store.vote(&claim, 1, 1, Said::Granted);
        assert_eq!(claim.state().phase, Phase::Asking);
        store.vote(&claim, 1, 2, Said::Granted);
        assert!(matches!(claim.state().phase, Phase::Held(_)));
    }
}
