//! A named lock in one mode: what every primitive is made of.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    Error, ErrorKind, Feature, Fence, FencingToken, HolderId, LockName, LossCause, Mode, Moment,
    Query, Refusal, Result, Wait,
};

use super::attempt::Attempt;
use crate::lease::acquire::{Acquired, Target};
use crate::lease::deadline::deadline_of;
use crate::lease::handle::{Guard, Lease, Released};
use crate::lease::holder::Holder;
use crate::lease::policy::{Options, Policy};
use crate::store::Store;

/// A lock in a mode that is known only when the program runs: what a command line said, or one of
/// the locks that a [`MultiLock`](crate::MultiLock) puts together. Where the mode is known,
/// [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) and [`Semaphore`](crate::Semaphore) say more.
///
/// Cheap to clone; it holds nothing until it is acquired.
///
/// ```
/// use lockfast::{Locker, Mode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let mode = if std::env::args().any(|word| word == "--read") { Mode::Shared } else { Mode::Exclusive };
/// let lock = locker.any_lock("nightly-report", mode)?;
/// println!("taking {}, {}", lock.name(), lock.mode());
/// let guard = lock.acquire().await?;
/// assert_eq!(guard.mode(), mode);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AnyLock {
    target: Target,
    options: Options,
    /// Why the options are of no use here, if so; then the target has those before.
    flaw: Option<Error>,
}

/// A lease that nothing renews: it ends when its ttl does, or when whoever knows its holder id
/// releases it. It outlives the process that took it.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let lease = locker.mutex("nightly-report")?.acquire_detached().await?;
/// // Another process may go on from here that knows the name and `lease.holder.to_hex()`.
/// locker.renew_detached(&lease.name, lease.holder, Duration::from_secs(60)).await?;
/// locker.release_detached(&lease.name, lease.holder).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DetachedLease {
    /// The lock.
    pub name: LockName,
    /// The secret by which it is renewed and released.
    pub holder: HolderId,
    /// The fence of this grant.
    pub fence: Fence,
    /// The moment from which it counts as lost unless it is renewed.
    pub deadline: Moment,
}

impl DetachedLease {
    /// Its fence together with the lock, for whatever checks fences.
    ///
    /// ```
    /// use lockfast::{Locker, fence::Gate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let gate = Gate::new("account/7", 100)?;
    /// let lease = Locker::connect("memory:").await?.mutex("account/7")?.acquire_detached().await?;
    /// *gate.check(&lease.token())? += 10;
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> FencingToken {
        FencingToken { lock: self.name.clone(), fence: self.fence }
    }
}

impl AnyLock {
    pub(crate) fn new(
        store: Arc<Store>,
        name: LockName,
        mode: Mode,
        options: Options,
    ) -> Result<Self> {
        let policy = Policy::new(&options, store.backend.profile())?;
        Ok(Self { target: Target { store, name, mode, policy }, options, flaw: None })
    }

