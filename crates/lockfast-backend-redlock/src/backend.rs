//! The store as the lease engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, Feature, Guarantee, LockName, LockView,
    Moment, Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
    Result, RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::answer::to_error;
use crate::ballot::Said;
use crate::batch::LOCKS_MAX;
use crate::claim::Outcome;
use crate::clerk::Clerk;
use crate::config::Config;
use crate::node::Node;
use crate::renewal::renew_all;
use crate::store::{Store, check_name};
use crate::watcher;
use crate::wire::{Connection, Dialer, Failure, Link, connect as connect_node};

/// How long a node may take to be connected to. One that is out of reach must not keep the
/// others waiting.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// A connection to each node.
pub(crate) struct Redlock {
    store: Arc<Store>,
    profile: Profile,
    _links: Vec<Link<Node>>,
    /// What runs in the background as long as this is there.
    tasks: Vec<AbortHandle>,
}

/// Connects to the nodes at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let config = Config::read(&address)?;
    let profile = profile(config.nodes.len());
    let mut dialers = Vec::with_capacity(config.nodes.len());
    for node in &config.nodes {
        let mut node = node.clone();
        node.request_timeout = CONNECT_MAX;
        dialers.push(Arc::new(Dialer::new(node).map_err(|failure| to_error(&failure))?));
    }
    if config.nodes.len() % 2 == 0 {
        tracing::warn!(
            nodes = config.nodes.len(),
            "an even number of nodes tolerates no more failures than one node less"
        );
    }
    let runtime = context.runtime.clone();
    let store = Store::new(config, dialers, context);
    let dials: Vec<_> = store
        .nodes
        .iter()
        .map(|node| {
            let node = Arc::clone(node);
            let dialling = async move { connect_node(node.dialer(), node.as_ref()).await };
            Task::start(&runtime, dialling)
        })
        .collect();
    let mut reached = Vec::with_capacity(dials.len());
    for dial in dials {
        reached.push(dial.finish().await);
    }
    check_reached(&store, &reached)?;
    let links = store.nodes.iter().zip(reached).map(|(node, connection)| {
        let (traffic, dialer) = (Arc::clone(node), Arc::clone(node.dialer()));
        let link = match connection {
            Ok(connection) => Link::start(&runtime, traffic, dialer, connection),
            Err(failure) => {
                node.go_down(&failure);
                Link::start_later(&runtime, traffic, dialer)
            }
        };
        node.open(link.pump());
        link
    });
    let links = links.collect();
    let tending = Arc::clone(&store);
    let tasks = [
        runtime.spawn(async move { tending.lobby.tend(|claim| tending.retry(claim)).await }),
        runtime.spawn(Clerk::work(Arc::clone(&store))),
        runtime.spawn(Arc::clone(&store).sweep()),
    ];
    let tasks = tasks.iter().map(JoinHandle::abort_handle).collect();
    Ok(Arc::new(Redlock { store, profile, _links: links, tasks }))
}

/// A minority may be out of reach, but a node that will never do is an error.
fn check_reached(
    store: &Store,
    reached: &[std::result::Result<Connection, Failure>],
) -> Result<()> {
    let failures = reached.iter().filter_map(|connection| connection.as_ref().err());
    if let Some(failure) = failures.clone().find(|failure| failure.kind() != ErrorKind::Unreachable)
    {
        return Err(to_error(failure));
    }
    if reached.len() - failures.count() >= store.config.quorum {
        return Ok(());
    }
    let votes = reached.iter().map(|connection| match connection {
        Ok(_) => Said::Granted,
        Err(failure) => Said::Failed(failure.clone()),
    });
    Err(store.no_quorum(votes.collect(), &Default::default()))
}

const ONE_HOLDER: &str = "several servers that do not know each other can only grant a lock to one \
                          holder at a time; use another store";

/// Why it keeps no values.
const NO_ORDER: &str = "its nodes know nothing of each other, so that no write is the last on all of \
     them; use a store that decides in one place";

/// What this store promises on so many servers.
pub(crate) fn profile(nodes: usize) -> Profile {
    Profile {
        backend: "redlock",
        guarantee: Guarantee::Efficiency,
        because: match nodes % 2 {
            0 => {
                "a quorum of servers decides, but who holds a lock depends on their clocks and on \
                 what they remember; an even number of them tolerates no more failures than one \
                 less"
            }
            _ => {
                "a quorum of servers decides, but who holds a lock depends on their clocks and on \
                 what they remember"
            }
        },
        order: Order::None,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[
            (Feature::Shared, ONE_HOLDER),
            (Feature::Permits, ONE_HOLDER),
            (Feature::Downgrade, ONE_HOLDER),
            (Feature::Values, NO_ORDER),
        ],
    }
}

impl Drop for Redlock {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.store.nodes.iter().map(|node| node.name.as_str()).collect();
        f.debug_struct("Redlock").field("nodes", &nodes).finish_non_exhaustive()
    }
}

impl Redlock {
    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let start = Moment::now();
        let name = request.name.clone();
        check_name(self.store.config.prefix(), &name)?;
        let (asker, answer) = oneshot::channel();
        self.store.acquire(request, asker);
        let named = |error: Error| error.with_backend("redlock").with_lock(&name);
        match answer.await {
            Ok(Outcome::Granted(grant)) => Ok(AcquireOutcome::Granted(grant)),
            Ok(Outcome::Failed(failure)) => Err(to_error(&failure).with_lock(&name)),
            Ok(Outcome::Refused { votes, is_taken }) => {
                let waited = Moment::now().since(start);
                let (lock, votes) = self.store.name_refusal(&name, &votes).await;
                if is_taken {
                    return Ok(AcquireOutcome::Taken(Refusal::new(lock, waited).with_votes(votes)));
                }
                Err(named(Error::no_quorum(self.store.config.quorum, votes)))
            }
            Err(_) => Err(named(Error::new(
                ErrorKind::Unreachable,
                "the claim was given up, or the connections were closed",
            ))),
        }
    }

    async fn give(&self, request: ReleaseRequest) -> Result<ReleaseOutcome> {
        let name = request.name.clone();
        let outcome = self.store.give(request.name, request.holder).await;
        outcome.map_err(|votes| self.store.no_quorum(votes, &Default::default()).with_lock(&name))
    }
}

impl Backend for Redlock {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(renew_all(&self.store, batch, 2 * LOCKS_MAX))
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Downgrade);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(self.give(request))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(self.store.inspect(query))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.store.revoke(request))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move { Err(self.profile().unsupported(Feature::Values).with_lock(&name)) })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Values);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(watcher::open(Arc::clone(&self.store)))
    }
}
