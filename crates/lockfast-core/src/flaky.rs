//! A store whose link is bad, for tests: every operation can be made to fail, hang, come late, or act
//! without an answer.

use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, DowngradeOutcome, DowngradeRequest, Error,
    ErrorKind, EventStream, LockName, LockView, Profile, Query, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, VersionedValue, WriteOutcome,
    WriteRequest,
};

/// What happens to an operation on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    Pass,
    /// It fails before it reaches the store, and may be tried again.
    Fail,
    /// Likewise, and what has reached the store and waits there fails, too.
    Cut,
    /// It is refused before it reaches the store, for good.
    Refuse,
    /// It reaches nobody, and there is no answer.
    Hang,
    /// It reaches the store, or its answer comes, when another fault is set.
    Pause,
    /// It arrives this much later.
    DelayRequest(Duration),
    /// Its answer arrives this much later.
    DelayReply(Duration),
    /// The store acts, and the answer is lost with the connection.
    SwallowReply,
}

/// The operations that a fault can be set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Backend::acquire`].
    Acquire,
    /// [`Backend::renew`].
    Renew,
    /// [`Backend::release`].
    Release,
    /// [`Backend::downgrade`].
    Downgrade,
    /// [`Backend::watch`].
    Watch,
    /// Everything else.
    Other,
}

/// Sets the faults of a [`Flaky`] store while it is in use.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    faults: watch::Sender<Faults>,
    counts: [AtomicUsize; OPERATIONS],
}

const OPERATIONS: usize = 6;

type Faults = [Fault; OPERATIONS];

impl FaultSwitch {
    /// Sets the fault of one operation, for those that start from now on.
    pub fn set(&self, operation: Operation, fault: Fault) {
        self.0.faults.send_modify(|faults| faults[operation as usize] = fault);
    }

    /// Sets the fault of all operations.
    pub fn set_all(&self, fault: Fault) {
        self.0.faults.send_replace([fault; OPERATIONS]);
    }

    /// How often an operation was begun.
    pub fn count(&self, operation: Operation) -> usize {
        self.0.counts[operation as usize].load(Ordering::SeqCst)
    }

    fn begin(&self, operation: Operation) -> Way {
        self.0.counts[operation as usize].fetch_add(1, Ordering::SeqCst);
        Way { faults: self.0.faults.subscribe(), operation }
    }
}

/// The way of one operation, there and back.
struct Way {
    faults: watch::Receiver<Faults>,
    operation: Operation,
}

impl Way {
    /// What happens on the way, once it is not paused.
    async fn open(&mut self) -> Fault {
        self.until(|fault| fault != Fault::Pause).await
    }

    async fn until(&mut self, is_meant: impl Fn(Fault) -> bool) -> Fault {
        let operation = self.operation as usize;
        let meant = self.faults.wait_for(|faults| is_meant(faults[operation])).await;
        let fault = meant.ok().map(|faults| faults[operation]);
        match fault {
            Some(fault) => fault,
            // Nobody sets anything any more.
            None => pending().await,
        }
    }

    /// The answer of the store to what has reached it, unless the link is cut meanwhile.
    async fn pass<T>(&mut self, mut answer: BoxFuture<'_, Result<T>>) -> Result<T> {
        let answered = {
            let mut cut = pin!(self.until(|fault| fault == Fault::Cut));
            poll_fn(|context| match answer.as_mut().poll(context) {
                Poll::Ready(answer) => Poll::Ready(answer),
                Poll::Pending => cut.as_mut().poll(context).map(|_| Err(unreachable())),
            })
            .await
        };
        match self.open().await {
            Fault::Cut => Err(unreachable()),
            _ => answered,
        }
    }
}

