//! The same locks for code without an executor. It needs no runtime: the keeper's threads do the
//! work, and the calling thread sleeps until they are done. Inside `spawn_blocking` and
//! `block_in_place` of tokio it may be used, in a task it is refused.
//!
//! ```
//! # fn main() -> lockfast::Result<()> {
//! let locker = lockfast::blocking::Locker::connect("memory:")?;
//! let guard = locker.mutex("nightly-report")?.acquire()?;
//! println!("working with fence {}", guard.check()?.fence);
//! guard.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! What waits until something happens has a form with a limit, whose name ends with `_within`: there is
//! no other way to stop a thread. It says whether it happened in time, and nothing that happens later is
//! missed by the next call.

mod handle;
mod job;
mod lock;
mod refresh;
mod value;

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use lockfast_core::{
    Diagnosis, Error, ErrorKind, Fence, FencingToken, Guarantee, HolderId, LockName, LockView,
    Migration, Mode, Moment, Profile, ReleaseOutcome, Result, RevokeOutcome, WatchEvent,
};
use lockfast_fence::sql::TableGate;
use tokio::task::coop::poll_proceed;

pub use handle::{Guard, Lease, LeaseChanges, MultiGuard, OnceGuard};
pub use job::{Campaign, Leader, LeaderEvent, Observer, Once};
pub use lock::{AnyLock, MultiLock, Mutex, RwLock, Semaphore};
pub use refresh::{Refresh, RefreshAttempt, RefreshGuard};
pub use value::{Barrier, Latch, SharedValue, retry};

/// More than tokio gives a task to spend.
const BUDGET_MAX: u32 = 256;

/// Runs a future on this thread.
///
/// # Errors
/// [`ErrorKind::BlockingInAsync`] where a runtime would be blocked.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let blocked = block(future, || {
        std::thread::park();
        ControlFlow::<Infallible>::Continue(())
    });
    match blocked? {
        ControlFlow::Continue(value) => Ok(value),
        ControlFlow::Break(never) => match never {},
    }
}

/// The same for so long at most; `None` when the future has not ended by then and was dropped.
fn block_within<T>(limit: Duration, future: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let start = Moment::now();
    let blocked = block(future, || {
        let left = limit.saturating_sub(Moment::now().since(start));
        if left.is_zero() {
            return ControlFlow::Break(());
        }
        std::thread::park_timeout(left);
        ControlFlow::Continue(())
    });
    blocked.map(ControlFlow::continue_value)
}

/// Polls a future on this thread until it has ended, or `pause`, which waits until it is woken, gives up.
fn block<T, B>(
    future: impl Future<Output = Result<T>>,
    mut pause: impl FnMut() -> ControlFlow<B>,
) -> Result<ControlFlow<B, T>> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    if tokio::runtime::Handle::try_current().is_ok() && is_in_task() {
        return Err(Error::new(
            ErrorKind::BlockingInAsync,
            "a blocking call would stop this async runtime; use the async API here, or call it \
             inside tokio::task::spawn_blocking",
        ));
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value.map(ControlFlow::Continue);
        }
        if let ControlFlow::Break(gave_up) = pause() {
            return Ok(ControlFlow::Break(gave_up));
        }
    }
}

/// Whether this thread runs a task of tokio's at the moment. Only those have a budget, which ends;
/// code in `spawn_blocking` or `block_in_place`, which may block, has none.
fn is_in_task() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut spent = Vec::new();
    let is_limited = (0..BUDGET_MAX).any(|_| match poll_proceed(&mut context) {
        Poll::Ready(unit) => {
            spent.push(unit);
            false
        }
        Poll::Pending => true,
    });
    // Each puts back what was there before it was spent.
    while spent.pop().is_some() {}
    is_limited
}

/// As [`crate::diagnose`].
///
/// ```
/// # fn main() -> lockfast::Result<()> {
/// let diagnosis = lockfast::blocking::diagnose("memory:")?;
/// println!("good for {}: {}", diagnosis.guarantee, diagnosis.because);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there, and [`ErrorKind::BlockingInAsync`].
pub fn diagnose(url: &str) -> Result<Diagnosis> {
    block_on(crate::diagnose(url))
}

/// As [`crate::migrate`].
///
/// ```
/// use lockfast::{Migration, blocking::migrate};
///
/// # fn main() -> lockfast::Result<()> {
/// assert_eq!(migrate("memory:")?, Migration::NoSchema); // a database has one
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there, and [`ErrorKind::BlockingInAsync`].
pub fn migrate(url: &str) -> Result<Migration> {
    block_on(crate::migrate(url))
}

