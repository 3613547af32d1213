//! Leases that are renewed together, over a way that takes its time.

use std::sync::Arc;
use std::time::Duration;

use lockfast_backend_zookeeper::connect;
use lockfast_core::{
    AcquireOutcome, Address, Backend, ClientId, ConnectContext, Label, LossReporter, Moment,
    RenewOutcome, RenewRequest, Wait,
};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};
use tokio::runtime::Handle;

use crate::kit::{Kind, Setup, TIME_MAX, bounded, eventually, request, url_at};

/// Few enough that all are granted before the first has moved.
const LOCKS: usize = 40;
/// A seventh of it is what a batch may take.
const TTL: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_millis(100);

/// A connection without the lease engine, which would renew in batches of its own.
async fn connect_to(url: &str, client: ClientId) -> Arc<dyn Backend> {
    let context = ConnectContext {
        runtime: Handle::current(),
        client,
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    bounded(connect(Address::parse(url).unwrap(), context)).await.unwrap()
}

/// B118: P10. Locks that were handed over together are renewed in one batch before any has moved to the
/// session of its leases: all are confirmed at the same time, and not one after the other.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brief_grants_are_confirmed_side_by_side() {
    let server = Setup::new().line("maxSessionTimeout=60000").start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let client = ClientId::random().unwrap();
    let backend = connect_to(&url_at(proxy.address()), client).await;
    let names: Vec<String> = (0..LOCKS).map(|number| format!("many-{number}")).collect();
    // All its nodes go in one step, when its session ends.
    let mut dying = server.session();
    let mut waiters = Vec::new();
    for name in &names {
        dying.create(&format!("/{name}"), b"");
        let claim = format!("/{name}/lock-");
        dying.try_create(&claim, b"", Kind::EphemeralSequential, &[]).unwrap();
        let (backend, request) = (Arc::clone(&backend), request(client, name, TTL, Wait::Forever));
        waiters.push(tokio::spawn(async move {
            let renewal = RenewRequest {
                name: request.name.clone(),
                holder: request.holder,
                ttl: TTL,
                lock_delay: Duration::ZERO,
            };
            let outcome = backend.acquire(request).await.unwrap();
            assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
            renewal
        }));
    }
    let mut session = server.session();
    let mut has_waiter = |name: &String| session.children(&format!("/{name}")).len() == 2;
    eventually("all wait", TIME_MAX, async || names.iter().all(&mut has_waiter)).await;
    proxy.set(Link::Delay(DELAY));
    drop(dying);
    let mut batch = Vec::new();
    for waiter in waiters {
        batch.push(bounded(waiter).await.unwrap());
    }
    let machine = Lateness::watch();
    let start = Moment::now();
    let outcomes = bounded(backend.renew(batch)).await.unwrap();
    machine.check("to confirm all", DELAY * 20, start, Moment::now());
    let is_renewed = |outcome: &RenewOutcome| matches!(outcome, RenewOutcome::Renewed);
    assert!(outcomes.iter().all(is_renewed), "{outcomes:?}");
}
