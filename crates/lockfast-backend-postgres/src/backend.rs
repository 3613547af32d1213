//! The store as the lease engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, EventStream, Guarantee, HolderId, LockName, LockView, Moment, Profile,
    Query, Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result,
    RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue, WriteOutcome, WriteRequest, jitter,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::batch::{Give, LOCKS_MAX, Op, Renew, Renewal, Take, Value};
use crate::claim::{Answer, Claim};
use crate::config::{Config, StoreMode};
use crate::failure::{self, Failure};
use crate::inspect::read_view;
use crate::link::Link;
use crate::store::{Store, closed};
use crate::wire::{Dialer, get};
use crate::{downgrade, listener, migration, values, watcher};

/// How often what nobody uses is removed, and how old it must be.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const IDLE_US: i64 = 60_000_000;

/// A connection to a database.
struct Postgres {
    store: Arc<Store>,
    profile: Profile,
    /// What runs in the background as long as this is there.
    tasks: Vec<AbortHandle>,
}

/// Connects to the database at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let named = |failure: Failure| failure.to_error();
    let config = Config::read(&address)?;
    let mode = config.mode;
    let dialer = Arc::new(Dialer::new(config).map_err(named)?);
    let runtime = context.runtime.clone();
    // Everything below needs the runtime that drives the connections.
    let opening = match mode {
        StoreMode::Lease => Task::start(&runtime, open(dialer, context)),
        StoreMode::Advisory => return crate::advisory::connect(dialer, context).await,
        StoreMode::Shedlock => return crate::shedlock::connect(dialer, context).await,
    };
    opening.finish().await.map_err(named)
}

async fn open(
    dialer: Arc<Dialer>,
    context: ConnectContext,
) -> std::result::Result<Arc<dyn Backend>, Failure> {
    let runtime = context.runtime.clone();
    let session = dialer.dial_unattended().await?;
    migration::ensure(&dialer.config, &session).await?;
    let is_direct = session.is_direct;
    let store = Store::new(dialer, context);
    let listening = match listener::connect(&store, is_direct).await? {
        Some(mut listening) => {
            listener::check(&store, &session, &mut listening).await?;
            Some(listening)
        }
        None => {
            tracing::info!("a pooler is in the way, so messages are read from a table");
            store.set_by_mail(true);
            None
        }
    };
    let link = Link::enrol(&store, session).await?;
    let mut tasks = vec![
        runtime.spawn(serve(Arc::clone(&store), link)).abort_handle(),
        runtime.spawn(Arc::clone(&store).tend_lobby()).abort_handle(),
        runtime.spawn(listener::read_mail(Arc::clone(&store))).abort_handle(),
        runtime.spawn(sweep(Arc::clone(&store))).abort_handle(),
    ];
    if let Some(session) = listening {
        let listening = listener::run(Arc::clone(&store), session);
        tasks.push(runtime.spawn(listening).abort_handle());
    }
    Ok(Arc::new(Postgres { store, profile: profile(), tasks }))
}

/// Serves what is asked for as long as the keeper's runtime goes on; then nobody will be answered.
async fn serve(store: Arc<Store>, link: Link) {
    let _closing = CloseOnDrop(Arc::clone(&store));
    let drive = Arc::clone(&store.drive);
    drive.run(Box::pin(link.run(store))).await;
}

struct CloseOnDrop(Arc<Store>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Removes what nobody uses, now and then.
async fn sweep(store: Arc<Store>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY.mul_f64(0.5 + jitter())).await;
        let values = vec![store.client_value(), Value::Number(IDLE_US)];
        // What fails now is tried again.
        let _ = store.ask("SELECT {schema}.sweep($1, $2)", values).await;
    }
}

