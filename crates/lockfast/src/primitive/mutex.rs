//! A lock that one holder has at a time.

use std::future::Future;
use std::time::Duration;

use lockfast_core::{Fence, LockName, Result};

use super::any_lock::{AnyLock, DetachedLease};
use super::attempt::Attempt;
use crate::lease::handle::{Guard, Lease};
use crate::lease::holder::Holder;
use crate::lease::policy::Options;

/// A lock that one holder has at a time. Cheap to clone; it holds nothing until it is acquired.
///
/// How it is taken and kept is said by what begins with [`ttl`](Mutex::ttl). These do not fail: a value
/// that is not possible, or not on this store, is refused by the next call that can fail, before
/// anything is touched.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let report = locker
///     .mutex("nightly-report")?
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(60));
/// let guard = report.acquire().await?;
/// println!("working on {} with fence {}", report.name(), guard.check()?.fence);
/// guard.release().await?;
///
/// let refused = report.ttl(Duration::ZERO).acquire().await.unwrap_err();
/// assert!(refused.to_string().contains("a ttl of 0ns is not possible"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex(AnyLock);

impl Mutex {
    pub(crate) fn new(lock: AnyLock) -> Self {
        Self(lock)
    }

    /// With this lease time: how long a holder that hangs or is cut off keeps others out. See
    /// [`Options::ttl`]. See [`Mutex`] for an example.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Waits at most so long for a taken lock, and for a store that cannot serve it for a while. See
    /// [`Options::wait`]. See [`Mutex::acquire`] for an example.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// Waits as long as it takes. See [`Options::wait_forever`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Locker, Options};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let hasty = Options::default().wait(Duration::from_secs(1));
    /// let locker = Locker::builder().options(hasty).connect("memory:").await?;
    /// let report = locker.mutex("nightly-report")?.wait_forever(); // this one may take longer
    /// report.acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// The store keeps it so much longer than the holder believes when it is not released. See
    /// [`Options::lock_delay`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// // Whoever loses the lock has five seconds to stop before somebody else gets it.
    /// let report = locker.mutex("nightly-report")?.lock_delay(Duration::from_secs(5));
    /// report.acquire().await?.release().await?; // a release does not make anybody wait
    /// assert!(report.try_acquire().await?.is_acquired());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// The next grant's fence is higher than this one, which the guarded thing has seen. See
    /// [`Options::floor`].
    ///
    /// ```
    /// use lockfast::{Fence, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// // The store is a new one, but the database has seen fences up to 1000.
    /// let seen = Fence::new(1000)?;
    /// let guard = locker.mutex("account/7")?.floor(seen).acquire().await?;
    /// assert!(guard.fence().get() > 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// Takes and keeps it as these options say, whatever was said before.
    ///
    /// ```
    /// use lockfast::{Locker, Options};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let careful = Options::default().no_wait().retries(0);
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?.with_options(careful);
    /// report.acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// The name. See [`Mutex`] for an example.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// The lease time that it has: what was chosen, or what the store allows next to 30 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// assert_eq!(report.lease_time(), Duration::from_secs(30)); // nobody has chosen one
    /// assert_eq!(report.ttl(Duration::from_secs(10)).lease_time(), Duration::from_secs(10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease_time(&self) -> Duration {
        self.0.lease_time()
    }

    /// Takes the lock, waiting as its options say.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{ErrorKind, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let guard = report.acquire().await?;
    ///
    /// let late = report.wait(Duration::from_millis(20)).acquire().await.unwrap_err();
    /// assert_eq!(late.kind(), ErrorKind::Taken);
    /// let refusal = late.refusal().expect("it says who has it");
    /// assert_eq!(refusal.lock.holders[0].fence, Some(guard.fence()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: when dropped at any point, the keeper gives back what may have been granted, and
    /// its place in the queue.
    ///
    /// # Errors
    /// [`ErrorKind::Taken`](crate::ErrorKind::Taken) with who has it when the wait ran out; what
    /// [`Options::check`] says of the options; what the store meets.
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire().await
    }

    /// Takes the lock if it is free.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// if let Some(guard) = report.try_acquire().await?.acquired() {
    ///     println!("working with fence {}", guard.fence());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    ///
    /// # Errors
    /// What [`Options::check`] says of the options; what the store meets.
    pub async fn try_acquire(&self) -> Result<Attempt> {
        self.0.try_acquire().await
    }

    /// Takes the lock as [`Mutex::acquire`] does, and returns when the store keeps it for its whole
    /// ttl: for work that cannot be stopped as quickly as a lock that was just handed over may end.
    /// When the process is paused just then, it waits its turn again.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let backup = Locker::connect("memory:").await?.mutex("backup")?;
    /// let guard = backup.acquire_full().await?;
    /// assert!(guard.is_full()); // so the job has all of the 30 s before it could be lost
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    ///
    /// # Errors
    /// As [`Mutex::acquire`], and [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was
    /// taken away before its lease was full.
    pub async fn acquire_full(&self) -> Result<Guard> {
        self.0.acquire_full().await
    }

    /// Takes the lock as [`Mutex::acquire`] does, or another guard of the same grant if `holder` has it
    /// already. The options of the first count for all guards of a grant. While the store is asked for
    /// the holder in another task, this waits for the answer.
    ///
    /// ```
    /// use lockfast::{Holder, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let me = Holder::new();
    /// let outer = report.acquire_as(&me).await?;
    /// let inner = report.acquire_as(&me).await?;
    /// assert_eq!(outer.fence(), inner.fence());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`]; it is not counted.
    ///
    /// # Errors
    /// As [`Mutex::acquire`], and [`ErrorKind::AlreadyHeld`](crate::ErrorKind::AlreadyHeld) when
    /// `holder` has the lock, or asks for it, in another mode.
    pub async fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        self.0.acquire_as(holder).await
    }

    /// Takes the lock if it is free, or another guard of the same grant if `holder` has it already. It
    /// is taken while `holder` waits for it in another task.
    ///
    /// ```
    /// use lockfast::{Holder, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let me = Holder::new();
    /// let guard = report.acquire_as(&me).await?;
    /// assert!(report.try_acquire_as(&me).await?.is_acquired()); // it is ours
    /// assert!(!report.try_acquire_as(&Holder::new()).await?.is_acquired());
    /// guard.check()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire_as`].
    ///
    /// # Errors
    /// As [`Mutex::try_acquire`], and [`ErrorKind::AlreadyHeld`](crate::ErrorKind::AlreadyHeld) as
    /// [`Mutex::acquire_as`].
    pub async fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt> {
        self.0.try_acquire_as(holder).await
    }

    /// Takes the lock, runs `body` under it, gives it back. When the lease is lost, `body` is
    /// dropped where it stands.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let pages = report.run(|lease| async move { format!("fence {}", lease.fence()) }).await?;
    /// assert!(pages.starts_with("fence"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped, `body` is dropped and the keeper gives the lock back.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was lost
    /// before `body` ended.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        self.0.run(body).await
    }

    /// Takes the lock for whoever will know its holder id; nothing renews it. See [`DetachedLease`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    ///
    /// # Errors
    /// As [`Mutex::acquire`], and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a
    /// store whose leases end with the process.
    pub async fn acquire_detached(&self) -> Result<DetachedLease> {
        self.0.acquire_detached().await
    }
}

/// For what takes locks of any mode, as a [`MultiLock`](crate::MultiLock) does.
impl From<Mutex> for AnyLock {
    fn from(mutex: Mutex) -> Self {
        mutex.0
    }
}
