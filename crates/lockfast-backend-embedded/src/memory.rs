//! The store of one process: a table behind a mutex. It is also the reference for what the others
//! must do.
//!
//! Nobody polls: a release grants the next claim and wakes exactly the task that waits for it.
//! Leases and waits that end by themselves are noticed by one thread per store, which exists from
//! the first wait on and never depends on the caller's executor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::time::Clock;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Alarm, Backend, BoxFuture, ClientId, ConnectContext,
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, EventStream, Guarantee, LockName,
    LockView, LossCause, Moment, Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue,
    WriteOutcome, WriteRequest,
};

use crate::table::{Admitted, Table, Told};

/// The stores that were given a name, for as long as somebody is connected to them.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// Why its grants are good for what they are.
pub(crate) const BECAUSE: &str =
    "one table in this process decides, and nobody outside it can hold";

/// Connects to the store of that name, or to one of its own.
pub(crate) fn connect(name: Option<String>, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let store = match name {
        None => Store::start(Clock::default())?,
        Some(name) => {
            let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
            named.retain(|_, store| store.strong_count() > 0);
            match named.get(&name).and_then(Weak::upgrade) {
                Some(store) => store,
                None => {
                    let store = Store::start(Clock::default())?;
                    named.insert(name, Arc::downgrade(&store));
                    store
                }
            }
        }
    };
    Ok(enter(store, context))
}

fn enter(store: Arc<Store>, context: ConnectContext) -> Arc<dyn Backend> {
    let client = context.client;
    store.shared.lock().enter(context);
    Arc::new(Memory { store, client, profile: profile() })
}

/// A store in memory for tests: it goes by a clock that can be set ahead, and leases in it can be lost
/// for any reason. Everything else is as in `memory:`.
///
/// ```
/// use lockfast_backend_embedded::TestMemory;
/// use lockfast_core::{LockName, LossCause, time::Clock};
///
/// # fn main() -> lockfast_core::Result<()> {
/// let memory = TestMemory::new(Clock::settable())?;
/// assert!(!memory.lose(&LockName::new("job")?, &LossCause::DataLost), "nobody has it");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestMemory(Arc<Store>);

impl TestMemory {
    /// An empty store that goes by this clock.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the process has too many files or threads.
    pub fn new(clock: Clock) -> Result<Self> {
        Store::start(clock).map(Self)
    }

    /// A connection to it.
    pub fn connect(&self, context: ConnectContext) -> Arc<dyn Backend> {
        enter(Arc::clone(&self.0), context)
    }

    /// Takes a lock away from its holders, who are told this cause; whether there were any.
    pub fn lose(&self, name: &LockName, cause: &LossCause) -> bool {
        let shared = &self.0.shared;
        let reason = cause.to_string();
        let request = RevokeRequest { name: name.clone(), expect_fence: None, reason };
        let mut told = Told::default();
        let outcome = shared.lock().revoke(&request, shared.clock.now(), &mut told);
        told.losses.iter_mut().for_each(|(_, _, told)| told.clone_from(cause));
        shared.tell(told);
        matches!(outcome, RevokeOutcome::Revoked(_))
    }
}

pub(crate) fn profile() -> Profile {
    Profile {
        backend: "memory",
        guarantee: Guarantee::Correctness,
        because: BECAUSE,
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Process,
        fence: FenceSurvival::Process,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[],
    }
}

/// A table and the thread that watches its clock, which ends with it.
#[derive(Debug)]
struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    alarm: Alarm,
    clock: Clock,
}

