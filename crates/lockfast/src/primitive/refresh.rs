//! A value that is computed by one and read by all: the first computes it under a lock, the others
//! wait for that and read.

use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::view::exact;
use lockfast_core::{
    Error, ErrorKind, Expected, Feature, LockName, LockView, Mode, Refusal, Result, Version,
    VersionedValue, WriteOutcome,
};

use super::any_lock::AnyLock;
use super::attempt::Attempt;
use super::shared_value::{SharedValue, Update};
use crate::lease::handle::{Guard, Lease};

/// How long an error is told to those who waited for the computation.
const ERROR_KEPT: Duration = Duration::from_secs(5);
/// The longest message of an error that is told to others.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A value that stays fresh for a time, and that one of all who want it computes when it is not.
/// Cheap to clone.
///
/// - A value that is fresh costs one read.
/// - When it is not, the first who asks computes it under a lock. The others wait for that and read
///   it, or are told why it failed.
/// - The computation is stopped when its lock is lost, and what it computed too late does not
///   overwrite what somebody else has computed since.
/// - With [`stale_for`](Self::stale_for), the others do not wait but get the last value.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?; // any store but redlock: and zookeeper:
/// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
///
/// let computed = rates.get(|_lease| async { Ok(b"EUR 1.08".to_vec()) }).await?;
/// let read = rates.get(|_lease| async { unreachable!("it is fresh") }).await?;
/// assert_eq!(computed, read);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Refresh {
    lock: AnyLock,
    value: SharedValue,
    /// Why the last computation failed, for those who waited for it.
    failure: SharedValue,
    fresh_for: Duration,
    stale_for: Duration,
}

/// What a record begins with: how long it may be stale, in milliseconds.
const HEADER_BYTES: usize = size_of::<u64>();
/// A record that says that there is no value any more. It is not just removed, so that whoever computes
/// from what was before does not store that as fresh.
const STALE: [u8; HEADER_BYTES] = u64::MAX.to_be_bytes();
/// For how long that is said: longer than any computation that began before.
const STALE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// What came of [`Refresh::ensure`].
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Ensured, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let index = locker.refresh("search-index", Duration::from_secs(300))?;
/// assert_eq!(index.ensure(async |_| Ok("built")).await?, Ensured::Now("built"));
/// assert_eq!(index.ensure(async |_| Ok("again")).await?, Ensured::Before);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured<T> {
    /// It was done here, just now.
    Now(T),
    /// It was done before, not longer ago than it stays fresh.
    Before,
}

/// What is in the store.
struct Stored {
    version: Version,
    /// The value, unless it was made stale.
    bytes: Option<Vec<u8>>,
    is_fresh: bool,
}

impl Stored {
    fn into_fresh(self) -> Option<Vec<u8>> {
        self.bytes.filter(|_| self.is_fresh)
    }
}

impl Refresh {
    /// The longest value.
    pub const BYTES_MAX: usize = VersionedValue::BYTES_MAX - HEADER_BYTES;

