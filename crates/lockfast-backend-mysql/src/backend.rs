//! The store as the lease engine sees it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ClientId, ConnectContext,
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, EventStream, Fence, Guarantee, HolderId,
    LockName, LockView, Moment, Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue,
    WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::batch::{Give, LEASES_MAX, Op, Renew, Renewal, Take};
use crate::claim::{Answer, Claim, Seen};
use crate::config::{Config, StoreMode};
use crate::failure::{self, Failure};
use crate::store::Store;
use crate::wire::{Argument, Dialer};
use crate::{downgrade, values, watcher};

/// A connection to a database.
pub(crate) struct Mysql {
    store: Arc<Store>,
    profile: Profile,
    /// What runs in the background as long as this is there.
    tasks: Vec<AbortHandle>,
}

/// Connects to the database at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let dialer = Dialer::new(Config::read(&address)?)?;
    if dialer.config().mode == StoreMode::Shedlock {
        return crate::shedlock::connect(dialer, context).await;
    }
    let runtime = context.runtime.clone();
    let store = Store::new(dialer, context).map_err(|failure| failure.to_error())?;
    let connecting = Task::start(&runtime, {
        let store = Arc::clone(&store);
        async move { store.connect().await }
    });
    let wire = connecting.finish().await.map_err(|failure| failure.to_error())?;
    let tasks = vec![
        runtime.spawn(Arc::clone(&store).run(wire)).abort_handle(),
        runtime.spawn(Arc::clone(&store).listen()).abort_handle(),
        runtime.spawn(Arc::clone(&store).tend_lobby()).abort_handle(),
        runtime.spawn(Arc::clone(&store).keep_clean()).abort_handle(),
    ];
    Ok(Arc::new(Mysql { store, profile: profile(), tasks }))
}

pub(crate) fn profile() -> Profile {
    Profile {
        backend: "mysql",
        guarantee: Guarantee::Correctness,
        because: "one server decides and commits every grant before it is told",
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[],
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql")
            .field("endpoint", &self.store.dialer.config().endpoint())
            .finish_non_exhaustive()
    }
}

impl Mysql {
    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let start = Moment::now();
        let claim = Arc::new(Claim::new(request));
        self.make_way(&claim).await?;
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Take(Take::first(Arc::clone(&claim), asker)));
        match receive(answer).await.map_err(|error| error.with_lock(&claim.name))? {
            Answer::Granted(grant) => Ok(AcquireOutcome::Granted(grant)),
            Answer::Taken(seen) => {
                let waited = Moment::now().since(start);
                let lock = self.store.name_holders(&claim.name, &seen).await;
                Ok(AcquireOutcome::Taken(Refusal::new(lock, waited)))
            }
        }
    }

    /// An earlier request of the same holder that waits in another way gives way to this one.
    async fn make_way(&self, claim: &Claim) -> Result<()> {
        let Some(earlier) = self.store.lobby.find(claim.holder) else { return Ok(()) };
        if earlier.mode != claim.mode {
            let error = Error::already_held(claim.mode, earlier.mode);
            return Err(error.with_backend("mysql").with_lock(&claim.name));
        }
        if !earlier.is_like(claim) {
            self.give(claim.name.clone(), claim.holder).await?;
        }
        Ok(())
    }

    async fn give(&self, name: LockName, holder: HolderId) -> Result<ReleaseOutcome> {
        // Whoever still waits for it is told that it is over.
        drop(self.store.lobby.take(holder));
        let (asker, answer) = oneshot::channel();
        let lock = name.clone();
        self.store.submit(Op::Give(Give::new(name, holder, asker)));
        receive(answer).await.map_err(|error| error.with_lock(&lock))
    }

    async fn renew_some(&self, leases: Arc<[RenewRequest]>) -> Result<Vec<RenewOutcome>> {
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Renew(Renew { leases, asker, tries: 0 }));
        let renewals = receive(answer).await?;
        let takers: HashSet<ClientId> = renewals
            .iter()
            .filter_map(|renewal| match renewal {
                Renewal::TakenBy(client) => Some(*client),
                _ => None,
            })
            .collect();
        let labels = self.store.find_labels(takers).await;
        let outcome = |renewal: Renewal| {
            renewal.loss(&labels).map_or(RenewOutcome::Renewed, RenewOutcome::Lost)
        };
        Ok(renewals.into_iter().map(outcome).collect())
    }

    async fn seize(&self, request: RevokeRequest) -> Result<RevokeOutcome> {
        let RevokeRequest { name, expect_fence, reason } = request;
        // It is told in one line.
        let reason: String =
            reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1024).collect();
        let arguments = vec![
            Argument::from(name.as_str()),
            Argument::from(expect_fence.map_or(0, Fence::get)),
            Argument::from(reason),
        ];
        let reply = self.store.change_once("CALL lockfast_revoke(?, ?, ?, ?)", arguments).await;
        let reply = reply.map_err(|failure| failure.to_error().with_lock(&name))?;
        let said = reply.rows.first().and_then(|row| row.text(1)).unwrap_or_default();
        let (code, seen) = said.split_once('\t').unwrap_or((said, "0"));
        let Some(seen) = Seen::read(seen) else {
            return Err(failure::of_nonsense("a revocation of another form").to_error());
        };
        let holders = self.store.name_holders(&name, &seen).await.holders;
        Ok(match code {
            "N" => RevokeOutcome::NotHeld,
            "V" => RevokeOutcome::Revoked(holders),
            _ => RevokeOutcome::OtherFence(holders),
        })
    }
}

async fn receive<T>(answer: oneshot::Receiver<Result<T, Failure>>) -> Result<T> {
    match answer.await {
        Ok(answer) => answer.map_err(|failure| failure.to_error()),
        Err(_) => Err(Error::new(
            ErrorKind::Unreachable,
            "the claim was given up, or the connection was closed",
        )
        .with_backend("mysql")),
    }
}

impl Backend for Mysql {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            for leases in batch.chunks(LEASES_MAX) {
                outcomes.extend(self.renew_some(leases.into()).await?);
            }
            Ok(outcomes)
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async move {
            let name = request.name.clone();
            let outcome = downgrade::downgrade(&self.store, request).await;
            outcome.map_err(|failure| failure.to_error().with_lock(&name))
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(self.give(request.name, request.holder))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async move {
            let named = |failure: Failure| failure.to_error();
            let names = match query {
                Query::Name(name) => vec![name],
                Query::Prefix { prefix, after, limit } => {
                    let found = self.store.find_names(&prefix, after.as_ref(), limit).await;
                    found.map_err(named)?
                }
            };
            self.store.view(names).await.map_err(named)
        })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.seize(request))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move {
            let value = values::read(&self.store, &name).await;
            value.map_err(|failure| failure.to_error().with_lock(&name))
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            let name = request.name.clone();
            let outcome = values::write(&self.store, request).await;
            outcome.map_err(|failure| failure.to_error().with_lock(&name))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(watcher::open(Arc::clone(&self.store)))
    }
}