/// As [`GateDatabase::open`](crate::GateDatabase::open), in the database at `url`.
///
/// ```no_run
/// use lockfast::blocking::{Locker, open_gate};
/// use lockfast::fence::sql::{Dialect, TableGate};
///
/// # fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("embedded:")?.lock("account/7")?;
/// let gate = TableGate::new(Dialect::Sqlite, "account/7")?;
/// open_gate("sqlite:app.db", &gate, &guard.token())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there and of [`GateDatabase::at`](crate::GateDatabase::at), and [`ErrorKind::BlockingInAsync`].
pub fn open_gate(url: &str, gate: &TableGate, token: &FencingToken) -> Result<()> {
    let database = crate::GateDatabase::at(url)?;
    block_on(database.open(gate, token))
}

/// [`crate::Locker`], blocking.
///
/// ```
/// # fn main() -> lockfast::Result<()> {
/// let locker = lockfast::blocking::Locker::connect("memory:")?;
/// let guard = locker.lock("nightly-report")?;
/// assert_eq!(locker.inspect("nightly-report")?.holders[0].fence, Some(guard.fence()));
/// for view in locker.list("", None, 100)? {
///     println!("{}: {} holders", view.name, view.holders.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Locker(crate::Locker);

impl Locker {
    /// As [`Locker::connect`](crate::Locker::connect). See [`Locker`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_as(crate::Locker::builder(), url)
    }

    /// As [`LockerBuilder::connect`](crate::LockerBuilder::connect).
    ///
    /// ```
    /// use lockfast::{Guarantee, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let builder = lockfast::Locker::builder().require(Guarantee::Correctness).prefix("billing/");
    /// let locker = Locker::connect_as(builder, "memory:")?;
    /// assert_eq!(locker.guarantee(), Guarantee::Correctness);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn connect_as(builder: crate::LockerBuilder, url: &str) -> Result<Self> {
        Self::of(builder.connect(url))
    }

    /// The locker that this connects.
    pub(crate) fn of(connecting: impl Future<Output = Result<crate::Locker>>) -> Result<Self> {
        block_on(connecting).map(Self)
    }

    /// As [`Locker::profile`](crate::Locker::profile).
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }

    /// As [`Locker::guarantee`](crate::Locker::guarantee). See [`Locker::connect_as`] for an example.
    pub fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }

    /// As [`Locker::mutex`](crate::Locker::mutex). See [`Mutex`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        self.0.mutex(name).map(Mutex)
    }

    /// As [`Locker::lock`](crate::Locker::lock). See [`Locker`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Guard> {
        self.mutex(name)?.acquire()
    }

    /// As [`Locker::rwlock`](crate::Locker::rwlock). See [`RwLock`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.0.rwlock(name).map(RwLock)
    }

    /// As [`Locker::semaphore`](crate::Locker::semaphore). See [`Semaphore`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        self.0.semaphore(name, permits).map(Semaphore)
    }

    /// As [`Locker::multi`](crate::Locker::multi). See [`MultiLock`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<MultiLock> {
        self.0.multi(names).map(MultiLock)
    }

    /// As [`Locker::any_lock`](crate::Locker::any_lock). See [`AnyLock`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn any_lock(&self, name: impl AsRef<str>, mode: Mode) -> Result<AnyLock> {
        self.0.any_lock(name, mode).map(AnyLock)
    }

    /// As [`Locker::leader`](crate::Locker::leader). See [`Leader`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self, name: impl AsRef<str>) -> Result<Leader> {
        self.0.leader(name).map(Leader)
    }

    /// As [`Locker::once`](crate::Locker::once). See [`Once`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn once(&self, name: impl AsRef<str>, at_most: Duration) -> Result<Once> {
        self.0.once(name, at_most).map(Once)
    }

    /// As [`Locker::value`](crate::Locker::value). See [`SharedValue`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn value(&self, name: impl AsRef<str>) -> Result<SharedValue> {
        self.0.value(name).map(SharedValue)
    }

    /// As [`Locker::latch`](crate::Locker::latch). See [`Latch`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        self.0.latch(name, count).map(Latch)
    }

    /// As [`Locker::barrier`](crate::Locker::barrier). See [`Barrier`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn barrier(&self, name: impl AsRef<str>, parties: u32) -> Result<Barrier> {
        self.0.barrier(name, parties).map(Barrier)
    }

    /// As [`Locker::refresh`](crate::Locker::refresh). See [`Refresh`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn refresh(&self, name: impl AsRef<str>, fresh_for: Duration) -> Result<Refresh> {
        self.0.refresh(name, fresh_for).map(Refresh)
    }

    /// As [`Locker::inspect`](crate::Locker::inspect). See [`Locker`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<LockView> {
        block_on(self.0.inspect(name))
    }

    /// As [`Locker::list`](crate::Locker::list). See [`Locker`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn list(
        &self,
        prefix: impl AsRef<str>,
        after: Option<&LockName>,
        limit: usize,
    ) -> Result<Vec<LockView>> {
        block_on(self.0.list(prefix, after, limit))
    }

    /// As [`Locker::watch`](crate::Locker::watch). See [`EventStream`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn watch(&self) -> Result<EventStream> {
        block_on(self.0.watch()).map(EventStream)
    }

    /// As [`Locker::revoke`](crate::Locker::revoke).
    ///
    /// ```
    /// use lockfast::{LossCause, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let guard = locker.lock("nightly-report")?;
    /// locker.revoke("nightly-report", "maintenance")?;
    /// assert_eq!(guard.lost()?, LossCause::Revoked { reason: "maintenance".into() });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn revoke(&self, name: impl AsRef<str>, reason: &str) -> Result<RevokeOutcome> {
        block_on(self.0.revoke(name, reason))
    }

    /// As [`Locker::revoke_fence`](crate::Locker::revoke_fence).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let guard = locker.lock("nightly-report")?;
    /// let stuck = locker.inspect("nightly-report")?.holders[0].fence.expect("a holder of ours");
    /// locker.revoke_fence("nightly-report", stuck, "it hangs")?; // not whoever has it by now
    /// assert!(guard.lost().is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn revoke_fence(
        &self,
        name: impl AsRef<str>,
        fence: Fence,
        reason: &str,
    ) -> Result<RevokeOutcome> {
        block_on(self.0.revoke_fence(name, fence, reason))
    }

    /// As [`Locker::settled`](crate::Locker::settled).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// drop(locker.lock("nightly-report")?);
    /// locker.settled()?; // then the program may end
    /// assert!(locker.inspect("nightly-report")?.holders.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn settled(&self) -> Result<()> {
        block_on(async {
            self.0.settled().await;
            Ok(())
        })
    }

    /// As [`Locker::shutdown`](crate::Locker::shutdown).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// drop(locker.lock("nightly-report")?);
    /// locker.shutdown()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn shutdown(self) -> Result<()> {
        self.settled()
    }

    /// As [`Locker::renew_detached`](crate::Locker::renew_detached).
    /// See [`Mutex::acquire_detached`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn renew_detached(
        &self,
        name: impl AsRef<str>,
        holder: HolderId,
        ttl: Duration,
    ) -> Result<Moment> {
        block_on(self.0.renew_detached(name, holder, ttl))
    }

    /// As [`Locker::release_detached`](crate::Locker::release_detached).
    /// See [`Mutex::acquire_detached`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn release_detached(
        &self,
        name: impl AsRef<str>,
        holder: HolderId,
    ) -> Result<ReleaseOutcome> {
        block_on(self.0.release_detached(name, holder))
    }
}

