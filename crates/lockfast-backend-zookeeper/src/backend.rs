//! The store as the lease engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::capability::{Expiry, Feature, FenceSurvival, Order, Reach, TtlLimits};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, Change, ConnectContext,
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, EventStream, Guarantee, LockName,
    LockView, Profile, Query, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result,
    RevokeOutcome, RevokeRequest, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::claim::{Asker, Claim, Gone, Phase};
use crate::config::Config;
use crate::failure::Failure;
use crate::store::{Store, lock};
use crate::wire::{Dialer, Proof};
use crate::{inspect, renewal, revocation, values, watcher};

/// A session that no lease uses is closed after one to two of these.
const IDLE: Duration = Duration::from_secs(30);
const SESSION_ENDS: &str = "a lease ends with the session of the process that has it; use a store \
                            that keeps leases by their ttl";
const CREATED: &str = "the fence is the number of the transaction that made the claim's node, which \
                       only the servers choose";
const NO_TTL_NODES: &str = "ZooKeeper's nodes with a time to live are switched off in servers as \
                            they come; write until when it is good into the value";
const TICKS: &str = "what the servers allow for a session: 2 to 20 times their tickTime unless \
                     minSessionTimeout and maxSessionTimeout say otherwise";
const TICKS_OF_SEVERAL: &str = "what the servers allow for a session, 2 to 20 times their tickTime \
                                unless minSessionTimeout and maxSessionTimeout say otherwise, less \
                                the three quarters of a tick by which it outlasts its leases; that \
                                of a dead holder ends up to two and a quarter ticks after them";

/// A connection to an ensemble.
pub(crate) struct Zookeeper {
    store: Arc<Store>,
    profile: Profile,
    /// What runs in the background as long as this is there.
    sweeper: AbortHandle,
}

/// Connects to the ensemble at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let dialer = Dialer::new(Config::read(&address)?)?;
    let runtime = context.runtime.clone();
    let connecting = Task::start(&runtime, async move {
        Store::connect(dialer, context).await.map_err(|failure| failure.to_error())
    });
    let store = Arc::new(connecting.finish().await?);
    let sweeping = Arc::clone(&store);
    let sweeper = runtime.spawn(async move {
        let mut idle = Vec::new();
        loop {
            sleep(IDLE).await;
            sweeping.close_idle(&mut idle);
        }
    });
    let profile = profile(store.ttl_limits(), store.dialer.proof());
    Ok(Arc::new(Zookeeper { store, profile, sweeper: sweeper.abort_handle() }))
}

/// What servers promise that allow such leases, where one decides alone or several do.
pub(crate) fn profile((least, most): (Duration, Duration), proof: Proof) -> Profile {
    Profile {
        backend: "zookeeper",
        guarantee: Guarantee::Correctness,
        because: "a majority of the servers agrees on every grant before it is told",
        order: Order::Fifo,
        expiry: Expiry::Session,
        reach: Reach::Network,
        fence: FenceSurvival::Durable,
        ttl: TtlLimits {
            min: least.max(TtlLimits::LOCKFAST.min),
            max: most.min(TtlLimits::LOCKFAST.max),
            step: TtlLimits::LOCKFAST.step,
            because: match proof {
                Proof::Any => TICKS,
                Proof::Change => TICKS_OF_SEVERAL,
            },
        },
        lacks: &[
            (
                Feature::Downgrade,
                "the mode is a part of the name of the claim's node, as with Curator; release the \
                 lock and read, which lets a waiting writer in between",
            ),
            (Feature::Detached, SESSION_ENDS),
            (Feature::Floor, CREATED),
            (Feature::ValueExpiry, NO_TTL_NODES),
        ],
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        self.sweeper.abort();
        self.store.close();
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper")
            .field("endpoint", &self.store.config().endpoint())
            .finish_non_exhaustive()
    }
}

impl Zookeeper {
    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let named = |error: Error| error.with_backend("zookeeper").with_lock(&request.name);
        if request.detached {
            self.profile.require(Feature::Detached).map_err(named)?;
        }
        if request.floor.is_some() {
            self.profile.require(Feature::Floor).map_err(named)?;
        }
        loop {
            let (asker, answer) = oneshot::channel();
            let Some((earlier, asker)) = self.find_or_start(&request, asker) else {
                return answer.await.unwrap_or_else(|_| Err(named(closed())));
            };
            if earlier.mode != request.mode || earlier.name != request.name {
                return Err(named(Error::already_held(request.mode, earlier.mode)));
            }
            if let Phase::Gone(Gone::Lost(cause)) = earlier.phase() {
                return Err(Error::lost(&request.name, cause));
            }
            if earlier.ask_again(&request, asker) {
                return answer.await.unwrap_or_else(|_| Err(named(closed())));
            }
            // What is being given back is over first.
            earlier.reach(|phase| matches!(phase, Phase::Gone(_))).await;
        }
    }

    /// The claim that the holder has already, if it has one; otherwise a new one is started.
    fn find_or_start(&self, request: &AcquireRequest, asker: Asker) -> Option<(Arc<Claim>, Asker)> {
        let mut claims = lock(&self.store.claims);
        if let Some(claim) = claims.get(&request.holder) {
            return Some((Arc::clone(claim), asker));
        }
        let claim = Arc::new(Claim::new(request, asker));
        claims.insert(request.holder, Arc::clone(&claim));
        claim.start(&self.store);
        None
    }

    async fn give(&self, request: ReleaseRequest) -> Result<ReleaseOutcome> {
        let claim = lock(&self.store.claims).get(&request.holder).cloned();
        match claim.filter(|claim| claim.name == request.name) {
            Some(claim) => claim.leave().await,
            None => {
                let name = request.name.clone();
                let releasing = revocation::release(Arc::clone(&self.store), request);
                self.work(releasing).await.map_err(|error| error.with_lock(&name))
            }
        }
    }

    /// Does work on the runtime of the connections.
    async fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T> {
        let working = async { work.await.map_err(|failure| failure.to_error()) };
        Task::start(&self.store.context.runtime, working).finish().await
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unreachable, "another request of the holder took its place")
}

impl Backend for Zookeeper {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        let renewing = renewal::renew(Arc::clone(&self.store), batch);
        Box::pin(self.work(async { Ok(renewing.await) }))
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Downgrade);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(self.give(request))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { inspect::look(&store, query).await }))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.work(revocation::revoke(Arc::clone(&self.store), request)))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move {
            let reading = self.work(values::read(Arc::clone(&self.store), name.clone()));
            reading.await.map_err(|error| error.with_lock(&name))
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            let name = request.name.clone();
            let named = |error: Error| error.with_backend("zookeeper").with_lock(&name);
            if matches!(request.change, Change::Put { keep: Some(_), .. }) {
                self.profile.require(Feature::ValueExpiry).map_err(named)?;
            }
            let writing = self.work(values::write(Arc::clone(&self.store), request));
            writing.await.map_err(named)
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(self.work(watcher::open(Arc::clone(&self.store))))
    }
}
