//! A connected store as the engine uses it: the backend, the keeper, and a limit on every call.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::time::Clock;
use lockfast_core::{
    Backend, BoxFuture, ClientId, ConnectContext, Error, ErrorKind, HolderId, Label, LossReporter,
    Moment, Result,
};

use crate::lease::keeper::Keeper;
use crate::lease::lookout::Lookout;
use crate::lease::registry::Registry;
use crate::lease::undo::Undoing;
use crate::primitive::events::SharedWatch;
use crate::randomness::Randomness;
use crate::telemetry::Telemetry;

/// A connected store.
pub(crate) struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) client: ClientId,
    pub(crate) clock: Clock,
    pub(crate) telemetry: Telemetry,
    pub(crate) registry: Arc<Registry>,
    pub(crate) lookout: Arc<Lookout>,
    pub(crate) undoing: Undoing,
    pub(crate) watch: SharedWatch,
    randomness: Randomness,
}

impl Store {
    /// Connects through `connect`, lending it what a backend needs. Its leases go by `clock`.
    pub(crate) async fn connect<F>(label: Label, clock: Clock, connect: F) -> Result<Self>
    where
        F: FnOnce(ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>,
    {
        let keeper = Keeper::of_this_process()?;
        let client = ClientId::random()?;
        let registry = Arc::new(Registry::default());
        let reports = Arc::clone(&registry);
        let context = ConnectContext {
            runtime: keeper.runtime().clone(),
            client,
            label,
            losses: LossReporter::new(move |report| reports.tell(report)),
        };
        let backend = connect(context).await?;
        let telemetry = Telemetry::new(backend.profile().backend);
        clock.on_advance({
            let keeper = Arc::clone(&keeper);
            move || keeper.jump()
        });
        let lookout = Lookout::new(clock.clone());
        Ok(Self {
            backend,
            keeper,
            client,
            clock,
            telemetry,
            registry,
            lookout,
            undoing: Undoing::default(),
            watch: SharedWatch::default(),
            randomness: Randomness::default(),
        })
    }

    /// An id for a new acquisition. The process must have been checked: a forked child would
    /// make the same ones.
    pub(crate) fn new_holder(&self) -> Result<HolderId> {
        let mut id = [0; 16];
        let (client, own) = id.split_at_mut(6);
        client.copy_from_slice(self.client.as_bytes());
        self.randomness.draw(own)?;
        Ok(HolderId::from_bytes(id))
    }

    /// Refuses to work in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.keeper.check_process()
    }

    /// Waits for a call, but not longer than `limit`. A call that is answered at once costs no
    /// timer.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        mut call: BoxFuture<'_, Result<T>>,
    ) -> Result<T> {
        let at_once = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = at_once {
            return answer;
        }
        let mut alarm = pin!(self.sleep(limit));
        poll_fn(|context| {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            alarm.as_mut().poll(context).map(|()| {
                Err(Error::new(ErrorKind::Unreachable, format!("no answer within {limit:?}"))
                    .with_backend(self.backend.profile().backend))
            })
        })
        .await
    }

    /// Waits for something of this process until `end`; `None` when it has not come by then.
    pub(crate) async fn until<T>(&self, end: Moment, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut alarm = pin!(self.sleep(end.remaining(self.now())));
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            alarm.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// The present moment by the clock of this store's leases.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Sleeps by that clock, whatever executor the caller has.
    pub(crate) async fn sleep(&self, span: Duration) {
        let end = self.now() + span;
        loop {
            let mut advanced = pin!(self.clock.advanced());
            let mut alarm = pin!(self.keeper.sleep(end.remaining(self.now())));
            let is_over = poll_fn(|context| match alarm.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => advanced.as_mut().poll(context).map(|()| false),
            });
            if is_over.await {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("backend", &self.backend).finish_non_exhaustive()
    }
}
