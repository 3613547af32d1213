//! The store as the lease engine sees it.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::error::quote;
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ClientId, ConnectContext,
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, EventStream, Guarantee, LockName,
    LockView, LossCause, Moment, Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue,
    WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::batch::{Give, LOCKS_MAX, Op, Plain, Renew, Renewal, Take, Then};
use crate::claim::{Answer, Claim};
use crate::cluster::Cluster;
use crate::config::{Config, Endpoint, OnDataLoss};
use crate::inspect::{Listing, labels_soon};
use crate::record::{self, Keys, Seen};
use crate::slot;
use crate::store::Store;
use crate::values::Tries;
use crate::watcher;
use crate::wire::dial::Dialer;
use crate::wire::link::{self, Link};
use crate::wire::sentinel;
use crate::wire::{Failure, Pipeline, Reply, failure};

/// A connection to a server.
pub(crate) struct Redis {
    pub(crate) store: Arc<Store>,
    profile: Profile,
    pub(crate) listing: Mutex<Option<Listing>>,
    pub(crate) tries: Tries,
    _reach: Reached,
    /// What runs in the background as long as this is there.
    tasks: Vec<AbortHandle>,
}

/// What keeps the connections open.
enum Reached {
    Server { _link: Link<Store> },
    Cluster { _cluster: Arc<Cluster> },
}

/// Connects to a cluster.
async fn connect_cluster(
    dialer: Arc<Dialer>,
    seeds: Vec<Endpoint>,
    context: ConnectContext,
) -> Result<Arc<dyn Backend>> {
    if dialer.config().on_data_loss != OnDataLoss::Warn {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "on_data_loss=quarantine does not work on a cluster, where each master can lose its \
             data alone; leave it out or use one server",
        )
        .with_backend("redis"));
    }
    let runtime = context.runtime.clone();
    let opening = Task::start(&runtime, Cluster::open(dialer, seeds, context));
    let cluster = opening.finish().await.map_err(|failure| failure.to_error())?;
    let store = cluster.front();
    // Before the first lock, so that whoever meets it knows whose it is.
    let is_written = Cluster::write_label(&store).await;
    let tasks = vec![
        runtime.spawn(Arc::clone(&store).tend_lobby()).abort_handle(),
        runtime.spawn(Cluster::keep_label(Arc::clone(&store), is_written)).abort_handle(),
    ];
    let reach = Reached::Cluster { _cluster: cluster };
    Ok(Arc::new(Redis::new(store, reach, tasks)))
}

/// Connects to the server at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let named = |failure: Failure| failure.to_error();
    let dialer = Arc::new(Dialer::new(Config::read(&address)?).map_err(named)?);
    if let Endpoint::Cluster(nodes) = &dialer.config().endpoint {
        let seeds = nodes.seeds.clone();
        return connect_cluster(dialer, seeds, context).await;
    }
    let runtime = context.runtime.clone();
    let store = Store::new(Arc::clone(&dialer), context);
    let dialling = Task::start(&runtime, {
        let (dialer, store) = (Arc::clone(&dialer), Arc::clone(&store));
        async move { link::connect(&dialer, store.as_ref()).await }
    });
    let connection = dialling.finish().await.map_err(named)?;
    let link = Link::start(&runtime, Arc::clone(&store), dialer, connection);
    store.open(link.pump());
    let mut tasks = vec![runtime.spawn(Arc::clone(&store).tend_lobby()).abort_handle()];
    if let Endpoint::Service(service) = &store.config().endpoint {
        let pump = link.pump();
        let following = sentinel::follow(Arc::clone(&store.dialer), service.clone(), move |it| {
            pump.move_to(it);
        });
        tasks.push(runtime.spawn(following).abort_handle());
    }
    let reach = Reached::Server { _link: link };
    Ok(Arc::new(Redis::new(store, reach, tasks)))
}

/// What this store promises.
pub(crate) fn profile(on_data_loss: &OnDataLoss) -> Profile {
    Profile {
        backend: "redis",
        guarantee: Guarantee::Efficiency,
        because: "one server decides, but what it has granted can be lost with its memory or in a \
                  failover",
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: match *on_data_loss {
            OnDataLoss::Warn => TtlLimits::LOCKFAST,
            OnDataLoss::Quarantine { max_ttl } => TtlLimits {
                max: max_ttl.clamp(TtlLimits::LOCKFAST.min, TtlLimits::LOCKFAST.max),
                because: "the quarantine is made for the longest; the URL's option max_ttl sets it",
                ..TtlLimits::LOCKFAST
            },
        },
        lacks: &[],
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("endpoint", &self.store.config().endpoint)
            .finish_non_exhaustive()
    }
}

