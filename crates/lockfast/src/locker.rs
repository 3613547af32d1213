//! A connection to a store, from which locks are made.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::time::Clock;
use lockfast_core::{
    Backend, BoxFuture, ConnectContext, Error, ErrorKind, EventStream, Feature, Fence, Guarantee,
    HolderId, Label, LockName, LockView, LossCause, Mode, Moment, Profile, Query, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest,
};

use crate::connect;
use crate::lease::deadline::deadline;
use crate::lease::handle::Guard;
use crate::lease::policy::{Options, Policy};
use crate::prefix::{Prefixed, check_prefix};
use crate::primitive::{
    AnyLock, Barrier, Latch, Leader, MultiLock, Mutex, Once, Refresh, RwLock, Semaphore,
    SharedValue,
};
use crate::store::Store;

/// A connection to a store. Cheap to clone; all clones share the connection.
///
/// A guard that is dropped is given back in the background, so a program could end before that
/// has happened. Dropping the last clone of a locker therefore blocks its thread until everything
/// that was dropped before it is given back, usually a millisecond, and for a second at most; an
/// async program that wants to wait without blocking calls [`Locker::settled`] first. A guard that
/// outlives all lockers, or a process that ends by [`std::process::exit`], leaves its lock to the
/// ttl unless it is released.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = lockfast::Locker::connect("memory:").await?;
/// let guard = locker.mutex("nightly-report")?.acquire().await?;
/// assert_eq!(guard.name().as_str(), "nightly-report");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Locker {
    store: Arc<Store>,
    prefix: Arc<str>,
    options: Options,
    _last: Arc<SettleOnDrop>,
}

/// How long the last locker waits for what was dropped before it.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// What all clones of a locker share: the last of them waits until nothing is being given back.
#[derive(Debug)]
struct SettleOnDrop(Arc<Store>);

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        // In a forked child nobody gives anything back.
        if self.0.check_process().is_ok() {
            self.0.undoing.wait_blocking(SETTLE_MAX);
        }
    }
}