pub(crate) fn profile() -> Profile {
    Profile {
        backend: "postgres",
        guarantee: Guarantee::Correctness,
        because: "one server decides and writes every grant to disk before it is told",
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[],
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.store.close();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("endpoint", &self.store.config().endpoint)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let start = Moment::now();
        let claim = Arc::new(self.make_claim(request)?);
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Take(Take::first(Arc::clone(&claim), asker)));
        match receive(answer).await.map_err(|error| error.with_lock(&claim.name))? {
            Answer::Granted(grant) => Ok(AcquireOutcome::Granted(grant)),
            Answer::Taken(lock) => {
                let waited = Moment::now().since(start);
                Ok(AcquireOutcome::Taken(Refusal::new(lock, waited)))
            }
        }
    }

    /// A claim; one whose holder waits already in the same way joins it.
    fn make_claim(&self, request: AcquireRequest) -> Result<Claim> {
        let call = match self.store.lobby.find(request.holder) {
            Some(earlier) if earlier.mode != request.mode => {
                let error = Error::already_held(request.mode, earlier.mode);
                return Err(error.with_backend("postgres").with_lock(&request.name));
            }
            Some(earlier) => earlier.call,
            None => self.store.next_call(),
        };
        Ok(Claim::new(request, call))
    }

    async fn give(&self, name: LockName, holder: HolderId) -> Result<ReleaseOutcome> {
        // Whoever still waits for it is told that it is over.
        drop(self.store.lobby.take(holder));
        let (asker, answer) = oneshot::channel();
        let lock = name.clone();
        self.store.submit(Op::Give(Give {
            name,
            holder,
            asker: Some(asker),
            doubtful: false,
            tries: 0,
        }));
        receive(answer).await.map_err(|error| error.with_lock(&lock))
    }

    async fn renew_some(&self, leases: Arc<[RenewRequest]>) -> Result<Vec<RenewOutcome>> {
        let (asker, answer) = oneshot::channel();
        self.store.submit(Op::Renew(Renew { leases, asker, tries: 0 }));
        let outcome = |renewal| match renewal {
            Renewal::Renewed => RenewOutcome::Renewed,
            Renewal::Lost(cause) => RenewOutcome::Lost(cause),
        };
        Ok(receive(answer).await?.into_iter().map(outcome).collect())
    }

    async fn look(&self, query: Query) -> Result<Vec<LockView>> {
        let named = |failure: Failure| failure.to_error();
        let nonsense = || failure::of_nonsense("a lock of another form").to_error();
        match query {
            Query::Name(name) => {
                let values = vec![Value::Text(name.as_str().to_owned())];
                let rows = self.store.ask("SELECT {schema}.inspect($1)", values).await;
                let rows = rows.map_err(named)?;
                let text: String =
                    rows.first().map(|row| get(row, 0)).ok_or_else(nonsense)?.map_err(named)?;
                Ok(vec![read_view(&name, &text).ok_or_else(nonsense)?])
            }
            Query::Prefix { prefix, after, limit } => {
                let values = vec![
                    Value::Text(prefix),
                    Value::OptionalText(after.map(|after| after.as_str().to_owned())),
                    Value::Number(i64::try_from(limit).unwrap_or(i64::MAX)),
                ];
                let statement = "SELECT name, seen FROM {schema}.list($1, $2, $3)";
                let rows = self.store.ask(statement, values).await.map_err(named)?;
                let view = |row| {
                    let name = LockName::new(get::<&str>(row, 0).map_err(named)?)?;
                    let seen: &str = get(row, 1).map_err(named)?;
                    read_view(&name, seen).ok_or_else(nonsense)
                };
                rows.iter().map(view).collect()
            }
        }
    }

    async fn seize(&self, request: RevokeRequest) -> Result<RevokeOutcome> {
        let named = |failure: Failure| failure.to_error().with_lock(&request.name);
        let nonsense = || failure::of_nonsense("a revocation of another form").to_error();
        let fence =
            request.expect_fence.map(|fence| i64::try_from(fence.get()).unwrap_or(i64::MAX));
        let values = vec![
            Value::Text(request.name.as_str().to_owned()),
            Value::OptionalNumber(fence),
            Value::Text(request.reason.clone()),
        ];
        let statement = "SELECT code, seen FROM {schema}.revoke($1, $2, $3)";
        let rows = self.store.ask_once(statement, values).await.map_err(named)?;
        let row = rows.first().ok_or_else(nonsense)?;
        let code: i16 = get(row, 0).map_err(named)?;
        let seen: &str = get(row, 1).map_err(named)?;
        let holders = read_view(&request.name, seen).ok_or_else(nonsense)?.holders;
        Ok(match code {
            0 => RevokeOutcome::NotHeld,
            1 => RevokeOutcome::Revoked(holders),
            _ => RevokeOutcome::OtherFence(holders),
        })
    }
}

async fn receive<T>(answer: oneshot::Receiver<std::result::Result<T, Failure>>) -> Result<T> {
    let answer = answer.await.unwrap_or_else(|_| Err(closed()));
    answer.map_err(|failure: Failure| -> Error { failure.to_error() })
}

impl Backend for Postgres {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            for leases in batch.chunks(LOCKS_MAX) {
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
        Box::pin(self.look(query))
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