impl Redis {
    fn new(store: Arc<Store>, reach: Reached, tasks: Vec<AbortHandle>) -> Self {
        let profile = profile(&store.config().on_data_loss);
        let (listing, tries) = (Mutex::default(), Tries::default());
        Self { store, profile, listing, tries, _reach: reach, tasks }
    }

    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let start = Moment::now();
        self.check(&request)?;
        let claim = Arc::new(Claim::new(request));
        self.make_way(&claim).await?;
        let (asker, answer) = oneshot::channel();
        let mut asking = Asking { store: &self.store, claim: &claim, is_open: true };
        self.store.submit(Op::Take(Take::first(Arc::clone(&claim), asker)));
        let answer = receive(answer).await.map_err(|error| error.with_lock(&claim.name));
        asking.is_open = answer.as_ref().is_err_and(leaves_open);
        let answer = answer?;
        self.store.unsettled.settle(claim.holder);
        match answer {
            Answer::Granted(grant) => Ok(AcquireOutcome::Granted(grant)),
            Answer::Taken(seen) => {
                let waited = Moment::now().since(start);
                let lock = self.name_holders(&claim.name, &seen).await;
                Ok(AcquireOutcome::Taken(Refusal::new(lock, waited)))
            }
        }
    }

    fn check(&self, request: &AcquireRequest) -> Result<()> {
        check_name(&self.store.config().prefix, &request.name)?;
        check_slot(&self.store, &request.name)?;
        let OnDataLoss::Quarantine { max_ttl } = self.store.config().on_data_loss else {
            return Ok(());
        };
        if request.ttl + request.lock_delay > max_ttl {
            return Err(Error::new(
                ErrorKind::InvalidTtl,
                format!(
                    "ttl and lock-delay are {:?} together, but the quarantine is made for {max_ttl:?}; \
                     raise the URL's option max_ttl",
                    request.ttl + request.lock_delay
                ),
            )
            .with_backend("redis")
            .with_lock(&request.name));
        }
        Ok(())
    }

    /// An earlier request of the same holder that waits in another way gives way to this one.
    async fn make_way(&self, claim: &Claim) -> Result<()> {
        let waiting = self.store.lobby.find(claim.holder);
        if let Some(earlier) = waiting.clone().or_else(|| self.store.unsettled.find(claim.holder)) {
            claim.inherit(&earlier);
        }
        let Some(earlier) = waiting else { return Ok(()) };
        if earlier.mode != claim.mode {
            let error = Error::already_held(claim.mode, earlier.mode);
            return Err(error.with_backend("redis").with_lock(&claim.name));
        }
        if earlier.text != claim.text {
            self.give(claim.name.clone(), claim.holder).await?;
        }
        Ok(())
    }

    async fn give(
        &self,
        name: LockName,
        holder: lockfast_core::HolderId,
    ) -> Result<ReleaseOutcome> {
        if check_slot(&self.store, &name).is_err() {
            return Ok(ReleaseOutcome::NotHeld);
        }
        // Whoever still waits for it is told that it is over.
        if let Some(waiter) = self.store.lobby.take(holder) {
            self.store.unsettled.note(&waiter.claim);
        }
        let (asker, answer) = oneshot::channel();
        let claim = self.store.unsettled.find(holder);
        let give = Give::new(name.clone(), holder, Then::Tell(asker));
        self.store.submit(Op::Give(Give { claim, ..give }));
        receive(answer).await.map_err(|error| error.with_lock(&name))
    }

    async fn renew_some(&self, leases: Arc<[RenewRequest]>) -> Result<Vec<RenewOutcome>> {
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Renew(Renew::new(leases, asker)));
        let renewals = receive(answer).await?;
        Ok(self.name_takers(renewals).await)
    }

    /// What the holders of leases are told, with who took what they have lost.
    pub(crate) async fn name_takers(&self, renewals: Vec<Renewal>) -> Vec<RenewOutcome> {
        let unknown: HashSet<ClientId> = renewals
            .iter()
            .filter_map(|renewal| match renewal {
                Renewal::TakenBy(Some(client)) => Some(*client),
                _ => None,
            })
            .collect();
        let labels = labels_soon(&self.store, unknown).await;
        let outcome = |renewal| match renewal {
            Renewal::Unanswered(failure) => RenewOutcome::Unanswered(failure.to_error()),
            Renewal::Renewed => RenewOutcome::Renewed,
            Renewal::Lost(cause) => RenewOutcome::Lost(cause),
            Renewal::TakenBy(client) => RenewOutcome::Lost(LossCause::Taken {
                by: client.and_then(|client| labels.get(&client)).map(ToString::to_string),
            }),
        };
        renewals.into_iter().map(outcome).collect()
    }

    /// Sends other commands and waits for their replies.
    pub(crate) async fn ask(
        &self,
        slot: Option<u16>,
        write: impl Fn(&mut Pipeline) + Send + Sync + 'static,
    ) -> Result<Vec<Reply>> {
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Plain(Plain { write: Box::new(write), asker, slot, tries: 0 }));
        receive(answer).await
    }

    async fn seize(&self, request: RevokeRequest) -> Result<RevokeOutcome> {
        check_name(&self.store.config().prefix, &request.name)?;
        check_slot(&self.store, &request.name)?;
        let store = Arc::clone(&self.store);
        let RevokeRequest { name, expect_fence, reason } = request;
        let lock = name.clone();
        let replies = self
            .ask(slot::of_lock(&store.config().prefix, lock.as_str()), move |pipeline| {
                store.scripts().revoke.call(pipeline, 9, 5);
                store.write_head(pipeline, &lock, None);
                Keys { prefix: &store.config().prefix, name: lock.as_str() }.write_all(pipeline);
                store.write_enrolled(pipeline);
                pipeline.part(expect_fence.map(|fence| fence.to_string()).unwrap_or_default());
                pipeline.part(&reason);
            })
            .await
            .map_err(|error| error.with_lock(&name))?;
        let fields = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
        let fields = fields.unwrap_or_default();
        let seen =
            fields.split_first().and_then(|(code, rest)| Some((code.as_int()?, Seen::read(rest)?)));
        let Some((code, seen)) = seen else {
            return Err(failure::of_nonsense("a revocation of another form").to_error());
        };
        let holders = self.name_holders(&name, &seen).await.holders;
        Ok(match code {
            0 => RevokeOutcome::NotHeld,
            1 => RevokeOutcome::Revoked(holders),
            _ => RevokeOutcome::OtherFence(holders),
        })
    }
}