    pub(crate) fn new(
        lock: AnyLock,
        value: SharedValue,
        failure: SharedValue,
        fresh_for: Duration,
    ) -> Result<Self> {
        let (value, failure) = (value.keep(fresh_for)?, failure.keep(ERROR_KEPT)?);
        let profile = value.store();
        profile.backend.profile().require(Feature::Shared)?;
        if fresh_for < Duration::from_millis(1) {
            let message = format!("a value cannot be fresh for {}", exact(fresh_for));
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(lock.name()));
        }
        Ok(Self { lock, value, failure, fresh_for, stale_for: Duration::ZERO })
    }

    /// The same value, of which the last one is good enough for so long after it was fresh, while
    /// somebody computes the next.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Locker, RefreshAttempt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let rates = locker.refresh("exchange-rates", Duration::from_millis(1))?;
    /// let rates = rates.stale_for(Duration::from_secs(300))?;
    /// rates.get(|_lease| async { Ok(b"EUR 1.08".to_vec()) }).await?;
    ///
    /// let guard = loop {
    ///     if let RefreshAttempt::Granted(guard) = rates.start().await? {
    ///         break guard; // it is stale, and ours to compute
    ///     }
    /// };
    /// let last = rates.get(|_lease| async { unreachable!("it is being computed") }).await?;
    /// assert_eq!(last, b"EUR 1.08"); // nobody waits for the next
    /// guard.finish(b"EUR 1.09".to_vec()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a time that is too long to be kept.
    pub fn stale_for(mut self, stale_for: Duration) -> Result<Self> {
        let keep = self.fresh_for.checked_add(stale_for).ok_or_else(|| {
            let message = format!("a value cannot be kept for {}", exact(stale_for));
            Error::new(ErrorKind::InvalidConfig, message).with_lock(self.name())
        })?;
        self.value = self.value.keep(keep)?;
        self.stale_for = stale_for;
        Ok(self)
    }

    /// The lock under which the value of this name is computed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{LockName, Locker, Refresh};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
    /// let lock = Refresh::lock_of(&LockName::new("exchange-rates")?)?;
    /// assert_eq!(rates.name(), &lock);
    /// let computing = locker.inspect(&lock).await?.holders; // who computes it just now
    /// # assert!(computing.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] when the name leaves no room for it.
    pub fn lock_of(name: &LockName) -> Result<LockName> {
        LockName::new(format!("refresh:{name}"))
    }

    /// The name of its lock. See [`Refresh::lock_of`] for an example.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// The value: what is in the store if that is fresh, otherwise what `compute` or somebody else
    /// computes. See [`Refresh`] for an example.
    ///
    /// # Cancel safety
    /// When dropped, the computation is dropped, and the next who asks computes.
    ///
    /// # Errors
    /// What `compute` fails with, here or, for those who waited for it, elsewhere
    /// ([`ErrorKind::Computation`]); [`ErrorKind::Lost`] when the lock was lost before it had ended;
    /// [`ErrorKind::InvalidConfig`] for a value that is too long; what the store meets.
    pub async fn get<F, Fut>(&self, compute: F) -> Result<Vec<u8>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<Vec<u8>>>,
    {
        match self.start().await? {
            RefreshAttempt::Fresh(bytes) => Ok(bytes),
            RefreshAttempt::Granted(guard) => {
                let computed = guard.run(compute).await?;
                guard.finish(computed).await
            }
        }
    }

    /// Sees to it that something was done not longer ago than it stays fresh: only a mark is in the
    /// store, and what `work` brings stays here. See [`Ensured`] for an example.
    ///
    /// # Cancel safety
    /// As [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn ensure<F, Fut, T>(&self, work: F) -> Result<Ensured<T>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        match self.start().await? {
            RefreshAttempt::Fresh(_) => Ok(Ensured::Before),
            RefreshAttempt::Granted(guard) => {
                let done = guard.run(work).await?;
                guard.finish(Vec::new()).await?;
                Ok(Ensured::Now(done))
            }
        }
    }

    /// Makes it stale, so that the next who asks computes. What is being computed just now is not
    /// stored: it may come from what was before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
    /// rates.get(|_lease| async { Ok(b"EUR 1.08".to_vec()) }).await?;
    /// rates.invalidate().await?; // the bank has published new ones
    /// let new = rates.get(|_lease| async { Ok(b"EUR 1.09".to_vec()) }).await?;
    /// assert_eq!(new, b"EUR 1.09");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// What the store meets.
    pub async fn invalidate(&self) -> Result<()> {
        let value = self.value.clone().keep(STALE_KEPT)?;
        value.update_known(async |_| Ok(Update::Put(STALE.to_vec()))).await.map(|_| ())
    }

    /// The value, or the lock under which to compute it: for a computation that
    /// [`get`](Self::get) cannot run. See [`RefreshAttempt`] for an example.
    ///
    /// # Cancel safety
    /// Safe: when dropped at any point, the keeper gives back what may have been granted.
    ///
    /// # Errors
    /// [`ErrorKind::Computation`] for one who waited for a computation that failed; what the store
    /// meets.
    pub async fn start(&self) -> Result<RefreshAttempt> {
        loop {
            let stored = self.read().await?;
            let last = match stored {
                Some(Stored { bytes: Some(bytes), is_fresh: true, .. }) => {
                    return Ok(RefreshAttempt::Fresh(bytes));
                }
                stored => stored.and_then(|stored| stored.bytes),
            };
            let refusal = match self.lock.try_acquire().await? {
                Attempt::Acquired(guard) => return self.begin(guard).await,
                Attempt::Taken(refusal) => refusal,
            };
            if let Some(last) = last {
                return Ok(RefreshAttempt::Fresh(last));
            }
            if !is_to_be_computed(&refusal) {
                // Those who waited for the last one have not gone yet, and one of them may be dead. To
                // wait beside them would be to ask again and again.
                return self.begin(self.lock.acquire().await?).await;
            }
            self.wait().await?;
        }
    }

    /// We have the lock; but somebody may have computed it just before.
    async fn begin(&self, guard: Guard) -> Result<RefreshAttempt> {
        let stored = self.read().await?;
        let before = stored.as_ref().map(|stored| stored.version);
        if let Some(bytes) = stored.and_then(Stored::into_fresh) {
            guard.release().await?;
            return Ok(RefreshAttempt::Fresh(bytes));
        }
        Ok(RefreshAttempt::Granted(RefreshGuard { refresh: Box::new(self.clone()), guard, before }))
    }

    /// Waits until the one who computes has ended. All who wait go on at once: they want the lock
    /// shared.
    async fn wait(&self) -> Result<()> {
        let before = self.failure.read().await?.map(|value| value.version);
        let waiting = self.lock.clone().with_mode(Mode::Shared);
        waiting.acquire().await?.release().await?;
        match self.failure.read().await? {
            Some(failure) if Some(failure.version) != before => {
                let message = String::from_utf8_lossy(&failure.bytes).into_owned();
                Err(Error::new(ErrorKind::Computation, message).with_lock(self.name()))
            }
            _ => Ok(()),
        }
    }

    /// Leaves what was computed for the others; what is there, which is newer if somebody else was
    /// let in before us.
    async fn store(
        &self,
        lease: &Lease,
        before: Option<Version>,
        computed: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let mut record = self.stale_ms().to_be_bytes().to_vec();
        record.extend_from_slice(&computed);
        let mut expected = before.map_or(Expected::Nothing, Expected::Version);
        loop {
            match self.value.write_known(expected, record.clone()).await? {
                WriteOutcome::Conflict(Some(there)) => {
                    return self.parse(there).map(|there| there.bytes.unwrap_or(computed));
                }
                // What it replaces has ended meanwhile; so may have what came after that, if others
                // were let in.
                WriteOutcome::Conflict(None) if expected != Expected::Nothing => {
                    lease.check()?;
                    expected = Expected::Nothing;
                }
                WriteOutcome::Conflict(None) | WriteOutcome::Written(_) => return Ok(computed),
            }
        }
    }

    fn stale_ms(&self) -> u64 {
        // More is said by what was made stale.
        u64::try_from(self.stale_for.as_millis()).unwrap_or(u64::MAX).min(u64::MAX - 1)
    }

    async fn read(&self) -> Result<Option<Stored>> {
        self.value.read().await?.map(|value| self.parse(value)).transpose()
    }

    /// A record is how long it may be stale, in milliseconds, and the value. Whoever wrote it decides
    /// how long it is fresh; the store's clock says how long it is there still.
    fn parse(&self, value: VersionedValue) -> Result<Stored> {
        let Some((stale_ms, bytes)) = value.bytes.split_first_chunk::<HEADER_BYTES>() else {
            let message = format!(
                "the value {} is not that of a refresh; remove it, or use another name",
                quote(self.value.name().as_str())
            );
            return Err(Error::new(ErrorKind::CorruptRecord, message).with_lock(self.name()));
        };
        let is_value = *stale_ms != STALE;
        let stale = Duration::from_millis(u64::from_be_bytes(*stale_ms));
        // A store may count in whole seconds, and says those that are left for certain.
        let is_fresh = is_value && value.remaining.is_some_and(|remaining| remaining >= stale);
        let bytes = is_value.then(|| bytes.to_vec());
        Ok(Stored { version: value.version, bytes, is_fresh })
    }
}

