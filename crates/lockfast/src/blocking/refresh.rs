//! Values that one computes and all read, blocking.

use std::time::Duration;

use lockfast_core::{Error, LockName, Result};

use super::block_on;
use super::handle::Lease;
use crate::{Ensured, Options};

/// [`crate::Refresh`], blocking.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:")?;
/// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
/// let computed = rates.get(|_lease| Ok(b"EUR 1.08".to_vec()))?;
/// let read = rates.get(|_lease| unreachable!("it is fresh"))?;
/// assert_eq!(computed, read);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Refresh(pub(super) crate::Refresh);

impl Refresh {
    /// As [`Refresh::BYTES_MAX`](crate::Refresh::BYTES_MAX).
    pub const BYTES_MAX: usize = crate::Refresh::BYTES_MAX;

    /// As [`Refresh::stale_for`](crate::Refresh::stale_for).
    ///
    /// # Errors
    /// As there.
    pub fn stale_for(self, stale_for: Duration) -> Result<Self> {
        self.0.stale_for(stale_for).map(Self)
    }

    /// As [`Refresh::ttl`](crate::Refresh::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`Refresh::wait`](crate::Refresh::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// As [`Refresh::wait_forever`](crate::Refresh::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// As [`Refresh::with_options`](crate::Refresh::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Refresh::lock_of`](crate::Refresh::lock_of).
    ///
    /// # Errors
    /// As there.
    pub fn lock_of(name: &LockName) -> Result<LockName> {
        crate::Refresh::lock_of(name)
    }

    /// As [`Refresh::name`](crate::Refresh::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Refresh::get`](crate::Refresh::get), but nobody can stop a thread: what is computed after a loss is
    /// thrown away, and `compute` checks its lease before each side effect.
    /// See [`Refresh`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn get(&self, compute: impl FnOnce(&Lease) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        match self.start()? {
            RefreshAttempt::Fresh(bytes) => Ok(bytes),
            RefreshAttempt::Granted(guard) => {
                let (guard, computed) = guard.run(compute)?;
                guard.finish(computed)
            }
        }
    }

    /// As [`Refresh::ensure`](crate::Refresh::ensure), but nobody can stop a thread: `work` checks its lease
    /// before each side effect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Ensured, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let index = Locker::connect("memory:")?.refresh("search-index", Duration::from_secs(300))?;
    /// assert_eq!(index.ensure(|_lease| Ok("built"))?, Ensured::Now("built"));
    /// assert_eq!(index.ensure(|_lease| Ok("again"))?, Ensured::Before);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn ensure<T>(&self, work: impl FnOnce(&Lease) -> Result<T>) -> Result<Ensured<T>> {
        match block_on(self.0.start_mark())? {
            crate::RefreshAttempt::Fresh(_) => Ok(Ensured::Before),
            crate::RefreshAttempt::Granted(guard) => {
                let (guard, done) = RefreshGuard::new(guard).run(work)?;
                guard.finish(Vec::new())?;
                Ok(Ensured::Now(done))
            }
        }
    }

    /// As [`Refresh::invalidate`](crate::Refresh::invalidate).
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let rates = Locker::connect("memory:")?.refresh("exchange-rates", Duration::from_secs(300))?;
    /// rates.get(|_lease| Ok(b"EUR 1.08".to_vec()))?;
    /// rates.invalidate()?; // the bank has published new ones
    /// assert_eq!(rates.get(|_lease| Ok(b"EUR 1.09".to_vec()))?, b"EUR 1.09");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn invalidate(&self) -> Result<()> {
        block_on(self.0.invalidate())
    }

    /// As [`Refresh::start`](crate::Refresh::start). See [`RefreshAttempt`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn start(&self) -> Result<RefreshAttempt> {
        Ok(match block_on(self.0.start())? {
            crate::RefreshAttempt::Fresh(bytes) => RefreshAttempt::Fresh(bytes),
            crate::RefreshAttempt::Granted(guard) => {
                RefreshAttempt::Granted(RefreshGuard::new(guard))
            }
        })
    }
}

/// [`crate::RefreshAttempt`], blocking.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::{Locker, RefreshAttempt};
///
/// # fn main() -> lockfast::Result<()> {
/// let rates = Locker::connect("memory:")?.refresh("exchange-rates", Duration::from_secs(300))?;
/// let bytes = match rates.start()? {
///     RefreshAttempt::Fresh(bytes) => bytes,
///     RefreshAttempt::Granted(guard) => guard.finish(b"EUR 1.08".to_vec())?,
/// };
/// assert_eq!(bytes, b"EUR 1.08");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum RefreshAttempt {
    /// As [`RefreshAttempt::Fresh`](crate::RefreshAttempt::Fresh).
    Fresh(Vec<u8>),
    /// As [`RefreshAttempt::Granted`](crate::RefreshAttempt::Granted).
    Granted(RefreshGuard),
}

/// [`crate::RefreshGuard`], blocking.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::{Locker, RefreshAttempt};
/// use lockfast::{Error, ErrorKind};
///
/// # fn main() -> lockfast::Result<()> {
/// let rates = Locker::connect("memory:")?.refresh("exchange-rates", Duration::from_secs(300))?;
/// if let RefreshAttempt::Granted(guard) = rates.start()? {
///     guard.lease().check()?; // before each side effect of the computation
///     let error = Error::new(ErrorKind::Computation, "the bank is closed");
///     guard.fail(&error)?; // those who wait are told
/// }
/// # assert!(matches!(rates.start()?, RefreshAttempt::Granted(_)));
/// # Ok(())
/// # }
/// ```
#[must_use = "the right to compute is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RefreshGuard {
    guard: crate::RefreshGuard,
    lease: Lease,
}

impl RefreshGuard {
    fn new(guard: crate::RefreshGuard) -> Self {
        let lease = Lease::from(guard.lease().clone());
        Self { guard, lease }
    }

    /// As [`RefreshGuard::lease`](crate::RefreshGuard::lease). See [`RefreshGuard`] for an example.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// As [`RefreshGuard::finish`](crate::RefreshGuard::finish). See [`RefreshAttempt`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn finish(self, computed: Vec<u8>) -> Result<Vec<u8>> {
        block_on(self.guard.finish(computed))
    }

    /// As [`RefreshGuard::fail`](crate::RefreshGuard::fail). See [`RefreshGuard`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn fail(self, error: &Error) -> Result<()> {
        block_on(self.guard.fail(error))
    }

    /// Runs the computation. After a loss it counts no more, as if it had been stopped.
    fn run<T>(self, compute: impl FnOnce(&Lease) -> Result<T>) -> Result<(Self, T)> {
        let computed = compute(&self.lease);
        self.lease.check()?;
        match computed {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                // Whoever waits computes by itself when it cannot be told.
                let _ = self.fail(&error);
                Err(error)
            }
        }
    }
}