/// An acquisition under way: unless its answer is known when this is dropped, it is unsettled.
struct Asking<'a> {
    store: &'a Store,
    claim: &'a Arc<Claim>,
    is_open: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.store.unsettled.note(self.claim);
        }
    }
}

/// Whether an acquisition or write that ended so may have been served, or wait.
pub(crate) fn leaves_open(error: &Error) -> bool {
    [ErrorKind::Unreachable, ErrorKind::WrongNode, ErrorKind::Internal].contains(&error.kind())
}

pub(crate) async fn receive<T>(answer: oneshot::Receiver<Result<T, Failure>>) -> Result<T> {
    match answer.await {
        Ok(answer) => answer.map_err(|failure| failure.to_error()),
        Err(_) => Err(Error::new(
            ErrorKind::Unreachable,
            "the claim was given up, or the connection was closed",
        )
        .with_backend("redis")),
    }
}

/// Sends commands to one server and waits for their replies.
pub(crate) async fn ask_at(
    server: &Store,
    write: impl Fn(&mut Pipeline) + Send + Sync + 'static,
) -> Result<Vec<Reply>> {
    let (asker, answer) = oneshot::channel();
    let plain = Plain { write: Box::new(write), asker, slot: None, tries: 0 };
    server.submit_here(Op::Plain(plain));
    receive(answer).await
}

/// On a cluster, a lock and its bookkeeping must be in one slot.
pub(crate) fn check_slot(store: &Store, name: &LockName) -> Result<()> {
    if store.cluster.is_none() || slot::of_lock(&store.config().prefix, name.as_str()).is_some() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        format!(
            "{} cannot be the name of a lock on a Redis Cluster: its braces would put the lock \
             and its queue into different slots; leave the closing brace out",
            quote(name.as_str())
        ),
    )
    .with_backend("redis"))
}

pub(crate) fn check_name(prefix: &str, name: &LockName) -> Result<()> {
    let is_reserved = match prefix {
        "" => name.as_str().starts_with(record::RESERVED),
        _ => format!("{prefix}{name}").starts_with(record::RESERVED),
    };
    if is_reserved {
        return Err(Error::new(
            ErrorKind::InvalidName,
            format!(
                "{} is not a lock name on Redis: keys that start with {} are Lockfast's own",
                quote(name.as_str()),
                quote(record::RESERVED)
            ),
        )
        .with_backend("redis"));
    }
    Ok(())
}

impl Backend for Redis {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            for leases in batch.chunks(2 * LOCKS_MAX) {
                outcomes.extend(self.renew_some(leases.into()).await?);
            }
            Ok(outcomes)
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(self.share(request))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(self.give(request.name, request.holder))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async move {
            match query {
                Query::Name(name) => {
                    check_slot(&self.store, &name)?;
                    self.look_at(vec![name]).await
                }
                Query::Prefix { prefix, after, limit } => {
                    self.list(&prefix, after.as_ref(), limit).await
                }
            }
        })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.seize(request))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(self.read_value(name))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(self.write_value(request))
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(watcher::open(Arc::clone(&self.store)))
    }
}