    /// As [`Mutex::ttl`](crate::Mutex::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|options| options.ttl(ttl))
    }

    /// As [`Mutex::wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.change(|options| options.wait(wait))
    }

    /// As [`Mutex::wait_forever`](crate::Mutex::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        self.change(Options::wait_forever)
    }

    /// As [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        self.change(|options| options.lock_delay(lock_delay))
    }

    /// As [`Mutex::floor`](crate::Mutex::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        self.change(|options| options.floor(floor))
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        self.change(|_| options)
    }

    fn change(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self.flaw = match Policy::new(&self.options, self.target.store.backend.profile()) {
            Ok(policy) => {
                self.target.policy = policy;
                None
            }
            Err(error) => Some(error.with_lock(&self.target.name)),
        };
        self
    }

    /// Refuses options that are of no use.
    pub(crate) fn check(&self) -> Result<()> {
        self.flaw.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn with_mode(mut self, mode: Mode) -> Self {
        self.target.mode = mode;
        self
    }

    /// Another lock that is taken and kept in the same way.
    pub(super) fn renamed(mut self, name: LockName) -> Self {
        self.target.name = name;
        self
    }

    /// The name. See [`AnyLock`] for an example.
    pub fn name(&self) -> &LockName {
        &self.target.name
    }

    /// The mode. See [`AnyLock`] for an example.
    pub fn mode(&self) -> Mode {
        self.target.mode
    }

    /// As [`Mutex::lease_time`](crate::Mutex::lease_time).
    pub fn lease_time(&self) -> Duration {
        self.target.policy.ttl
    }

    /// Whether a lease is one of this lock, in whatever mode.
    pub(super) fn is_of(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.target.store, &lease.0.store) && self.target.name == lease.0.name
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.target.store
    }

    /// How long one request may take.
    pub(super) fn request_timeout(&self) -> Duration {
        self.target.policy.request_timeout
    }

    /// Until when an acquisition that begins now may wait.
    pub(crate) fn wait_from(&self, now: Moment) -> Wait {
        self.target.policy.wait_from(now)
    }

    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_until(self.wait_from(self.store().now())).await
    }

    pub(crate) async fn acquire_until(&self, wait: Wait) -> Result<Guard> {
        self.check()?;
        match self.target.acquire(wait, false).await? {
            Ok(cell) => Ok(Guard::new(cell)),
            Err(refusal) => Err(Error::taken(&self.target.name, refusal)),
        }
    }

    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn try_acquire(&self) -> Result<Attempt> {
        self.check()?;
        Ok(match self.target.acquire(Wait::No, false).await? {
            Ok(cell) => Attempt::Acquired(Guard::new(cell)),
            Err(refusal) => Attempt::Taken(refusal),
        })
    }

    /// As [`Mutex::acquire_full`](crate::Mutex::acquire_full).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_full(&self) -> Result<Guard> {
        let wait = self.wait_from(self.store().now());
        let is_open = || wait.until().is_none_or(|end| !end.has_passed(self.store().now()));
        loop {
            let guard = self.acquire_until(wait).await?;
            match guard.full().await {
                Ok(()) => return Ok(guard),
                Err(error) if is_expiry(&error) && is_open() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Mutex::acquire_as`](crate::Mutex::acquire_as).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_as(&self, holder: &Holder) -> Result<Guard> {
        let now = self.store().now();
        match self.take_as(holder, now, self.wait_from(now)).await? {
            Attempt::Acquired(guard) => Ok(guard),
            Attempt::Taken(refusal) => Err(Error::taken(&self.target.name, refusal)),
        }
    }

    /// As [`Mutex::try_acquire_as`](crate::Mutex::try_acquire_as).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn try_acquire_as(&self, holder: &Holder) -> Result<Attempt> {
        self.take_as(holder, self.store().now(), Wait::No).await
    }

    /// Takes a place of the holder's that it has, or asks the store for one. Who asks keeps the seat
    /// meanwhile; a cancellation leaves it to the next.
    async fn take_as(&self, holder: &Holder, start: Moment, wait: Wait) -> Result<Attempt> {
        self.check()?;
        if let Some(guard) = holder.again(&self.target) {
            return Ok(Attempt::Acquired(guard));
        }
        let seat = holder.seat(&self.target)?;
        let asking = match wait {
            Wait::No => seat.asking.try_lock().ok(),
            Wait::Until(end) => self.target.store.until(end, seat.asking.lock()).await,
            Wait::Forever => Some(seat.asking.lock().await),
        };
        let Some(_asking) = asking else {
            let waited = wait.waited(start, self.store().now());
            return self.refuse(waited).await.map(Attempt::Taken);
        };
        // Who asked before may have got it, and may have it in another mode by now.
        if let Some(guard) = holder.again(&self.target) {
            return Ok(Attempt::Acquired(guard));
        }
        holder.check_mode(&self.target)?;
        Ok(match self.target.acquire(wait, false).await? {
            Ok(cell) => {
                seat.take(&cell);
                Attempt::Acquired(Guard::new(cell))
            }
            Err(refusal) => Attempt::Taken(refusal),
        })
    }

    /// Who is in the way of a holder that still waits for the lock elsewhere in this process.
    async fn refuse(&self, waited: Duration) -> Result<Refusal> {
        let Target { store, name, policy, .. } = &self.target;
        let look = store.backend.inspect(Query::Name(name.clone()));
        let views = store.within(policy.request_timeout, look).await;
        let view = views.map_err(|error| error.with_lock(name))?.into_iter().next();
        let none = || Error::new(ErrorKind::Internal, "the store answered no view").with_lock(name);
        let lock = view.ok_or_else(none)?;
        Ok(Refusal::new(lock, waited))
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
        let guard = self.acquire().await?;
        let lease = guard.lease().clone();
        let finished = lease.unless_lost(body(lease.clone())).await;
        let released = guard.release().await?;
        let value = finished?;
        match released {
            Released::AlreadyLost(cause) => Err(Error::lost(&self.target.name, cause)),
            _ => Ok(value),
        }
    }

    /// As [`Mutex::acquire_detached`](crate::Mutex::acquire_detached).
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_detached(&self) -> Result<DetachedLease> {
        self.check()?;
        let profile = self.target.store.backend.profile();
        profile.require(Feature::Detached).map_err(|error| error.with_lock(self.name()))?;
        let wait = self.wait_from(self.store().now());
        let Target { name, policy, store, .. } = &self.target;
        match self.target.ask(wait, true).await? {
            Acquired::Granted { holder, grant } => {
                // Nobody here wants to hear of it any more.
                store.registry.forget(holder);
                Ok(DetachedLease {
                    name: name.clone(),
                    holder,
                    fence: grant.fence,
                    deadline: deadline_of(&grant, policy.ttl, policy.drift),
                })
            }
            Acquired::Taken(refusal) => Err(Error::taken(name, refusal)),
        }
    }
}

fn is_expiry(error: &Error) -> bool {
    let expired =
        |cause: &LossCause| matches!(cause, LossCause::Expired { .. } | LossCause::Forgotten);
    error.loss().is_some_and(expired)
}