impl Locker {
    /// Connects to the store at `url` with the defaults of [`Locker::builder`].
    /// See [`Locker`] for an example.
    ///
    /// Install a recorder of metrics before you connect: one that comes later hears nothing of this
    /// connection ([how](crate#logs-and-metrics)).
    ///
    /// The store is asked what it promises, so it has to be there. A program that starts before its store
    /// connects when it first needs a lock, and again until that works:
    ///
    /// ```
    /// use lockfast::{Locker, Result};
    /// use tokio::sync::OnceCell;
    ///
    /// static LOCKER: OnceCell<Locker> = OnceCell::const_new();
    ///
    /// async fn locker() -> Result<&'static Locker> {
    ///     LOCKER.get_or_try_init(|| Locker::connect("memory:")).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let guard = locker().await?.lock("nightly-report").await?;
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: a connection that was not handed out is closed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] before anything is touched; what the store meets afterwards.
    #[doc(alias = "new")]
    #[doc(alias = "open")]
    #[doc(alias = "connect_lazy")]
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Connects with choices. See [`LockerBuilder`] for an example.
    pub fn builder() -> LockerBuilder {
        LockerBuilder::default()
    }

    /// What this store promises. See [`Locker::guarantee`] for an example.
    pub fn profile(&self) -> &Profile {
        self.store.backend.profile()
    }

    /// What a grant of this store is good for: to keep data right, or only to save work. A program
    /// that must not run on less says so before it connects: [`LockerBuilder::require`].
    ///
    /// ```
    /// use lockfast::{Guarantee, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?; // `redis:` gives `Guarantee::Efficiency`
    /// if locker.guarantee() < Guarantee::Correctness {
    ///     println!("only for work that may be done twice: {}", locker.profile().because);
    /// }
    /// assert_eq!(locker.guarantee(), Guarantee::Correctness);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guarantee(&self) -> Guarantee {
        self.profile().guarantee
    }

    /// A lock that one holder has at a time. See [`Mutex`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        self.any_lock(name, Mode::Exclusive).map(Mutex::new)
    }

    /// Takes a lock that one holder has at a time: [`Locker::mutex`] and [`Mutex::acquire`] in one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let guard = locker.lock("nightly-report").await?;
    /// println!("working with fence {}", guard.check()?.fence);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    ///
    /// # Errors
    /// As both of them.
    pub async fn lock(&self, name: impl AsRef<str>) -> Result<Guard> {
        self.mutex(name)?.acquire().await
    }

    /// A lock that many readers or one writer have at a time. See [`RwLock`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`] on a store without shared locks.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.any_lock(name, Mode::Shared).map(RwLock::new)
    }

    /// A lock that up to `permits` holders have at a time. Everybody must say the same number.
    /// See [`Semaphore`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::InvalidConfig`] for no permits,
    /// [`ErrorKind::Unsupported`] on a store without permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        self.any_lock(name, Mode::permit(permits)?).map(Semaphore::new)
    }

    /// Several mutexes that are held together; see [`MultiLock::new`] for locks of other modes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let guard = locker.multi(["account/7", "account/3"])?.acquire().await?;
    /// println!("writing with {:?}", guard.tokens());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], and as [`MultiLock::new`].
    #[doc(alias = "multilock")]
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<MultiLock> {
        let names = names.into_iter().take(MultiLock::LOCKS_MAX + 1);
        let mutexes: Vec<Mutex> = names.map(|name| self.mutex(name)).collect::<Result<_>>()?;
        MultiLock::new(mutexes)
    }

    /// A lock in a mode that is known only when the program runs. See [`AnyLock`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`] for a mode that the store does not
    /// have.
    pub fn any_lock(&self, name: impl AsRef<str>, mode: Mode) -> Result<AnyLock> {
        let name = self.name(name)?;
        self.profile().require_mode(mode).map_err(|error| error.with_lock(&name))?;
        AnyLock::new(Arc::clone(&self.store), name, mode, self.options.clone())
    }

    /// An election: who has the lock leads. See [`Leader`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`] where those who wait stand in no line.
    pub fn leader(&self, name: impl AsRef<str>) -> Result<Leader> {
        let lock = self.any_lock(name, Mode::Exclusive)?;
        let line = self.profile().require(Feature::Line);
        line.map_err(|error| error.with_lock(lock.name())).map(|()| Leader::new(lock))
    }

    /// A job of which one run is enough for all who start it; it may take `at_most` so long.
    /// See [`Once`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::InvalidTtl`] for a time that the store cannot keep a
    /// lock without renewal, or what [`Options::check`] says of the locker's options with it.
    pub fn once(&self, name: impl AsRef<str>, at_most: Duration) -> Result<Once> {
        Once::new(Arc::clone(&self.store), self.name(name)?, self.options.clone(), at_most)
    }

    /// A small value that all who use its name share, written by comparing versions.
    /// See [`SharedValue`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`] on a store that keeps no values, or what
    /// [`Options::check`] says of the locker's options.
    pub fn value(&self, name: impl AsRef<str>) -> Result<SharedValue> {
        let name = self.name(name)?;
        let policy = Policy::new(&self.options, self.profile())?;
        SharedValue::new(Arc::clone(&self.store), name, &policy)
    }

    /// A gate that opens when it was counted down so many times. Everybody must say the same number.
    /// See [`Latch`] for an example.
    ///
    /// # Errors
    /// As [`Locker::value`] and [`Locker::watch`], and [`ErrorKind::InvalidConfig`] for a number that is
    /// not 1 to [`Latch::COUNT_MAX`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let name = LockName::new(name)?;
        let value = self.value(format!("latch:{name}"))?;
        self.require_events(&name)?;
        Latch::new(value, name, count)
    }

    /// A place where so many wait for each other. Everybody must say the same number.
    /// See [`Barrier`] for an example.
    ///
    /// # Errors
    /// As [`Locker::latch`] and [`Locker::rwlock`], where the name must leave room for the number of the
    /// round, and [`ErrorKind::InvalidConfig`] for a number that is not 1 to [`Barrier::PARTIES_MAX`].
    pub fn barrier(&self, name: impl AsRef<str>, parties: u32) -> Result<Barrier> {
        let name = LockName::new(name)?;
        let own = format!("barrier:{name}");
        // The place of every round has a name of its own, and no round may be the last.
        self.name(format!("{own}#{}", u64::MAX))?;
        let (value, place) = (self.value(&own)?, self.any_lock(&own, Mode::Shared)?);
        self.require_events(&name)?;
        Barrier::new(value, place, name, parties)
    }

    /// A value that is computed by one and read by all, and fresh for so long.
    /// See [`Refresh`] for an example.
    ///
    /// # Errors
    /// As [`Locker::value`] and [`Locker::rwlock`], and [`ErrorKind::Unsupported`] on a store whose
    /// values do not end by themselves.
    pub fn refresh(&self, name: impl AsRef<str>, fresh_for: Duration) -> Result<Refresh> {
        let name = LockName::new(name)?;
        let own = Refresh::lock_of(&name)?;
        let failure = self.value(format!("refresh-error:{name}"))?;
        let (value, lock) = (self.value(&own)?, self.any_lock(&own, Mode::Exclusive)?);
        Refresh::new(lock, value, failure, fresh_for)
    }

    /// Who waits for a change has to hear of it.
    fn require_events(&self, name: &LockName) -> Result<()> {
        self.profile().require(Feature::Events).map_err(|error| error.with_lock(name))
    }

    /// Checks a name, alone and with the prefix before it.
    fn name(&self, name: impl AsRef<str>) -> Result<LockName> {
        let name = LockName::new(name)?;
        if !self.prefix.is_empty() {
            LockName::new(format!("{}{name}", self.prefix))?;
        }
        Ok(name)
    }

    /// Who has this lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let guard = locker.lock("nightly-report").await?;
    /// let view = locker.inspect("nightly-report").await?;
    /// assert_eq!(view.holders[0].fence, Some(guard.fence()));
    /// println!("held by {}, {} waiting", view.holders[0], view.waiting);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; when the store cannot tell.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<LockView> {
        let name = self.name(name)?;
        let views = self.store.backend.inspect(Query::Name(name.clone())).await?;
        views.into_iter().next().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the store answered no view").with_lock(&name)
        })
    }

    /// The locks that are held or waited for whose names start with `prefix`, in the order of
    /// their names: at most `limit`, after the name `after`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let _guards = [locker.lock("order/1").await?, locker.lock("order/2").await?];
    /// let first = locker.list("order/", None, 1).await?;
    /// let rest = locker.list("order/", Some(&first[0].name), 100).await?;
    /// assert_eq!(rest[0].name.as_str(), "order/2");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// When the store cannot tell.
    pub async fn list(
        &self,
        prefix: impl AsRef<str>,
        after: Option<&LockName>,
        limit: usize,
    ) -> Result<Vec<LockView>> {
        let prefix = prefix.as_ref().to_owned();
        self.store.backend.inspect(Query::Prefix { prefix, after: after.cloned(), limit }).await
    }

    /// Events of all locks of the store, from now on.
    ///
    /// ```
    /// use lockfast::WatchKind;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let mut events = locker.watch().await?;
    /// let guard = locker.lock("nightly-report").await?;
    /// while let Some(event) = events.next().await {
    ///     println!("{} {}", event.name, event.kind.as_str());
    ///     if event.kind == WatchKind::Granted && event.fence == Some(guard.fence()) {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a store that tells nobody what happens in it; when the store
    /// cannot tell.
    pub async fn watch(&self) -> Result<EventStream> {
        self.profile().require(Feature::Events)?;
        self.store.backend.watch().await
    }

    /// Takes a lock away from its holders, who are told the reason.
    ///
    /// It is asked for once: a repetition would take the lock away from whoever has it next. Where the
    /// fence is known whose holder is meant, [`Locker::revoke_fence`] does not.
    ///
    /// ```
    /// use lockfast::LossCause;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let guard = locker.lock("nightly-report").await?;
    /// locker.revoke("nightly-report", "maintenance").await?;
    /// assert_eq!(guard.lost().await, LossCause::Revoked { reason: "maintenance".into() });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::InvalidMetadata`] for a reason that cannot be shown;
    /// [`ErrorKind::Unreachable`] also when the answer was lost, and it may have happened; what else
    /// the store meets.
    pub async fn revoke(&self, name: impl AsRef<str>, reason: &str) -> Result<RevokeOutcome> {
        self.ask_to_revoke(self.name(name)?, None, reason).await
    }

    /// Takes a lock away as [`Locker::revoke`] does, if one of its holders has this fence.
    ///
    /// ```
    /// use lockfast::RevokeOutcome;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// let report = locker.mutex("nightly-report")?;
    /// let stuck = report.acquire().await?.fence(); // given back meanwhile
    /// let next = report.acquire().await?;
    /// let outcome = locker.revoke_fence("nightly-report", stuck, "it hangs").await?;
    /// assert!(matches!(outcome, RevokeOutcome::OtherFence(_)));
    /// next.check()?; // it was not meant
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Locker::revoke`].
    ///
    /// # Errors
    /// As [`Locker::revoke`].
    pub async fn revoke_fence(
        &self,
        name: impl AsRef<str>,
        fence: Fence,
        reason: &str,
    ) -> Result<RevokeOutcome> {
        self.ask_to_revoke(self.name(name)?, Some(fence), reason).await
    }

    async fn ask_to_revoke(
        &self,
        name: LockName,
        expect_fence: Option<Fence>,
        reason: &str,
    ) -> Result<RevokeOutcome> {
        // The reason is shown to the holder as a label is.
        Label::of_this_process().with_text(reason)?;
        let request = RevokeRequest { name, expect_fence, reason: reason.to_owned() };
        self.store.backend.revoke(request).await
    }

    /// Waits until nothing of this connection is being given back in the background: neither
    /// dropped guards nor cancelled acquisitions. For a program that is about to end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// drop(locker.lock("nightly-report").await?);
    /// locker.settled().await;
    /// assert!(locker.inspect("nightly-report").await?.holders.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn settled(&self) {
        self.store.undoing.finished().await;
    }

    /// Ends the use of this locker: waits as [`Locker::settled`] does and drops it, so that dropping the
    /// last one does not block a thread. Guards that are still there keep their locks, and clones of it can
    /// be used on. A store that does not answer is waited for until what was dropped has ended by itself,
    /// after its ttl and lock-delay; put a time limit around it to end sooner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::connect("memory:").await?;
    /// drop(locker.lock("nightly-report").await?);
    /// locker.shutdown().await; // the last line of a program
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, the locker is dropped as always.
    #[doc(alias = "close")]
    pub async fn shutdown(self) {
        self.settled().await;
    }

    /// Prolongs a lease that no guard keeps; its new deadline.
    /// See [`DetachedLease`](crate::DetachedLease) for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`], [`ErrorKind::Unsupported`] on a store whose leases end with
    /// the process, [`ErrorKind::NotHeld`] when the holder does not have it, [`ErrorKind::Lost`]
    /// when the store knows why.
    pub async fn renew_detached(
        &self,
        name: impl AsRef<str>,
        holder: HolderId,
        ttl: Duration,
    ) -> Result<Moment> {
        let name = self.name(name)?;
        self.require_detached(&name)?;
        let policy = Policy::new(&self.options.clone().ttl(ttl), self.profile())?;
        let sent = self.store.now();
        let lock_delay = policy.lock_delay;
        let request = RenewRequest { name: name.clone(), holder, ttl, lock_delay };
        let call = self.store.backend.renew(vec![request]);
        match self.store.within(policy.request_timeout, call).await?.pop() {
            Some(RenewOutcome::Renewed) => Ok(deadline(sent, ttl, policy.drift)),
            Some(RenewOutcome::Lost(LossCause::Forgotten)) | None => {
                Err(Error::new(ErrorKind::NotHeld, "this holder does not have it").with_lock(&name))
            }
            Some(RenewOutcome::Lost(cause)) => Err(Error::lost(&name, cause)),
            Some(RenewOutcome::Unanswered(error)) => Err(error.with_lock(&name)),
        }
    }

    /// Gives back a lease that no guard keeps.
    /// See [`DetachedLease`](crate::DetachedLease) for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a store whose leases end with the process; what the store
    /// meets.
    pub async fn release_detached(
        &self,
        name: impl AsRef<str>,
        holder: HolderId,
    ) -> Result<ReleaseOutcome> {
        let name = self.name(name)?;
        self.require_detached(&name)?;
        let policy = Policy::new(&self.options, self.profile())?;
        let request = ReleaseRequest { name, holder };
        self.store.within(policy.request_timeout, self.store.backend.release(request)).await
    }

    fn require_detached(&self, name: &LockName) -> Result<()> {
        self.profile().require(Feature::Detached).map_err(|error| error.with_lock(name))
    }
}

