//! What is held, blocking.

use std::ops::Deref;
use std::time::Duration;

use lockfast_core::{Error, LossCause, Moment, Result};

use super::{block_on, block_within};
use crate::{LeaseStatus, Released};

/// [`crate::Lease`], blocking. What does not wait is the same.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:")?.lock("nightly-report")?;
/// let lease = guard.lease().clone();
/// let watching = std::thread::spawn(move || lease.lost()); // until it is lost
/// guard.extend(Duration::from_secs(60))?;
/// # drop(watching);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lease(crate::Lease);

impl Lease {
    /// As [`Lease::lost`](crate::Lease::lost). See [`Lease`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn lost(&self) -> Result<LossCause> {
        block_on(async { Ok(self.0.lost().await) })
    }

    /// Why it was lost, if that happens within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:")?.lock("nightly-report")?;
    /// while guard.lost_within(Duration::from_millis(10))?.is_none() {
    ///     println!("another page"); // and look again after each
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LossCause>> {
        block_within(limit, async { Ok(self.0.lost().await) })
    }

    /// As [`Lease::changes`](crate::Lease::changes). See [`LeaseChanges`] for an example.
    pub fn changes(&self) -> LeaseChanges {
        LeaseChanges(self.0.changes())
    }

    /// As [`Lease::extend`](crate::Lease::extend). See [`Lease`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        block_on(self.0.extend(ttl))
    }

    /// As [`Lease::full`](crate::Lease::full).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:")?.lock("backup")?;
    /// guard.full()?; // before work that cannot be stopped quickly
    /// assert!(guard.is_full());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn full(&self) -> Result<()> {
        block_on(self.0.full())
    }
}

/// As the async API brings it.
impl From<crate::Lease> for Lease {
    fn from(lease: crate::Lease) -> Self {
        Self(lease)
    }
}

impl Deref for Lease {
    type Target = crate::Lease;

    fn deref(&self) -> &crate::Lease {
        &self.0
    }
}

/// [`crate::LeaseChanges`], blocking.
///
/// ```
/// use lockfast::{LeaseStatus, blocking::Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:")?.lock("nightly-report")?;
/// let mut changes = guard.changes();
/// let log = std::thread::spawn(move || {
///     loop {
///         match changes.next()? {
///             LeaseStatus::Held => println!("held"),
///             LeaseStatus::Jeopardy { failure, .. } => println!("not renewed: {failure}"),
///             over => return lockfast::Result::Ok(over),
///         }
///     }
/// });
/// guard.release()?;
/// assert_eq!(log.join().expect("no panic")?, LeaseStatus::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaseChanges(crate::LeaseChanges);

impl LeaseChanges {
    /// As [`LeaseChanges::next`](crate::LeaseChanges::next). See [`LeaseChanges`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> Result<LeaseStatus> {
        block_on(async { Ok(self.0.next().await) })
    }

    /// The next status, if one comes within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:")?.lock("nightly-report")?;
    /// let mut changes = guard.changes();
    /// while let Some(status) = changes.next_within(Duration::from_millis(10))? {
    ///     println!("{status:?}"); // held, and then nothing new
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<LeaseStatus>> {
        block_within(limit, async { Ok(self.0.next().await) })
    }
}

/// [`crate::Guard`], blocking. It is a [`Lease`] as well.
///
/// ```
/// # fn main() -> lockfast::Result<()> {
/// let guard = lockfast::blocking::Locker::connect("memory:")?.lock("nightly-report")?;
/// println!("working with fence {}", guard.check()?.fence);
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    guard: crate::Guard,
    lease: Lease,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Self {
        let lease = Lease(guard.lease().clone());
        Self { guard, lease }
    }

    pub(super) fn inner(&self) -> &crate::Guard {
        &self.guard
    }

    /// As [`Guard::lease`](crate::Guard::lease). See [`Lease`] for an example.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// As [`Guard::release`](crate::Guard::release). See [`Guard`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync);
    /// then the keeper gives the lock back.
    pub fn release(self) -> Result<Released> {
        block_on(self.guard.release())
    }

    /// Runs `body` under the lock and gives it back.
    pub(super) fn run<T>(self, body: impl FnOnce(&Lease) -> T) -> Result<T> {
        let (value, lease) = (body(&self.lease), self.lease.clone());
        match self.release()? {
            Released::AlreadyLost(cause) => Err(Error::lost(lease.name(), cause)),
            _ => Ok(value),
        }
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// [`crate::MultiGuard`], blocking. What does not wait is the same.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:")?.multi(["account/7", "account/3"])?.acquire()?;
/// for token in guard.check()? {
///     println!("write to {} with fence {}", token.lock, token.fence); // account/3, account/7
/// }
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    guard: crate::MultiGuard,
    leases: Vec<Lease>,
}

