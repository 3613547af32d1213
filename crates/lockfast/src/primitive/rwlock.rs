//! A lock that many readers or one writer have at a time.

use std::future::Future;
use std::time::Duration;

use lockfast_core::{Error, ErrorKind, Fence, LockName, Mode, Result};

use super::any_lock::AnyLock;
use super::attempt::Attempt;
use crate::lease::handle::{Guard, Lease};
use crate::lease::policy::Options;

/// A lock that many readers or one writer have at a time. A waiting writer keeps later readers
/// behind it, so neither side is starved. A reader cannot become a writer without giving its
/// hold back first: two that tried would wait for each other for ever. A writer can become a reader:
/// [`RwLock::downgrade`].
///
/// Cheap to clone; it holds nothing until it is read or written.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let catalog = locker.rwlock("catalog")?.ttl(Duration::from_secs(10));
/// let (one, two) = (catalog.read().await?, catalog.read().await?);
/// assert!(!catalog.try_write().await?.is_acquired());
/// one.release().await?;
/// two.release().await?;
/// let writer = catalog.write().await?;
/// println!("writing {} with fence {}", catalog.name(), writer.check()?.fence);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    reader: AnyLock,
}

impl RwLock {
    pub(crate) fn new(reader: AnyLock) -> Self {
        Self { reader }
    }

    /// As [`Mutex::ttl`](crate::Mutex::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self::new(self.reader.ttl(ttl))
    }

    /// As [`Mutex::wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self::new(self.reader.wait(wait))
    }

    /// As [`Mutex::wait_forever`](crate::Mutex::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self::new(self.reader.wait_forever())
    }

    /// As [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self::new(self.reader.lock_delay(lock_delay))
    }

    /// As [`Mutex::floor`](crate::Mutex::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self::new(self.reader.floor(floor))
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self::new(self.reader.with_options(options))
    }

    /// The name. See [`RwLock`] for an example.
    pub fn name(&self) -> &LockName {
        self.reader.name()
    }

    /// As [`Mutex::lease_time`](crate::Mutex::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.reader.lease_time()
    }

    /// The reader's side as a lock of its own, for what has no short form here: a
    /// [`MultiLock`](crate::MultiLock), a [`Holder`](crate::Holder), a detached lease.
    ///
    /// ```
    /// use lockfast::{Locker, MultiLock};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let (catalog, prices) = (locker.rwlock("catalog")?, locker.rwlock("prices")?);
    /// let both = MultiLock::new([catalog.reader(), prices.reader()])?;
    /// let guard = both.acquire().await?;
    /// assert!(catalog.try_read().await?.is_acquired()); // others may read as well
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reader(&self) -> AnyLock {
        self.reader.clone()
    }

    /// The writer's side as a lock of its own, as [`RwLock::reader`].
    ///
    /// ```
    /// use lockfast::{Holder, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:").await?.rwlock("catalog")?;
    /// let me = Holder::new();
    /// let outer = catalog.writer().acquire_as(&me).await?;
    /// let inner = catalog.writer().acquire_as(&me).await?; // in a function that is called
    /// assert_eq!(outer.fence(), inner.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub fn writer(&self) -> AnyLock {
        self.reader.clone().with_mode(Mode::Exclusive)
    }

    /// Takes the lock together with other readers. See [`RwLock`] for an example.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn read(&self) -> Result<Guard> {
        self.reader.acquire().await
    }

    /// Takes the lock alone. See [`RwLock`] for an example.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn write(&self) -> Result<Guard> {
        self.writer().acquire().await
    }

    /// Takes the lock together with other readers, if no writer has it or waits for it.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:").await?.rwlock("catalog")?;
    /// let writer = catalog.write().await?;
    /// match catalog.try_read().await?.acquired() {
    ///     Some(reader) => println!("reading as of fence {}", reader.fence()),
    ///     None => println!("it is being written; show what was read before"),
    /// }
    /// # writer.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub async fn try_read(&self) -> Result<Attempt> {
        self.reader.try_acquire().await
    }

    /// Takes the lock alone, if nobody has it. See [`RwLock`] for an example.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub async fn try_write(&self) -> Result<Attempt> {
        self.writer().try_acquire().await
    }

    /// Makes a reader of a writer, without a moment in which the lock is free: what was written is what
    /// this reader goes on to read. The guard stays the same, and so do its fence, its place and the time
    /// of its lease; from now on it is a reader's, as [`Lease::mode`] says. Readers that wait behind it get
    /// in at once, up to the next writer that waits. No writer gets in before this guard and those readers
    /// have given the lock back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// use lockfast::{Locker, Mode};
    ///
    /// let catalog = Locker::connect("memory:").await?.rwlock("catalog")?;
    /// let guard = catalog.write().await?;
    /// println!("written with fence {}", guard.check()?.fence);
    /// catalog.downgrade(&guard).await?;
    /// assert_eq!(guard.mode(), Mode::Shared);
    /// let other = catalog.read().await?; // together with the guard
    /// assert!(!catalog.try_write().await?.is_acquired());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Repeating it is harmless. From the first call on, nothing must be written under the guard: the
    /// store may let readers in before the answer is here. When this fails for want of an answer, the lock
    /// is still held, exclusively or shared; calling it again tells.
    ///
    /// # Cancel safety
    /// When dropped before its end, the lock is still held, and the store may or may not have let
    /// readers in. Calling it again tells.
    ///
    /// # Errors
    /// Before anything is touched: [`ErrorKind::DifferentLock`] for a guard of another lock or another
    /// connection, [`ErrorKind::Unsupported`] where the store cannot do it, [`ErrorKind::AlreadyHeld`] for
    /// a guard that was not a writer's, or while other guards of its [`Holder`](crate::Holder) rely on its
    /// being exclusive. [`ErrorKind::Conflict`] when somebody waits for a permit of the same name: it stays
    /// exclusive. [`ErrorKind::Lost`] and [`ErrorKind::NotHeld`] as [`Lease::check`],
    /// [`ErrorKind::Unreachable`] when the store did not answer.
    pub async fn downgrade(&self, writer: &Guard) -> Result<()> {
        self.reader.check()?;
        if !self.reader.is_of(writer) {
            let message = format!(
                "the guard is of lock {}; only one that was taken from this lock over the same \
                 connection can be downgraded",
                writer.name()
            );
            return Err(Error::new(ErrorKind::DifferentLock, message).with_lock(self.name()));
        }
        writer.downgrade().await
    }

    /// Runs `body` as a reader, as [`Mutex::run`](crate::Mutex::run) does.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:").await?.rwlock("catalog")?;
    /// let count = catalog.run_read(|_lease| async { ["chair", "table"].len() }).await?;
    /// assert_eq!(count, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn run_read<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        self.reader.run(body).await
    }

    /// Runs `body` as the writer, as [`Mutex::run`](crate::Mutex::run) does.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let catalog = Locker::connect("memory:").await?.rwlock("catalog")?;
    /// let written = catalog
    ///     .run_write(|lease| async move {
    ///         let checked = lease.check()?; // just before the side effect
    ///         Ok::<_, lockfast::Error>(format!("chair, with fence {}", checked.fence))
    ///     })
    ///     .await??;
    /// assert!(written.starts_with("chair"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn run_write<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        self.writer().run(body).await
    }
}