/// How to connect.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Guarantee, Locker, Options};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::builder()
///     .require(Guarantee::Correctness)
///     .options(Options::default().ttl(Duration::from_secs(10)))
///     .connect("memory:")
///     .await?;
/// assert_eq!(locker.mutex("nightly-report")?.lease_time(), Duration::from_secs(10));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct LockerBuilder {
    label: Option<Label>,
    guarantee: Option<Guarantee>,
    prefix: String,
    options: Options,
    /// That of this machine, but for a test kit's.
    pub(crate) clock: Clock,
}

impl LockerBuilder {
    /// What people see of this holder; program, host and pid unless set.
    ///
    /// ```
    /// use lockfast::{Label, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let label = Label::of_this_process().with_text("nightly report, team billing")?;
    /// let locker = Locker::builder().label(label.clone()).connect("memory:").await?;
    /// let guard = locker.lock("nightly-report").await?;
    /// assert_eq!(locker.inspect("nightly-report").await?.holders[0].label, Some(label));
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Refuses a store that gives less than this. See [`LockerBuilder`] for an example.
    #[must_use]
    pub fn require(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = Some(guarantee);
        self
    }

    /// Text that stands before every lock's name in the store. Here a lock has the name without it,
    /// wherever one is given or shown, and other locks are not seen: not in lists, not in events.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = lockfast::Locker::builder().prefix("billing/").connect("memory:").await?;
    /// let guard = locker.lock("report").await?; // billing/report in the store
    /// assert_eq!(guard.name().as_str(), "report");
    /// assert_eq!(locker.list("", None, 10).await?[0].name.as_str(), "report");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How locks are taken and kept unless they say otherwise. See [`LockerBuilder`] for an example.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Connects to the store at `url`. See [`LockerBuilder`] for an example.
    ///
    /// # Cancel safety
    /// Safe: a connection that was not handed out is closed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] before anything is touched, [`ErrorKind::InvalidConfig`] for
    /// options that do not go with the store, [`ErrorKind::Unsupported`] when it gives less
    /// than required; what the store meets.
    pub async fn connect(self, url: &str) -> Result<Locker> {
        let (address, entry) = connect::resolve(url)?;
        self.connect_with(move |context| (entry.connect)(address, context)).await
    }