impl MultiGuard {
    pub(super) fn new(guard: crate::MultiGuard) -> Self {
        let leases = guard.leases().cloned().map(Lease).collect();
        Self { guard, leases }
    }

    /// As [`MultiGuard::leases`](crate::MultiGuard::leases).
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter()
    }

    /// As [`MultiGuard::lost`](crate::MultiGuard::lost).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:")?;
    /// let guard = locker.multi(["account/7", "account/3"])?.acquire()?;
    /// locker.revoke("account/7", "maintenance")?; // one of them is enough
    /// println!("stopped: {}", guard.lost()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn lost(&self) -> Result<LossCause> {
        block_on(async { Ok(self.guard.lost().await) })
    }

    /// Why any of them was lost, if that happens within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:")?.multi(["account/3", "account/7"])?.acquire()?;
    /// if let Some(cause) = guard.lost_within(Duration::from_millis(10))? {
    ///     println!("stopped: {cause}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LossCause>> {
        block_within(limit, async { Ok(self.guard.lost().await) })
    }

    /// As [`MultiGuard::release`](crate::MultiGuard::release). See [`MultiGuard`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync);
    /// then the keeper gives the locks back.
    pub fn release(self) -> Result<Vec<Released>> {
        block_on(self.guard.release())
    }

    /// Runs `body` under the locks and gives them back.
    pub(super) fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T> {
        let value = body(&self);
        let names: Vec<_> = self.leases().map(|lease| lease.name().clone()).collect();
        for (name, released) in names.iter().zip(self.release()?) {
            if let Released::AlreadyLost(cause) = released {
                return Err(Error::lost(name, cause));
            }
        }
        Ok(value)
    }
}

impl Deref for MultiGuard {
    type Target = crate::MultiGuard;

    fn deref(&self) -> &crate::MultiGuard {
        &self.guard
    }
}

/// [`crate::OnceGuard`], blocking. It is a [`Lease`] as well.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let job = Locker::connect("memory:")?.once("nightly-report", Duration::from_secs(600))?;
/// if let Some(guard) = job.start()?.acquired() {
///     let lease = guard.lease().clone();
///     let pages = std::thread::spawn(move || lease.check().map(|checked| checked.fence));
///     println!("written with fence {}", pages.join().expect("no panic")?);
///     guard.finish()?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the job counts as ended as soon as the guard is dropped"]
#[derive(Debug)]
pub struct OnceGuard {
    guard: crate::OnceGuard,
    lease: Lease,
}

impl OnceGuard {
    pub(super) fn new(guard: crate::OnceGuard) -> Self {
        let lease = Lease(guard.lease().clone());
        Self { guard, lease }
    }

    /// As [`OnceGuard::lease`](crate::OnceGuard::lease). See [`OnceGuard`] for an example.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// As [`OnceGuard::started`](crate::OnceGuard::started).
    /// See [`Once::finish_detached`](super::Once::finish_detached) for an example.
    pub fn started(&self) -> Moment {
        self.guard.started()
    }

    /// As [`OnceGuard::finish`](crate::OnceGuard::finish). See [`OnceGuard`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync);
    /// then the keeper finishes it.
    pub fn finish(self) -> Result<Released> {
        block_on(self.guard.finish())
    }
}

impl Deref for OnceGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}
