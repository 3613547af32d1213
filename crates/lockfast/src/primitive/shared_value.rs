//! A small value that all who use its name share, written by comparing versions.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    Change, Error, ErrorKind, Expected, Feature, HolderId, LockName, Moment, Result, Retry,
    Version, VersionedValue, Wait, WriteOutcome, WriteRequest, jitter,
};

use crate::lease::acquire::Repeats;
use crate::lease::policy::{Options, Policy};
use crate::optimistic::Attempts;
use crate::store::Store;

/// How long one pauses at most before a store that failed is asked again.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A value that all who use its name share. Cheap to clone; it holds nothing. A lock of the same name
/// is another thing.
///
/// ```
/// use lockfast::{Expected, Locker, WriteOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let release = locker.value("release/current")?;
/// assert!(release.read().await?.is_none());
/// let written = release.write(Expected::Nothing, b"1.4.0").await?;
/// assert!(matches!(written, WriteOutcome::Written(_)));
///
/// let seen = release.read().await?.expect("a value");
/// println!("{} is {} bytes long", release.name(), seen.bytes.len());
/// let late = release.write(Expected::Nothing, b"1.4.1").await?;
/// assert_eq!(late, WriteOutcome::Conflict(Some(seen.clone())));
/// release.write(Expected::Version(seen.version), b"1.4.1").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedValue {
    store: Arc<Store>,
    name: LockName,
    /// How long one request may take.
    limit: Duration,
    /// How often a request is repeated that was not answered.
    retries: u32,
    keep: Option<Duration>,
    attempts: Attempts,
    /// Why the options are of no use here, if so; then those before count.
    flaw: Option<Error>,
}

/// What an update leaves.
///
/// ```
/// use lockfast::{Locker, optimistic::Update};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let flag = Locker::connect("memory:").await?.value("maintenance")?;
/// flag.update(async |_| Ok(Update::Put(b"since noon".to_vec()))).await?;
/// let kept = flag.update(async |_| Ok(Update::Keep)).await?;
/// assert_eq!(kept.expect("a value").bytes, b"since noon");
/// assert!(flag.update(async |_| Ok(Update::Remove)).await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// This value.
    Put(Vec<u8>),
    /// No value.
    Remove,
    /// What is there.
    Keep,
}

/// How long one who waits outlasts a store that fails: as one does who waits for a lock without a limit.
pub(super) struct Patience<'a> {
    value: &'a SharedValue,
    repeats: Repeats,
    asked: Moment,
}

impl Patience<'_> {
    /// The store has answered.
    pub(super) fn renew(&mut self) {
        *self = self.value.patience();
    }

    /// Pauses before the store is asked again; the error when that is of no use.
    pub(super) async fn pause_after(&mut self, error: Error) -> Result<()> {
        let pause = self.repeats.pause_after(&error, self.asked, self.value.store.now());
        self.value.store.sleep(pause.ok_or(error)?).await;
        self.asked = self.value.store.now();
        Ok(())
    }
}

/// What became of a write.
struct Changed {
    outcome: WriteOutcome,
    /// Whether an answer was lost before this one.
    was_repeated: bool,
}

impl Changed {
    /// # Errors
    /// When ours may have been there, and somebody has written over it.
    fn certain(self, name: &LockName) -> Result<WriteOutcome> {
        if self.was_repeated && matches!(self.outcome, WriteOutcome::Conflict(_)) {
            let message = "an answer was lost, and another write came after it: this one may have \
                           happened; read the value and decide anew";
            return Err(Error::new(ErrorKind::Unreachable, message).with_lock(name));
        }
        Ok(self.outcome)
    }
}

impl SharedValue {
    pub(crate) fn new(store: Arc<Store>, name: LockName, policy: &Policy) -> Result<Self> {
        store.backend.profile().require(Feature::Values).map_err(|error| error.with_lock(&name))?;
        let Policy { request_timeout: limit, retries, .. } = *policy;
        let (keep, attempts, flaw) = (None, Attempts::default(), None);
        Ok(Self { store, name, limit, retries, keep, attempts, flaw })
    }