impl Store {
    fn start(clock: Clock) -> Result<Arc<Self>> {
        let failed = |error| {
            Error::new(
                ErrorKind::Internal,
                "the store's clock cannot be started; the process may have too many files or \
                 threads",
            )
            .with_backend("memory")
            .with_source(error)
        };
        let alarm = Alarm::new().map_err(failed)?;
        let shared = Arc::new(Shared { table: Mutex::default(), alarm, clock });
        let weak = Arc::downgrade(&shared);
        shared.clock.on_advance(move || {
            if let Some(shared) = weak.upgrade() {
                shared.alarm.ring();
            }
        });
        std::thread::Builder::new()
            .name("lockfast-memory".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.watch_clock()
            })
            .map_err(failed)?;
        Ok(Arc::new(Self { shared }))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.lock().close();
        self.shared.alarm.ring();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic elsewhere cannot leave a half-made change: nothing in the table can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody whom a change concerns, once the table is free again.
    fn tell(&self, told: Told) {
        for delivery in told.grants {
            // Whoever is gone asks again or releases it.
            let _ = delivery.waiter.send(delivery.grant);
        }
        for (losses, holder, cause) in told.losses {
            losses.report(holder, cause);
        }
        if told.ring {
            self.alarm.ring();
        }
    }

    /// The thread: ends what ends by itself.
    fn watch_clock(&self) {
        loop {
            let mut told = Told::default();
            let next = self.lock().end_due(self.clock.now(), &mut told);
            self.tell(told);
            let Some(next_ns) = next else { return };
            let at = (next_ns < u64::MAX).then(|| Moment::from_host_ns(next_ns));
            let at = at.map(|at| self.clock.on_machine(at));
            if self.alarm.wait(at).is_err() {
                // The clock itself failed; a slower one is better than none.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// One connection.
#[derive(Debug)]
struct Memory {
    store: Arc<Store>,
    client: ClientId,
    profile: Profile,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.store.shared.lock().leave(self.client);
    }
}

impl Memory {
    /// Does something with the table and then tells whom it concerns.
    fn with_table<R>(&self, work: impl FnOnce(&mut Table, &mut Told) -> R) -> R {
        let shared = &self.store.shared;
        let mut told = Told::default();
        let result = work(&mut shared.lock(), &mut told);
        if !told.is_empty() {
            shared.tell(told);
        }
        result
    }

    fn now(&self) -> Moment {
        self.store.shared.clock.now()
    }

    async fn take(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let sent = self.now();
        let admitted =
            self.with_table(|table, told| table.acquire(self.client, &request, sent, told));
        let lock = match admitted.map_err(|error| self.name_error(error, &request.name))? {
            Admitted::Granted(grant) => return Ok(AcquireOutcome::Granted(grant)),
            Admitted::Taken(lock) => lock,
            Admitted::Waiting(granted) => match granted.await {
                Ok(grant) => return Ok(AcquireOutcome::Granted(grant)),
                // The wait ran out, or the claim was released.
                Err(_) => {
                    self.with_table(|table, _| table.view(&request.name, self.now().host_ns()))
                }
            },
        };
        let waited = self.now().since(sent);
        Ok(AcquireOutcome::Taken(Refusal::new(lock, waited)))
    }

    fn name_error(&self, error: Error, name: &LockName) -> Error {
        error.with_backend(self.profile.backend).with_lock(name)
    }
}

impl Backend for Memory {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(self.take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            let now = self.now();
            Ok(self.with_table(|table, told| table.renew(&batch, now, told)))
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async move {
            let now = self.now();
            let outcome = self.with_table(|table, told| table.downgrade(&request, now, told));
            outcome.map_err(|error| self.name_error(error, &request.name))
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let now = self.now();
            let ReleaseRequest { name, holder } = request;
            Ok(self.with_table(|table, told| table.release(&name, holder, now, told)))
        })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async move {
            let now_ns = self.now().host_ns();
            Ok(self.with_table(|table, _| table.inspect(&query, now_ns)))
        })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(async move {
            let now = self.now();
            Ok(self.with_table(|table, told| table.revoke(&request, now, told)))
        })
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move {
            let now_ns = self.now().host_ns();
            Ok(self.with_table(|table, _| table.read(&name, now_ns)))
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            let now = self.now();
            Ok(self.with_table(|table, _| table.write(self.client, request, now)))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async move { Ok(self.with_table(|table, told| table.watch(told))) })
    }
}
