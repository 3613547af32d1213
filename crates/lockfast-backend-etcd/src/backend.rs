//! The store as the lease engine sees it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockfast_core::capability::{Expiry, Feature, FenceSurvival, Order, Reach, TtlLimits};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, EventStream, Guarantee, LockName, LockView, Profile, Query, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest,
    VersionedValue, WriteOutcome, WriteRequest,
};
use lockfast_net::drive::Gather;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::config::Config;
use crate::crew::Crew;
use crate::failure::{self, Failure};
use crate::session::Class;
use crate::store::Store;
use crate::wire::Dialer;

/// A connection to a cluster.
pub(crate) struct Etcd {
    store: Arc<Store>,
    profile: Profile,
    asked: Weak<dyn Gather>,
    /// What runs in the background as long as this is there.
    _tasks: Tasks,
}

/// Connects to the cluster at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let runtime = context.runtime.clone();
    let crew = Crew::new(runtime.clone());
    let dialer = Dialer::new(Config::read(&address)?, crew.clone())?;
    let connecting = Task::start(&runtime, async move {
        let mut tasks = Tasks::default();
        tasks.start(&context.runtime, crew.clone().run());
        let first = dialer.dial().await?;
        let (store, ears) = Store::new(dialer, first, context);
        let runtime = store.context.runtime.clone();
        crew.spawn(Arc::clone(&store).write());
        crew.spawn(Arc::clone(&store).observe(ears.watches));
        tasks.start(&runtime, Arc::clone(&store.link).run());
        tasks.start(&runtime, Arc::clone(&store).keep_alive(ears.asks));
        tasks.start(&runtime, Arc::clone(&store).pulse());
        tasks.start(&runtime, Arc::clone(&store).tend());
        let asked: Weak<dyn Gather> = Arc::downgrade(&store) as _;
        let profile = profile(Duration::from_secs(1));
        let mut etcd = Etcd { store, profile, asked, _tasks: tasks };
        // The shortest lease tells the server's minimum, which is that of a ttl too.
        let shortest = etcd.store.session(Class::Waiting).await?;
        etcd.profile = self::profile(shortest.ttl);
        Ok::<_, Failure>(etcd)
    });
    let etcd = connecting.finish().await.map_err(|failure| failure.to_error())?;
    Ok(Arc::new(etcd))
}

pub(crate) fn profile(ttl_min: Duration) -> Profile {
    Profile {
        backend: "etcd",
        guarantee: Guarantee::Correctness,
        because: "a majority of the members has every grant on disk before it is told",
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::Durable,
        ttl: TtlLimits {
            min: ttl_min,
            step: Duration::from_secs(1),
            because: "etcd keeps whole seconds, and from its election timeout follows a minimum",
            ..TtlLimits::LOCKFAST
        },
        lacks: &[
            (
                Feature::Downgrade,
                "who waits relies on it that the mode of a key never changes; release the lock and \
                 read, which lets a waiting writer in between",
            ),
            (
                Feature::Floor,
                "a fence is the revision of the cluster, which nobody can raise; where revisions were \
             lost, restore the cluster with --bump-revision",
            ),
        ],
    }
}

/// What runs in the background until this is dropped.
#[derive(Default)]
struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn start(&mut self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(runtime.spawn(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoints", &self.store.link.dialer.config().shown())
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Starts something that goes on when nobody waits for it: where it is asked if that can be.
    fn start(&self, job: impl Future<Output = ()> + Send + 'static) {
        let crew = self.store.crew();
        crew.attend(&self.asked);
        crew.spawn(job);
    }

    /// Does something on the store's runtime.
    async fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T> {
        Task::start(&self.store.context.runtime, work)
            .finish()
            .await
            .map_err(|failure| failure.to_error())
    }
}

impl Backend for Etcd {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move {
            if request.floor.is_some() {
                let required = self.profile.require(Feature::Floor);
                required.map_err(|error| error.with_lock(&request.name))?;
            }
            let (asker, answer) = oneshot::channel();
            let store = Arc::clone(&self.store);
            self.start(store.acquire(request, asker));
            answer.await.unwrap_or_else(|_| Err(failure::of_closing().to_error()))
        })
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { Ok(store.renew(batch).await) }))
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Downgrade);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let store = Arc::clone(&self.store);
            let lock = request.name.clone();
            let (asker, answer) = oneshot::channel();
            // It must not be left half done.
            self.start(async move { drop(asker.send(store.release(&request).await)) });
            let given = answer.await.unwrap_or_else(|_| Err(failure::of_closing()));
            given.map_err(|failure| failure.to_error().with_lock(&lock))
        })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { store.inspect(query).await }))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { store.revoke(&request).await }))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let of = name.clone();
            let reading = self.work(async move { store.read_value(&of).await });
            reading.await.map_err(|error| error.with_lock(&name))
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let name = request.name.clone();
            let writing = self.work(async move { store.write_value(&request).await });
            writing.await.map_err(|error| error.with_lock(&name))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { store.watch_all().await }))
    }
}
