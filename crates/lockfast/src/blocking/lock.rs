//! Locks, blocking.

use std::time::Duration;

use lockfast_core::{Fence, LockName, Mode, Result};

use super::block_on;
use super::handle::{Guard, Lease, MultiGuard};
use crate::{Attempt, DetachedLease, Holder, Options};

/// [`crate::Mutex`], blocking.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let report = Locker::connect("memory:")?.mutex("nightly-report")?.ttl(Duration::from_secs(10));
/// let guard = report.acquire()?;
/// guard.extend(Duration::from_secs(60))?;
/// assert!(report.try_acquire()?.acquired().is_none());
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex(pub(super) crate::Mutex);

impl Mutex {
    /// As [`Mutex::ttl`](crate::Mutex::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`Mutex::wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`Mutex::wait_forever`](crate::Mutex::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`Mutex::floor`](crate::Mutex::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Mutex::name`](crate::Mutex::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Mutex::lease_time`](crate::Mutex::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{ErrorKind, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:")?.mutex("nightly-report")?;
    /// let guard = report.acquire()?;
    /// let late = report.wait(Duration::from_millis(20)).acquire().unwrap_err();
    /// assert_eq!(late.kind(), ErrorKind::Taken);
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::new)
    }

    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire). See [`Mutex`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire(&self) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::new))
    }

    /// As [`Mutex::acquire_full`](crate::Mutex::acquire_full).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:")?.mutex("backup")?.acquire_full()?;
    /// assert!(guard.is_full()); // so the job has all of the 30 s before it could be lost
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_full(&self) -> Result<Guard> {
        block_on(self.0.acquire_full()).map(Guard::new)
    }

    /// As [`Mutex::acquire_as`](crate::Mutex::acquire_as).
    ///
    /// ```
    /// use lockfast::{Holder, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:")?.mutex("nightly-report")?;
    /// let me = Holder::new();
    /// let outer = report.acquire_as(&me)?;
    /// let inner = report.acquire_as(&me)?; // in a function that is called
    /// assert_eq!(outer.fence(), inner.fence());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        block_on(self.0.acquire_as(holder)).map(Guard::new)
    }

    /// As [`Mutex::try_acquire_as`](crate::Mutex::try_acquire_as).
    ///
    /// ```
    /// use lockfast::{Holder, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:")?.mutex("nightly-report")?;
    /// let me = Holder::new();
    /// let guard = report.acquire_as(&me)?;
    /// assert!(report.try_acquire_as(&me)?.is_acquired());
    /// assert!(!report.try_acquire_as(&Holder::new())?.is_acquired());
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire_as(holder))?.map(Guard::new))
    }

    /// As [`Mutex::acquire_detached`](crate::Mutex::acquire_detached).
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let lease = locker.mutex("nightly-report")?.acquire_detached()?;
    /// // Another process may go on from here that knows the name and `lease.holder.to_hex()`.
    /// locker.renew_detached(&lease.name, lease.holder, Duration::from_secs(60))?;
    /// locker.release_detached(&lease.name, lease.holder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_detached(&self) -> Result<DetachedLease> {
        block_on(self.0.acquire_detached())
    }

    /// As [`Mutex::run`](crate::Mutex::run), but nobody can stop a thread: `body` checks its lease before
    /// each side effect.
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:")?.mutex("nightly-report")?;
    /// let pages = report.run(|lease| {
    ///     for page in 1..=3 {
    ///         println!("page {page} with fence {}", lease.check()?.fence); // ends here after a loss
    ///     }
    ///     lockfast::Result::Ok(3)
    /// })??;
    /// assert_eq!(pages, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}

/// [`crate::Semaphore`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let builds = Locker::connect("memory:")?.semaphore("build", 2)?;
/// let (_one, _two) = (builds.acquire()?, builds.acquire()?);
/// assert!(!builds.try_acquire()?.is_acquired());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// As [`Semaphore::ttl`](crate::Semaphore::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`Semaphore::wait`](crate::Semaphore::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`Semaphore::wait_forever`](crate::Semaphore::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`Semaphore::lock_delay`](crate::Semaphore::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`Semaphore::floor`](crate::Semaphore::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`Semaphore::with_options`](crate::Semaphore::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Semaphore::name`](crate::Semaphore::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Semaphore::lease_time`](crate::Semaphore::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// As [`Semaphore::acquire`](crate::Semaphore::acquire). See [`Semaphore`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::new)
    }

    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire). See [`Semaphore`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire(&self) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::new))
    }

    /// As [`Semaphore::acquire_full`](crate::Semaphore::acquire_full).
    /// See [`Mutex::acquire_full`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_full(&self) -> Result<Guard> {
        block_on(self.0.acquire_full()).map(Guard::new)
    }

    /// As [`Semaphore::acquire_as`](crate::Semaphore::acquire_as).
    /// See [`Mutex::acquire_as`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        block_on(self.0.acquire_as(holder)).map(Guard::new)
    }

    /// As [`Semaphore::try_acquire_as`](crate::Semaphore::try_acquire_as).
    /// See [`Mutex::try_acquire_as`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire_as(holder))?.map(Guard::new))
    }

    /// As [`Semaphore::acquire_detached`](crate::Semaphore::acquire_detached).
    /// See [`Mutex::acquire_detached`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_detached(&self) -> Result<DetachedLease> {
        block_on(self.0.acquire_detached())
    }

    /// As [`Semaphore::run`](crate::Semaphore::run), but nobody can stop a thread: `body` checks its lease before
    /// each side effect.
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let builds = Locker::connect("memory:")?.semaphore("build", 2)?;
    /// let done = builds.run(|lease| format!("built with fence {}", lease.fence()))?;
    /// assert!(done.starts_with("built"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}

