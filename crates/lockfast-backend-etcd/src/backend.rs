//! The store as the lease engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::capability::{Expiry, Feature, FenceSurvival, Order, Reach, TtlLimits};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ConnectContext, EventStream,
    Guarantee, LockView, Profile, Query, ReleaseOutcome, ReleaseRequest, RenewOutcome,
    RenewRequest, Result, RevokeOutcome, RevokeRequest,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::config::Config;
use crate::failure::{self, Failure};
use crate::session::Class;
use crate::store::Store;
use crate::wire::Dialer;

/// A connection to a cluster.
pub(crate) struct Etcd {
    store: Arc<Store>,
    profile: Profile,
    /// What runs in the background as long as this is there.
    tasks: Vec<AbortHandle>,
}

/// Connects to the cluster at `address`.
pub(crate) async fn connect(address: Address, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let dialer = Dialer::new(Config::read(&address)?)?;
    let runtime = context.runtime.clone();
    let connecting = Task::start(&runtime, async move {
        let first = dialer.dial().await?;
        let (store, ears) = Store::new(dialer, first, context);
        let runtime = store.context.runtime.clone();
        let tasks = vec![
            runtime.spawn(Arc::clone(&store.link).run()).abort_handle(),
            runtime.spawn(Arc::clone(&store).write()).abort_handle(),
            runtime.spawn(Arc::clone(&store).keep_alive(ears.asks)).abort_handle(),
            runtime.spawn(Arc::clone(&store).observe(ears.watches)).abort_handle(),
            runtime.spawn(Arc::clone(&store).pulse()).abort_handle(),
            runtime.spawn(Arc::clone(&store).tend()).abort_handle(),
        ];
        let mut etcd = Etcd { store, profile: profile(Duration::from_secs(1)), tasks };
        // The shortest lease tells the server's minimum, which is that of a ttl too.
        let shortest = etcd.store.session(Class::Waiting).await?;
        etcd.profile = profile(shortest.ttl);
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
        lacks: &[(
            Feature::Floor,
            "a fence is the revision of the cluster, which nobody can raise; where revisions were \
             lost, restore the cluster with --bump-revision",
        )],
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
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
            self.store.context.runtime.spawn(store.acquire(request, asker));
            answer.await.unwrap_or_else(|_| Err(failure::of_closing().to_error()))
        })
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { Ok(store.renew(batch).await) }))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let store = Arc::clone(&self.store);
            let lock = request.name.clone();
            // It goes on when nobody waits for it: it must not be left half done.
            let giving =
                self.store.context.runtime.spawn(async move { store.release(&request).await });
            let given = giving.await.unwrap_or_else(|_| Err(failure::of_closing()));
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

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        let store = Arc::clone(&self.store);
        Box::pin(self.work(async move { store.watch_all().await }))
    }
}