    /// Connects to a store that the caller brings; see [`backend`](crate::backend).
    ///
    /// ```
    /// use lockfast::Locker;
    /// use lockfast::backend::Address;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let address = Address::parse("memory:")?;
    /// let locker = Locker::builder()
    ///     // The store of any crate that implements `Backend`.
    ///     .connect_with(|context| lockfast_backend_embedded::connect(address, context))
    ///     .await?;
    /// locker.lock("nightly-report").await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`LockerBuilder::connect`].
    ///
    /// # Errors
    /// As [`LockerBuilder::connect`].
    pub async fn connect_with<F>(self, connect: F) -> Result<Locker>
    where
        F: FnOnce(ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>,
    {
        check_prefix(&self.prefix)?;
        let label = self.label.unwrap_or_else(Label::of_this_process);
        let prefix = self.prefix.clone();
        let connect = move |context| Prefixed::connect(prefix, context, connect);
        let store = Store::connect(label, self.clock, connect).await?;
        let profile = store.backend.profile();
        self.options.check(profile)?;
        if self.guarantee.is_some_and(|required| profile.guarantee < required) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "correctness was required, but this store gives {}: {}",
                    profile.guarantee, profile.because
                ),
            )
            .with_backend(profile.backend));
        }
        let store = Arc::new(store);
        let last = Arc::new(SettleOnDrop(Arc::clone(&store)));
        let (prefix, options) = (Arc::from(self.prefix), self.options);
        Ok(Locker { store, prefix, options, _last: last })
    }
}
