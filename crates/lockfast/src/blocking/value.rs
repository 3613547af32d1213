//! What is shared beside the locks, blocking.

use std::time::Duration;

use lockfast_core::{Expected, LockName, Result, Version, VersionedValue, WriteOutcome};

use super::{block_on, block_within};
use crate::Options;
use crate::optimistic::{Attempts, Step, Update};

/// As [`optimistic::retry`](crate::optimistic::retry).
///
/// ```
/// use lockfast::blocking::retry;
/// use lockfast::optimistic::{Attempts, Step};
///
/// # struct Database;
/// # impl Database {
/// #     fn stock(&self, _: u32) -> lockfast::Result<i64> { Ok(5) }
/// #     fn set_stock(&self, _: u32, _: i64, _: i64) -> lockfast::Result<u64> { Ok(1) }
/// # }
/// # fn main() -> lockfast::Result<()> {
/// # let database = Database;
/// let left = retry(Attempts::default(), || {
///     let stock = database.stock(7)?;
///     // UPDATE item SET stock = $3 WHERE id = $1 AND stock = $2
///     Ok(match database.set_stock(7, stock, stock - 1)? {
///         0 => Step::Conflict,
///         _ => Step::Done(stock - 1),
///     })
/// })?;
/// assert_eq!(left, 4);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
pub fn retry<T>(attempts: Attempts, mut attempt: impl FnMut() -> Result<Step<T>>) -> Result<T> {
    block_on(crate::optimistic::retry(attempts, || std::future::ready(attempt())))
}

/// [`crate::SharedValue`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
/// use lockfast::optimistic::Update;
/// use lockfast::{Expected, WriteOutcome};
///
/// # fn main() -> lockfast::Result<()> {
/// let builds = Locker::connect("memory:")?.value("builds")?;
/// let written = builds.write(Expected::Nothing, b"41")?;
/// assert!(matches!(written, WriteOutcome::Written(_)));
/// let next = builds.update(|there| {
///     let last = there.and_then(|value| String::from_utf8(value.bytes).ok());
///     let last: u64 = last.and_then(|text| text.parse().ok()).unwrap_or(0);
///     Ok(Update::Put((last + 1).to_string().into_bytes()))
/// })?;
/// assert_eq!(next.expect("a value").bytes, b"42");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedValue(pub(super) crate::SharedValue);

impl SharedValue {
    /// As [`SharedValue::keep`](crate::SharedValue::keep).
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Expected, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let hour = Duration::from_secs(3600);
    /// let session = Locker::connect("memory:")?.value("session/7")?.keep(hour)?;
    /// session.write(Expected::Nothing, b"anna")?;
    /// let there = session.read()?.expect("a value");
    /// assert!(there.remaining.is_some_and(|left| left <= hour));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn keep(self, keep: Duration) -> Result<Self> {
        self.0.keep(keep).map(Self)
    }

    /// As [`SharedValue::attempts`](crate::SharedValue::attempts).
    #[must_use]
    pub fn attempts(self, attempts: Attempts) -> Self {
        Self(self.0.attempts(attempts))
    }

    /// As [`SharedValue::with_options`](crate::SharedValue::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`SharedValue::name`](crate::SharedValue::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`SharedValue::read`](crate::SharedValue::read). See [`SharedValue::keep`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn read(&self) -> Result<Option<VersionedValue>> {
        block_on(self.0.read())
    }

    /// As [`SharedValue::write`](crate::SharedValue::write). See [`SharedValue`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn write(&self, expected: Expected, bytes: impl Into<Vec<u8>>) -> Result<WriteOutcome> {
        block_on(self.0.write(expected, bytes))
    }

    /// As [`SharedValue::remove`](crate::SharedValue::remove).
    ///
    /// ```
    /// use lockfast::{Expected, WriteOutcome, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let flag = Locker::connect("memory:")?.value("maintenance")?;
    /// flag.write(Expected::Nothing, b"since noon")?;
    /// let seen = flag.read()?.expect("a value");
    /// assert_eq!(flag.remove(seen.version)?, WriteOutcome::Written(None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn remove(&self, version: Version) -> Result<WriteOutcome> {
        block_on(self.0.remove(version))
    }

    /// As [`SharedValue::update`](crate::SharedValue::update). See [`SharedValue`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn update(
        &self,
        mut compute: impl FnMut(Option<VersionedValue>) -> Result<Update>,
    ) -> Result<Option<VersionedValue>> {
        block_on(self.0.update(|there| std::future::ready(compute(there))))
    }
}

