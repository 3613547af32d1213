//! A connected store as the engine uses it: the backend, the keeper, and a limit on every call.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

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
    pub(crate) telemetry: Telemetry,
    pub(crate) registry: Arc<Registry>,
    pub(crate) lookout: Arc<Lookout>,
    pub(crate) undoing: Undoing,
    pub(crate) watch: SharedWatch,
    randomness: Randomness,
}

impl Store {
    /// Connects through `connect`, lending it what a backend needs.
    pub(crate) async fn connect<F>(label: Label, connect: F) -> Result<Self>
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
        Ok(Self {
            backend,
            keeper,
            client,
            telemetry,
            registry,
            lookout: Arc::default(),
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
        let mut alarm = pin!(self.sleep(end.remaining(Moment::now())));
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            alarm.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// Sleeps on the keeper's clock, whatever executor the caller has.
    pub(crate) fn sleep(&self, span: Duration) -> tokio::time::Sleep {
        self.keeper.sleep(span)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("backend", &self.backend).finish_non_exhaustive()
    }
}