/// Whether somebody computes, or is the next to: not those who only wait for that.
fn is_to_be_computed(refusal: &Refusal) -> bool {
    let LockView { holders, waiting, .. } = &refusal.lock;
    *waiting > 0 || holders.iter().any(|holder| holder.mode != Mode::Shared)
}

/// What came of [`Refresh::start`].
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Locker, RefreshAttempt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
/// let bytes = match rates.start().await? {
///     RefreshAttempt::Fresh(bytes) => bytes,
///     RefreshAttempt::Granted(guard) => {
///         guard.lease().check()?; // before each side effect of the computation
///         guard.finish(b"EUR 1.08".to_vec()).await?
///     }
/// };
/// assert_eq!(bytes, b"EUR 1.08");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum RefreshAttempt {
    /// The value: fresh, or good enough while somebody else computes the next.
    Fresh(Vec<u8>),
    /// It is ours to compute.
    Granted(RefreshGuard),
}

/// The right to compute a value. Dropping it leaves that to the next who asks.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Error, ErrorKind, Locker, RefreshAttempt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let rates = locker.refresh("exchange-rates", Duration::from_secs(300))?;
/// if let RefreshAttempt::Granted(guard) = rates.start().await? {
///     let error = Error::new(ErrorKind::Computation, "the bank is closed");
///     guard.fail(&error).await?; // those who wait are told
/// }
/// # assert!(matches!(rates.start().await?, RefreshAttempt::Granted(_)));
/// # Ok(())
/// # }
/// ```
#[must_use = "the right to compute is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RefreshGuard {
    refresh: Box<Refresh>,
    guard: Guard,
    /// Which value is replaced.
    before: Option<Version>,
}