/// A connection that was made in another way, with a store of one's own, say.
impl From<crate::Locker> for Locker {
    fn from(locker: crate::Locker) -> Self {
        Self(locker)
    }
}

/// [`crate::EventStream`], blocking.
///
/// ```
/// use lockfast::{WatchKind, blocking::Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:")?;
/// let mut events = locker.watch()?;
/// let guard = locker.lock("nightly-report")?;
/// while let Some(event) = events.next()? {
///     println!("{} {}", event.name, event.kind.as_str());
///     if event.kind == WatchKind::Granted && event.fence == Some(guard.fence()) {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventStream(crate::EventStream);

impl EventStream {
    /// As [`EventStream::next`](crate::EventStream::next). See [`EventStream`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`].
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: it can fail")]
    pub fn next(&mut self) -> Result<Option<WatchEvent>> {
        block_on(async { Ok(self.0.next().await) })
    }

    /// The next event, if one comes within `limit`. See [`Heard`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`].
    pub fn next_within(&mut self, limit: Duration) -> Result<Heard> {
        Ok(match block_within(limit, async { Ok(self.0.next().await) })? {
            Some(Some(event)) => Heard::Event(event),
            Some(None) => Heard::End,
            None => Heard::Nothing,
        })
    }
}

/// What came of [`EventStream::next_within`].
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::{Heard, Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:")?;
/// let mut events = locker.watch()?;
/// let _guard = locker.lock("nightly-report")?;
/// loop {
///     match events.next_within(Duration::from_millis(100))? {
///         Heard::Event(event) => println!("{} {}", event.name, event.kind.as_str()),
///         Heard::Nothing => break, // or look after other things, and go on
///         Heard::End => events = locker.watch()?,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Heard {
    /// This happened.
    Event(WatchEvent),
    /// Nothing came in time.
    Nothing,
    /// The stream has ended: watch again.
    End,
}
