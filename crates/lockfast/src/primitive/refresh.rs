//! A value that is computed by one and read by all: the first computes it under a lock, the others
//! wait for that and read.

use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::view::exact;
use lockfast_core::{
    Error, ErrorKind, Expected, Feature, LockName, LockView, Mode, Refusal, Result, Version,
    VersionedValue, Wait, WriteOutcome,
};

use super::any_lock::AnyLock;
use super::attempt::Attempt;
use super::record::{Kind, Record, Terms, Worth};
use super::shared_value::{SharedValue, Update};
use crate::lease::handle::{Guard, Lease};
use crate::lease::policy::Options;

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
/// Programs with different times can share a name. A value is fresh if it is so by the times of the
/// one who wrote it and of the one who reads it; whoever does not accept it any more computes it anew. A
/// value that the store keeps for longer than it was written for, because its clock was set back, is
/// computed anew as well.
///
/// A name is for values, with [`get`](Self::get) and [`start`](Self::start), or for marks, with
/// [`ensure`](Self::ensure): the one is refused while there is the other.
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
    terms: Terms,
}

/// For how long it is said that a value was made stale: longer than any computation that began before.
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
    worth: Worth,
    bytes: Vec<u8>,
}

impl Stored {
    fn into_fresh(self) -> Option<Vec<u8>> {
        (self.worth == Worth::Fresh).then_some(self.bytes)
    }
}