impl RefreshGuard {
    /// The lease of the lock under which it is computed. See [`RefreshAttempt`] for an example.
    pub fn lease(&self) -> &Lease {
        self.guard.lease()
    }

    /// Leaves what was computed for the others. If the lock was lost before, it is not stored: what
    /// somebody else has computed is returned, if there is such a value.
    /// See [`RefreshAttempt`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock was lost and there is no fresh value;
    /// [`ErrorKind::InvalidConfig`] for a value that is too long; what the store meets.
    pub async fn finish(self, computed: Vec<u8>) -> Result<Vec<u8>> {
        let bytes = match self.guard.check() {
            Ok(_) => self.refresh.store(&self.guard, self.before, computed).await?,
            Err(lost) => {
                let there = self.refresh.read().await?;
                there.and_then(Stored::into_fresh).ok_or(lost)?
            }
        };
        self.guard.release().await?;
        Ok(bytes)
    }

    /// Tells those who wait why there is no value. See [`RefreshGuard`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// What the store meets; then those who wait compute by themselves.
    pub async fn fail(self, error: &Error) -> Result<()> {
        self.tell(error).await?;
        self.guard.release().await.map(|_| ())
    }

    async fn tell(&self, error: &Error) -> Result<()> {
        self.refresh.failure.update_known(async |_| Ok(told(error))).await.map(|_| ())
    }

    /// Runs the computation, until the lock is lost.
    async fn run<F, Fut, T>(&self, compute: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let lease = self.lease();
        let computed = lease.unless_lost(compute(lease.clone())).await?;
        if let Err(error) = &computed {
            // Whoever waits computes by itself when it cannot be told.
            let _ = self.tell(error).await;
        }
        computed
    }
}

/// What others are told of an error.
fn told(error: &Error) -> Update {
    let mut message = error.to_string();
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    Update::Put(message.into_bytes())
}