/// [`crate::AnyLock`], blocking.
///
/// ```
/// use lockfast::{Mode, blocking::Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let lock = Locker::connect("memory:")?.any_lock("nightly-report", Mode::Shared)?;
/// println!("taking {}, {}", lock.name(), lock.mode());
/// assert_eq!(lock.acquire()?.mode(), Mode::Shared);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AnyLock(pub(super) crate::AnyLock);

impl AnyLock {
    /// As [`AnyLock::ttl`](crate::AnyLock::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`AnyLock::wait`](crate::AnyLock::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`AnyLock::wait_forever`](crate::AnyLock::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`AnyLock::lock_delay`](crate::AnyLock::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`AnyLock::floor`](crate::AnyLock::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`AnyLock::with_options`](crate::AnyLock::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`AnyLock::name`](crate::AnyLock::name). See [`AnyLock`] for an example.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`AnyLock::lease_time`](crate::AnyLock::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// As [`AnyLock::mode`](crate::AnyLock::mode). See [`AnyLock`] for an example.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// As [`AnyLock::acquire`](crate::AnyLock::acquire). See [`AnyLock`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::new)
    }

    /// As [`AnyLock::try_acquire`](crate::AnyLock::try_acquire). See [`Mutex`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire(&self) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::new))
    }

    /// As [`AnyLock::acquire_full`](crate::AnyLock::acquire_full).
    /// See [`Mutex::acquire_full`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_full(&self) -> Result<Guard> {
        block_on(self.0.acquire_full()).map(Guard::new)
    }

    /// As [`AnyLock::acquire_as`](crate::AnyLock::acquire_as).
    /// See [`Mutex::acquire_as`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        block_on(self.0.acquire_as(holder)).map(Guard::new)
    }

    /// As [`AnyLock::try_acquire_as`](crate::AnyLock::try_acquire_as).
    /// See [`Mutex::try_acquire_as`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_acquire_as(holder))?.map(Guard::new))
    }

    /// As [`AnyLock::acquire_detached`](crate::AnyLock::acquire_detached).
    /// See [`Mutex::acquire_detached`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire_detached(&self) -> Result<DetachedLease> {
        block_on(self.0.acquire_detached())
    }

    /// As [`AnyLock::run`](crate::AnyLock::run), but nobody can stop a thread: `body` checks its lease before
    /// each side effect.
    ///
    /// ```
    /// use lockfast::{Mode, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let lock = Locker::connect("memory:")?.any_lock("catalog", Mode::Shared)?;
    /// assert_eq!(lock.run(|lease| lease.mode())?, Mode::Shared);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}

/// [`crate::RwLock`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let catalog = Locker::connect("memory:")?.rwlock("catalog")?;
/// let reader = catalog.read()?;
/// assert!(!catalog.try_write()?.is_acquired());
/// reader.release()?;
/// catalog.run_write(|lease| println!("writing with fence {}", lease.fence()))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) crate::RwLock);

impl RwLock {
    /// As [`RwLock::ttl`](crate::RwLock::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`RwLock::wait`](crate::RwLock::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`RwLock::wait_forever`](crate::RwLock::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`RwLock::lock_delay`](crate::RwLock::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`RwLock::floor`](crate::RwLock::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`RwLock::with_options`](crate::RwLock::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`RwLock::name`](crate::RwLock::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`RwLock::lease_time`](crate::RwLock::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// As [`RwLock::reader`](crate::RwLock::reader). See [`MultiLock::new`] for an example.
    pub fn reader(&self) -> AnyLock {
        AnyLock(self.0.reader())
    }

