use lockfast_core::{
    Address, ClientId, ConnectContext, HolderId, Label, LockName, LossReporter, Mode, Result,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::*;
use crate::config::Config;
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
        losses: LossReporter::new(|_, _| {}),
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
