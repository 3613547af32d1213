//! A lock that up to N holders have at a time.

use std::future::Future;
use std::time::Duration;

use lockfast_core::{Fence, LockName, Result};

use super::any_lock::{AnyLock, DetachedLease};
use super::attempt::Attempt;
use crate::lease::handle::{Guard, Lease};
use crate::lease::holder::Holder;
use crate::lease::policy::Options;

/// A lock that up to N holders have at a time; a holder has one permit. Cheap to clone; it holds
/// nothing until it is acquired.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let builds = locker.semaphore("build", 2)?.ttl(Duration::from_secs(10));
/// let (one, two) = (builds.acquire().await?, builds.acquire().await?);
/// assert!(!builds.try_acquire().await?.is_acquired());
/// println!("two hold {}, by fences {} and {}", builds.name(), one.fence(), two.fence());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(AnyLock);

impl Semaphore {
    pub(crate) fn new(lock: AnyLock) -> Self {
        Self(lock)
    }

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

    /// The name. See [`Semaphore`] for an example.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Mutex::lease_time`](crate::Mutex::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// Takes a permit, as [`Mutex::acquire`](crate::Mutex::acquire) takes a lock.
    ///
    /// ```
    /// use lockfast::{ErrorKind, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let permit = locker.semaphore("build", 2)?.acquire().await?;
    /// let other = locker.semaphore("build", 3)?.acquire().await.unwrap_err();
    /// assert_eq!(other.kind(), ErrorKind::Conflict); // all must say the same number
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) when others use another
    /// number of permits.
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire().await
    }

    /// Takes a permit if one is free. See [`Semaphore`] for an example.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`], but never because it is taken.
    pub async fn try_acquire(&self) -> Result<Attempt> {
        self.0.try_acquire().await
    }

    /// As [`Mutex::acquire_full`](crate::Mutex::acquire_full).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_full(&self) -> Result<Guard> {
        self.0.acquire_full().await
    }

    /// As [`Mutex::acquire_as`](crate::Mutex::acquire_as).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        self.0.acquire_as(holder).await
    }

    /// As [`Mutex::try_acquire_as`](crate::Mutex::try_acquire_as).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt> {
        self.0.try_acquire_as(holder).await
    }

    /// As [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        self.0.run(body).await
    }

    /// As [`Mutex::acquire_detached`](crate::Mutex::acquire_detached).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_detached(&self) -> Result<DetachedLease> {
        self.0.acquire_detached().await
    }
}

/// For what takes locks of any mode, as a [`MultiLock`](crate::MultiLock) does.
impl From<Semaphore> for AnyLock {
    fn from(semaphore: Semaphore) -> Self {
        semaphore.0
    }
}
