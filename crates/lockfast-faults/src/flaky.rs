//! A store whose link is bad: every operation can be made to fail, hang, come late, or act
//! without an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, DowngradeOutcome, DowngradeRequest, Error,
    ErrorKind, EventStream, LockName, LockView, Profile, Query, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, VersionedValue, WriteOutcome,
    WriteRequest,
};
use tokio::runtime::Handle;

/// What happens to an operation on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It fails before it reaches the store, and may be tried again.
    Fail,
    /// It is refused before it reaches the store, for good.
    Refuse,
    /// It reaches nobody, and there is no answer.
    Hang,
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
    faults: Mutex<[Option<Fault>; 6]>,
    counts: [AtomicUsize; 6],
}

impl FaultSwitch {
    /// Sets the fault of one operation, for those that start from now on.
    pub fn set(&self, operation: Operation, fault: Fault) {
        self.0.faults.lock().expect("no panic")[operation as usize] = Some(fault);
    }

    /// Sets the fault of all operations.
    pub fn set_all(&self, fault: Fault) {
        *self.0.faults.lock().expect("no panic") = [Some(fault); 6];
    }

    /// How often an operation was begun.
    pub fn count(&self, operation: Operation) -> usize {
        self.0.counts[operation as usize].load(Ordering::SeqCst)
    }

    fn begin(&self, operation: Operation) -> Fault {
        self.0.counts[operation as usize].fetch_add(1, Ordering::SeqCst);
        self.0.faults.lock().expect("no panic")[operation as usize].unwrap_or(Fault::Pass)
    }
}

/// A store behind a bad link.
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
            match self.switch.begin(operation) {
                Fault::Pass => act().await,
                Fault::Fail => Err(unreachable()),
                Fault::Refuse => Err(Error::new(ErrorKind::Permission, "refused by a test")),
                Fault::Hang => std::future::pending().await,
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
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

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