impl Refresh {
    /// The longest value.
    pub const BYTES_MAX: usize = VersionedValue::BYTES_MAX - Record::HEADER_BYTES;

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
        let terms = Terms { fresh_for, stale_for: Duration::ZERO };
        Ok(Self { lock, value, failure, terms })
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
        let keep = self.terms.fresh_for.checked_add(stale_for).ok_or_else(|| {
            let message = format!("a value cannot be kept for {}", exact(stale_for));
            Error::new(ErrorKind::InvalidConfig, message).with_lock(self.name())
        })?;
        self.value = self.value.keep(keep)?;
        self.terms.stale_for = stale_for;
        Ok(self)
    }

    /// As [`Mutex::ttl`](crate::Mutex::ttl): how long one that computes and hangs keeps others from it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Waits at most so long for somebody else's computation, as [`Mutex::wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lock = self.lock.wait(wait);
        self
    }

    /// As [`Mutex::wait_forever`](crate::Mutex::wait_forever).
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.lock = self.lock.wait_forever();
        self
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options), for the lock and for all requests.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.value = self.value.with_options(options.clone());
        self.failure = self.failure.with_options(options.clone());
        self.lock = self.lock.with_options(options);
        self
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
    /// [`ErrorKind::Conflict`] for a name under which [`ensure`](Self::ensure) keeps a mark;
    /// [`ErrorKind::Taken`] when somebody else computes for longer than [`wait`](Self::wait) says;
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
    /// As [`get`](Self::get); [`ErrorKind::Conflict`] for a name under which there is a value.
    pub async fn ensure<F, Fut, T>(&self, work: F) -> Result<Ensured<T>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        match self.start_mark().await? {
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
        let invalid = Record::invalid().to_bytes();
        value.update_known(async |_| Ok(Update::Put(invalid.clone()))).await.map(|_| ())
    }

    /// The value, or the lock under which to compute it: for a computation that
    /// [`get`](Self::get) cannot run. See [`RefreshAttempt`] for an example.
    ///
    /// # Cancel safety
    /// Safe: when dropped at any point, the keeper gives back what may have been granted.
    ///
    /// # Errors
    /// [`ErrorKind::Computation`] for one who waited for a computation that failed;
    /// [`ErrorKind::Conflict`] and [`ErrorKind::Taken`] as [`get`](Self::get); what the store meets.
    pub async fn start(&self) -> Result<RefreshAttempt> {
        self.start_as(Kind::Value).await
    }

    /// The same for what leaves only a mark.
    pub(crate) async fn start_mark(&self) -> Result<RefreshAttempt> {
        self.start_as(Kind::Mark).await
    }

    async fn start_as(&self, kind: Kind) -> Result<RefreshAttempt> {
        self.lock.check()?;
        let wait = self.lock.wait_from(self.lock.store().now());
        loop {
            let last = match self.read(kind).await? {
                Some(Stored { worth: Worth::Fresh, bytes, .. }) => {
                    return Ok(RefreshAttempt::Fresh(bytes));
                }
                Some(Stored { worth: Worth::Stale, bytes, .. }) => Some(bytes),
                _ => None,
            };
            let refusal = match self.lock.try_acquire().await? {
                Attempt::Acquired(guard) => return self.begin(guard, kind).await,
                Attempt::Taken(refusal) => refusal,
            };
            if let Some(last) = last {
                return Ok(RefreshAttempt::Fresh(last));
            }
            if !is_to_be_computed(&refusal) {
                // Those who waited for the last one have not gone yet, and one of them may be dead. To
                // wait beside them would be to ask again and again.
                return self.begin(self.lock.acquire_until(wait).await?, kind).await;
            }
            self.wait_until(wait).await?;
        }
    }

    /// We have the lock; but somebody may have computed it just before.
    async fn begin(&self, guard: Guard, kind: Kind) -> Result<RefreshAttempt> {
        let stored = self.read(kind).await?;
        let before = stored.as_ref().map(|stored| stored.version);
        if let Some(bytes) = stored.and_then(Stored::into_fresh) {
            guard.release().await?;
            return Ok(RefreshAttempt::Fresh(bytes));
        }
        let refresh = Box::new(self.clone());
        Ok(RefreshAttempt::Granted(RefreshGuard { refresh, guard, kind, before }))
    }

    /// Waits until the one who computes has ended. All who wait go on at once: they want the lock
    /// shared.
    async fn wait_until(&self, wait: Wait) -> Result<()> {
        let before = self.failure.read().await?.map(|value| value.version);
        let waiting = self.lock.clone().with_mode(Mode::Shared);
        waiting.acquire_until(wait).await?.release().await?;
        match self.failure.read().await? {
            Some(failure) if Some(failure.version) != before => {
                let message = String::from_utf8_lossy(&failure.bytes).into_owned();
                Err(Error::new(ErrorKind::Computation, message).with_lock(self.name()))
            }
            _ => Ok(()),
        }
    }

    async fn read(&self, kind: Kind) -> Result<Option<Stored>> {
        self.value.read().await?.map(|value| self.parse(value, kind)).transpose()
    }

    /// What is there for one who keeps this kind.
    fn parse(&self, value: VersionedValue, kind: Kind) -> Result<Stored> {
        let record = Record::parse(&value.bytes).ok_or_else(|| {
            let message = format!(
                "the value {} is not that of a refresh; remove it, or use another name",
                quote(self.value.name().as_str())
            );
            Error::new(ErrorKind::CorruptRecord, message).with_lock(self.name())
        })?;
        if record.kind.is_some_and(|there| there != kind) {
            let message = match kind {
                Kind::Value => "ensure keeps a mark here, so there is no value to get",
                Kind::Mark => "a value is kept here, so ensure cannot keep its mark",
            };
            let message = format!("{message}; use another name for one of them, or invalidate it");
            return Err(Error::new(ErrorKind::Conflict, message).with_lock(self.name()));
        }
        let limits = &self.lock.store().backend.profile().ttl;
        let worth = record.worth(value.remaining, self.terms, limits);
        Ok(Stored { version: value.version, worth, bytes: record.bytes })
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
    kind: Kind,
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
    /// [`ErrorKind::Lost`] when the lock was lost and there is no fresh value; [`ErrorKind::Conflict`]
    /// when there is a mark of [`Refresh::ensure`] by then;
    /// [`ErrorKind::InvalidConfig`] for a value that is too long; what the store meets.
    pub async fn finish(self, computed: Vec<u8>) -> Result<Vec<u8>> {
        let bytes = match self.guard.check() {
            Ok(_) => self.store(computed).await?,
            Err(lost) => {
                let there = self.refresh.read(self.kind).await?;
                there.and_then(Stored::into_fresh).ok_or(lost)?
            }
        };
        self.guard.release().await?;
        Ok(bytes)
    }

    /// Leaves what was computed for the others; what is there, which is newer if somebody else was
    /// let in before us.
    async fn store(&self, computed: Vec<u8>) -> Result<Vec<u8>> {
        let Refresh { value, terms, .. } = &*self.refresh;
        let record = Record { kind: Some(self.kind), terms: *terms, bytes: computed };
        let bytes = record.to_bytes();
        let mut expected = self.before.map_or(Expected::Nothing, Expected::Version);
        loop {
            match value.write_known(expected, bytes.clone()).await? {
                WriteOutcome::Conflict(Some(there)) => {
                    let there = self.refresh.parse(there, self.kind)?;
                    return Ok(match there.worth {
                        Worth::Nothing => record.bytes,
                        _ => there.bytes,
                    });
                }
                // What it replaces has ended meanwhile; so may have what came after that, if others
                // were let in.
                WriteOutcome::Conflict(None) if expected != Expected::Nothing => {
                    self.guard.check()?;
                    expected = Expected::Nothing;
                }
                WriteOutcome::Conflict(None) | WriteOutcome::Written(_) => return Ok(record.bytes),
            }
        }
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