/// [`crate::Latch`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let imported = Locker::connect("memory:")?.latch("import/2026-11", 2)?; // two parts
/// let waiter = imported.clone();
/// let report = std::thread::spawn(move || waiter.wait());
/// assert_eq!(imported.count_down()?, 1);
/// assert_eq!(imported.count_down()?, 0);
/// report.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

impl Latch {
    /// As [`Latch::COUNT_MAX`](crate::Latch::COUNT_MAX).
    pub const COUNT_MAX: u32 = crate::Latch::COUNT_MAX;

    /// As [`Latch::with_options`](crate::Latch::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Latch::name`](crate::Latch::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Latch::count_down`](crate::Latch::count_down). See [`Latch`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn count_down(&self) -> Result<u32> {
        block_on(self.0.count_down())
    }

    /// As [`Latch::left`](crate::Latch::left).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let imported = Locker::connect("memory:")?.latch("import/2026-11", 3)?;
    /// imported.count_down()?;
    /// assert_eq!(imported.left()?, 2); // what an operator may want to see
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn left(&self) -> Result<u32> {
        block_on(self.0.left())
    }

    /// As [`Latch::wait`](crate::Latch::wait). See [`Latch`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn wait(&self) -> Result<()> {
        block_on(self.0.wait())
    }

    /// Whether none is left within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let imported = Locker::connect("memory:")?.latch("import", 1)?;
    /// assert!(!imported.wait_within(Duration::from_millis(10))?); // one is left
    /// imported.count_down()?;
    /// assert!(imported.wait_within(Duration::from_secs(10))?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_within(&self, limit: Duration) -> Result<bool> {
        Ok(block_within(limit, self.0.wait())?.is_some())
    }

    /// As [`Latch::reset`](crate::Latch::reset).
    ///
    /// ```
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let imported = Locker::connect("memory:")?.latch("import", 1)?;
    /// imported.count_down()?;
    /// imported.wait()?;
    /// imported.reset()?; // for tomorrow's import
    /// assert_eq!(imported.left()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn reset(&self) -> Result<()> {
        block_on(self.0.reset())
    }
}

/// [`crate::Barrier`], blocking.
///
/// ```
/// use lockfast::blocking::Locker;
///
/// # fn main() -> lockfast::Result<()> {
/// let ready = Locker::connect("memory:")?.barrier("migration/phase-1", 2)?;
/// let other = ready.clone();
/// let other = std::thread::spawn(move || other.wait());
/// assert_eq!(ready.wait()?, other.join().expect("no panic")?); // the same round
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier(pub(super) crate::Barrier);

impl Barrier {
    /// As [`Barrier::PARTIES_MAX`](crate::Barrier::PARTIES_MAX).
    pub const PARTIES_MAX: u32 = crate::Barrier::PARTIES_MAX;

    /// As [`Barrier::ttl`](crate::Barrier::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`Barrier::with_options`](crate::Barrier::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Barrier::name`](crate::Barrier::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Barrier::wait`](crate::Barrier::wait). See [`Barrier`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn wait(&self) -> Result<u64> {
        block_on(self.0.wait())
    }

    /// Which round it was, if all come within `limit`; otherwise this one leaves. When the last one comes
    /// just then, the others may go on without it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let ready = Locker::connect("memory:")?.barrier("migration/phase-1", 2)?;
    /// if ready.wait_within(Duration::from_millis(10))?.is_none() {
    ///     println!("the other one is late");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_within(&self, limit: Duration) -> Result<Option<u64>> {
        block_within(limit, self.0.wait())
    }
}