    /// The same value, for whose requests these options count: how long one may take
    /// ([`Options::request_timeout`]) and how often it is repeated ([`Options::retries`]). The others are
    /// of no use here.
    ///
    /// This does not fail: options that are not possible are refused by the next call that can fail,
    /// before anything is touched.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Locker, Options};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let soon = Options::default().request_timeout(Duration::from_secs(1)).retries(0);
    /// let counter = locker.value("counter")?.with_options(soon); // an answer in a second, or an error
    /// assert!(counter.read().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.flaw = match Policy::new(&options, self.store.backend.profile()) {
            Ok(policy) => {
                (self.limit, self.retries) = (policy.request_timeout, policy.retries);
                None
            }
            Err(error) => Some(error.with_lock(&self.name)),
        };
        self
    }

    /// Refuses options that are of no use, and to work in a forked child.
    fn check(&self) -> Result<()> {
        self.flaw.clone().map_or(Ok(()), Err)?;
        self.store.check_process().map_err(|error| error.with_lock(&self.name))
    }

    /// The same value, which the store forgets so long after it was written, by the store's clock;
    /// written without this, it stays until it is removed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Expected, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let hour = Duration::from_secs(3600);
    /// let session = Locker::connect("memory:").await?.value("session/7")?.keep(hour)?;
    /// session.write(Expected::Nothing, b"anna").await?;
    /// let there = session.read().await?.expect("a value");
    /// assert!(there.remaining.is_some_and(|left| left <= hour));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for no time at all, [`ErrorKind::Unsupported`] on a store whose
    /// values do not end by themselves.
    pub fn keep(mut self, keep: Duration) -> Result<Self> {
        let profile = self.store.backend.profile();
        profile.require(Feature::ValueExpiry).map_err(|error| error.with_lock(&self.name))?;
        if keep.is_zero() {
            let message = "a value cannot be kept for 0 s; give a time, or remove it";
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&self.name));
        }
        self.keep = Some(keep);
        Ok(self)
    }

    /// The same value, for which [`update`](Self::update) makes these attempts.
    /// See [`Attempts`](crate::optimistic::Attempts) for an example.
    #[must_use]
    pub fn attempts(mut self, attempts: Attempts) -> Self {
        self.attempts = attempts;
        self
    }

    /// The name. See [`SharedValue`] for an example.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// What is there; `None` when nobody has written it, or it was removed or has ended.
    /// See [`SharedValue`] for an example.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// When the store cannot tell.
    pub async fn read(&self) -> Result<Option<VersionedValue>> {
        self.check()?;
        let mut failed = 0;
        loop {
            let call = self.store.backend.read(self.name.clone());
            match self.store.within(self.limit, call).await {
                Ok(value) => return Ok(value),
                Err(error) => self.pause_after(&mut failed, error).await?,
            }
        }
    }

    /// Writes if what is there is what was expected.
    ///
    /// A write whose answer was lost is repeated, and the store knows the repetition. Only one that made
    /// the value, and whose value somebody has removed since, is done again.
    /// See [`SharedValue`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a value of more than [`VersionedValue::BYTES_MAX`].
    /// [`ErrorKind::Unreachable`] also when the answer was lost and somebody else has written since, so
    /// that it may have happened; what else the store meets.
    pub async fn write(
        &self,
        expected: Expected,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<WriteOutcome> {
        let change = self.put(bytes.into())?;
        self.change(expected, change).await?.certain(&self.name)
    }

    /// Removes the value if it is the one that was read.
    ///
    /// ```
    /// use lockfast::{Expected, Locker, WriteOutcome};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let flag = Locker::connect("memory:").await?.value("maintenance")?;
    /// flag.write(Expected::Nothing, b"since noon").await?;
    /// let seen = flag.read().await?.expect("a value");
    /// flag.write(Expected::Version(seen.version), b"since one").await?;
    /// let removed = flag.remove(seen.version).await?; // not what somebody has written since
    /// assert!(matches!(removed, WriteOutcome::Conflict(Some(now)) if now.bytes == b"since one"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn remove(&self, version: Version) -> Result<WriteOutcome> {
        let changed = self.change(Expected::Version(version), Change::Remove).await?;
        changed.certain(&self.name)
    }

    /// Reads, lets `compute` say what shall be there, and writes that if nobody has written in between;
    /// otherwise it begins again. What is there in the end.
    ///
    /// `compute` may be called many times, so it must have no other effects.
    /// See [`Update`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, one write may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when all [attempts](Self::attempts) met one; what `compute` fails with;
    /// as [`write`](Self::write).
    pub async fn update<F, Fut>(&self, compute: F) -> Result<Option<VersionedValue>>
    where
        F: FnMut(Option<VersionedValue>) -> Fut,
        Fut: Future<Output = Result<Update>>,
    {
        self.update_by(compute, |changed| changed.certain(&self.name)).await
    }

    /// The same for a `compute` that knows its own write when it sees it, or to which it does not
    /// matter whether it happened twice.
    pub(super) async fn update_known<F, Fut>(&self, compute: F) -> Result<Option<VersionedValue>>
    where
        F: FnMut(Option<VersionedValue>) -> Fut,
        Fut: Future<Output = Result<Update>>,
    {
        self.update_by(compute, |changed| Ok(changed.outcome)).await
    }

    /// Writes for somebody to whom it does not matter whether it happened when somebody else has
    /// written since.
    pub(super) async fn write_known(
        &self,
        expected: Expected,
        bytes: Vec<u8>,
    ) -> Result<WriteOutcome> {
        let change = self.put(bytes)?;
        self.change(expected, change).await.map(|changed| changed.outcome)
    }

    /// An id that nobody else has.
    pub(super) fn new_id(&self) -> Result<HolderId> {
        self.check()?;
        self.store.new_holder()
    }

    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// For one who waits for the value to change.
    pub(super) fn patience(&self) -> Patience<'_> {
        let repeats = Repeats::new(Wait::Forever, self.retries);
        Patience { value: self, repeats, asked: self.store.now() }
    }

    async fn update_by<F, Fut>(
        &self,
        mut compute: F,
        decide: impl Fn(Changed) -> Result<WriteOutcome>,
    ) -> Result<Option<VersionedValue>>
    where
        F: FnMut(Option<VersionedValue>) -> Fut,
        Fut: Future<Output = Result<Update>>,
    {
        let mut there = self.read().await?;
        let mut made = 0;
        loop {
            let seen = there.as_ref().map(|value| value.version);
            let expected = seen.map_or(Expected::Nothing, Expected::Version);
            let (change, bytes) = match compute(there.clone()).await? {
                Update::Keep => return Ok(there),
                Update::Remove if there.is_none() => return Ok(None),
                Update::Remove => (Change::Remove, Vec::new()),
                Update::Put(bytes) => (self.put(bytes.clone())?, bytes),
            };
            match decide(self.change(expected, change).await?)? {
                WriteOutcome::Written(version) => {
                    let remaining = self.keep;
                    return Ok(
                        version.map(|version| VersionedValue::new(version, bytes, remaining))
                    );
                }
                WriteOutcome::Conflict(now) => there = now,
            }
            let pausing = self.attempts.pause_before_next(&mut made).await;
            pausing.map_err(|error| error.with_lock(&self.name))?;
            if made > 1 {
                // Many write here, so what was there before the pause is old.
                there = self.read().await?;
            }
        }
    }

    fn put(&self, bytes: Vec<u8>) -> Result<Change> {
        VersionedValue::check(&bytes).map_err(|error| error.with_lock(&self.name))?;
        Ok(Change::Put { bytes, keep: self.keep })
    }

    async fn change(&self, expected: Expected, change: Change) -> Result<Changed> {
        let id = *self.new_id()?.as_bytes();
        let request = WriteRequest { name: self.name.clone(), expected, change, id };
        let mut failed = 0;
        loop {
            let call = self.store.backend.write(request.clone());
            match self.store.within(self.limit, call).await {
                Ok(outcome) => return Ok(Changed { outcome, was_repeated: failed > 0 }),
                Err(error) => self.pause_after(&mut failed, error).await?,
            }
        }
    }

    /// Pauses before a request is repeated that failed; an error when it is not.
    async fn pause_after(&self, failed: &mut u32, error: Error) -> Result<()> {
        *failed += 1;
        if error.retry() != Retry::Later || *failed > self.retries {
            return Err(error.with_lock(&self.name));
        }
        self.store.sleep(PAUSE_MAX.mul_f64(jitter())).await;
        Ok(())
    }
}