    /// As [`RwLock::writer`](crate::RwLock::writer).
    ///
    /// ```
    /// use lockfast::{Holder, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:")?.rwlock("catalog")?;
    /// let me = Holder::new();
    /// let outer = catalog.writer().acquire_as(&me)?;
    /// let inner = catalog.writer().acquire_as(&me)?; // in a function that is called
    /// assert_eq!(outer.fence(), inner.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub fn writer(&self) -> AnyLock {
        AnyLock(self.0.writer())
    }

    /// As [`RwLock::read`](crate::RwLock::read). See [`RwLock`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn read(&self) -> Result<Guard> {
        block_on(self.0.read()).map(Guard::new)
    }

    /// As [`RwLock::write`](crate::RwLock::write).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:")?.rwlock("catalog")?;
    /// let writer = catalog.write()?;
    /// assert!(!catalog.try_read()?.is_acquired()); // nobody reads meanwhile
    /// writer.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn write(&self) -> Result<Guard> {
        block_on(self.0.write()).map(Guard::new)
    }

    /// As [`RwLock::try_read`](crate::RwLock::try_read). See [`RwLock::write`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_read(&self) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_read())?.map(Guard::new))
    }

    /// As [`RwLock::try_write`](crate::RwLock::try_write). See [`RwLock`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_write(&self) -> Result<Attempt<Guard>> {
        Ok(block_on(self.0.try_write())?.map(Guard::new))
    }

    /// As [`RwLock::downgrade`](crate::RwLock::downgrade).
    ///
    /// ```
    /// # fn main() -> lockfast::Result<()> {
    /// let catalog = lockfast::blocking::Locker::connect("memory:")?.rwlock("catalog")?;
    /// let guard = catalog.write()?;
    /// println!("written with fence {}", guard.check()?.fence);
    /// catalog.downgrade(&guard)?;
    /// let other = catalog.read()?; // together with the guard
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn downgrade(&self, writer: &Guard) -> Result<()> {
        block_on(self.0.downgrade(writer.inner()))
    }

    /// As [`RwLock::run_read`](crate::RwLock::run_read), but nobody can stop a thread: `body` checks its lease before
    /// each side effect.
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:")?.rwlock("catalog")?;
    /// let count = catalog.run_read(|_lease| ["chair", "table"].len())?;
    /// assert_eq!(count, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run_read<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        self.read()?.run(body)
    }

    /// As [`RwLock::run_write`](crate::RwLock::run_write), but nobody can stop a thread: `body` checks its lease before
    /// each side effect. See [`RwLock`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run_write<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        self.write()?.run(body)
    }
}

/// [`crate::MultiLock`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let transfer = Locker::connect("memory:")?.multi(["account/7", "account/3"])?;
/// let guard = transfer.acquire()?;
/// println!("writing with {:?}", guard.tokens());
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock(pub(super) crate::MultiLock);

impl MultiLock {
    /// As [`MultiLock::LOCKS_MAX`](crate::MultiLock::LOCKS_MAX).
    pub const LOCKS_MAX: usize = crate::MultiLock::LOCKS_MAX;

    /// As [`MultiLock::new`](crate::MultiLock::new).
    ///
    /// ```
    /// use lockfast::blocking::{Locker, MultiLock};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let catalog = locker.rwlock("catalog")?;
    /// let order = MultiLock::new([catalog.reader(), locker.mutex("order/1")?.into()])?;
    /// assert_eq!(order.acquire()?.tokens().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn new(locks: impl IntoIterator<Item = impl Into<AnyLock>>) -> Result<Self> {
        crate::MultiLock::new(locks.into_iter().map(|lock| lock.into().0)).map(Self)
    }

    /// As [`MultiLock::ttl`](crate::MultiLock::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`MultiLock::wait`](crate::MultiLock::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`MultiLock::wait_forever`](crate::MultiLock::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`MultiLock::lock_delay`](crate::MultiLock::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`MultiLock::with_options`](crate::MultiLock::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`MultiLock::names`](crate::MultiLock::names).
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.0.names()
    }

    /// As [`MultiLock::acquire`](crate::MultiLock::acquire). See [`MultiLock`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn acquire(&self) -> Result<MultiGuard> {
        block_on(self.0.acquire()).map(MultiGuard::new)
    }

    /// As [`MultiLock::try_acquire`](crate::MultiLock::try_acquire).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let other = locker.lock("account/7")?;
    /// let attempt = locker.multi(["account/3", "account/7"])?.try_acquire()?;
    /// let refusal = attempt.refusal().expect("one is held");
    /// assert_eq!(refusal.lock.name, *other.name());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn try_acquire(&self) -> Result<Attempt<MultiGuard>> {
        Ok(block_on(self.0.try_acquire())?.map(MultiGuard::new))
    }

    /// As [`MultiLock::run`](crate::MultiLock::run), but nobody can stop a thread: `body` checks the locks
    /// before each side effect.
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let transfer = Locker::connect("memory:")?.multi(["account/7", "account/3"])?;
    /// let tokens = transfer.run(|guard| guard.check())??; // just before each side effect
    /// assert_eq!(tokens[0].lock.as_str(), "account/3");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}

/// As for [`crate::Mutex`].
impl From<Mutex> for AnyLock {
    fn from(mutex: Mutex) -> Self {
        Self(mutex.0.into())
    }
}

/// As for [`crate::Semaphore`].
impl From<Semaphore> for AnyLock {
    fn from(semaphore: Semaphore) -> Self {
        Self(semaphore.0.into())
    }
}