/// A store behind a bad link.
///
/// ```
/// use std::sync::Arc;
/// use lockfast_core::flaky::{Fault, FaultSwitch, Flaky};
/// use lockfast_core::Backend;
/// use tokio::runtime::Handle;
///
/// fn breakable(store: Arc<dyn Backend>, switch: &FaultSwitch, timers: Handle) -> Arc<dyn Backend> {
///     Arc::new(Flaky::new(store, switch.clone(), timers))
/// }
///
/// let switch = FaultSwitch::default();
/// switch.set_all(Fault::Cut); // for every store that `switch` was given to
/// ```
#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn Backend>,
    switch: FaultSwitch,
    timers: Handle,
}

impl Flaky {
    /// Puts `inner` behind the link that `switch` controls. The delays run on `timers`, because
    /// the caller may have no runtime.
    pub fn new(inner: Arc<dyn Backend>, switch: FaultSwitch, timers: Handle) -> Self {
        Self { inner, switch, timers }
    }

    fn carry<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        act: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let timers = &self.timers;
            let mut way = self.switch.begin(operation);
            match way.open().await {
                Fault::Pass | Fault::Pause => way.pass(act()).await,
                Fault::Fail | Fault::Cut => Err(unreachable()),
                Fault::Refuse => Err(Error::new(ErrorKind::Permission, "refused by a test")),
                Fault::Hang => pending().await,
                Fault::DelayRequest(delay) => {
                    sleep(timers, delay).await;
                    act().await
                }
                Fault::DelayReply(delay) => {
                    let answer = act().await;
                    sleep(timers, delay).await;
                    answer
                }
                Fault::SwallowReply => {
                    act().await?;
                    Err(unreachable())
                }
            }
        })
    }
}

/// Sleeps on the timers of that runtime, whatever the caller has: made inside its task, because a timer
/// belongs to the runtime in which it is made.
async fn sleep(timers: &Handle, delay: Duration) {
    // The runtime may have ended; then there is nothing to wait for.
    let _ = timers.spawn(async move { tokio::time::sleep(delay).await }).await;
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable, "the link is cut by a test")
}

impl Backend for Flaky {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        self.carry(Operation::Acquire, || self.inner.acquire(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        self.carry(Operation::Renew, || self.inner.renew(batch))
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        self.carry(Operation::Downgrade, || self.inner.downgrade(request))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        self.carry(Operation::Release, || self.inner.release(request))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        self.carry(Operation::Other, || self.inner.inspect(query))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        self.carry(Operation::Other, || self.inner.revoke(request))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        self.carry(Operation::Other, || self.inner.read(name))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        self.carry(Operation::Other, || self.inner.write(request))
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        self.carry(Operation::Watch, || self.inner.watch())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// What is paused goes on, and what is cut fails, also what is on its way.
    #[tokio::test]
    async fn a_way_is_paused_and_cut_in_both_directions() {
        let (switch, mut context) = (FaultSwitch::default(), Context::from_waker(Waker::noop()));
        switch.set_all(Fault::Pause);
        let mut way = switch.begin(Operation::Other);
        let mut opened = Box::pin(async { (way.open().await, way) });
        assert!(opened.as_mut().poll(&mut context).is_pending());
        switch.set_all(Fault::Pass);
        let (fault, mut way) = opened.await;
        assert_eq!(fault, Fault::Pass);
        // The store answers while the way back is paused.
        switch.set_all(Fault::Pause);
        let mut answer = Box::pin(async { (way.pass(Box::pin(async { Ok(7) })).await, way) });
        assert!(answer.as_mut().poll(&mut context).is_pending());
        switch.set_all(Fault::Pass);
        let (answer, mut way) = answer.await;
        assert_eq!(answer.unwrap(), 7);
        // The store does not answer, and the way is cut.
        let mut waiting = pin!(way.pass::<()>(Box::pin(pending())));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        switch.set_all(Fault::Fail);
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "only for those that start");
        switch.set_all(Fault::Cut);
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Unreachable);
    }

    /// B180: a delay is on the timers that were lent, and needs no runtime of its caller.
    #[test]
    fn a_delay_needs_no_runtime_of_its_caller() {
        let timers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let handle = timers.handle().clone();
        let mut delay = pin!(sleep(&handle, Duration::from_secs(60)));
        assert!(delay.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        timers.shutdown_background();
    }
}
