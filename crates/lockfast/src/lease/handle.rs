//! What a caller holds: a [`Guard`] that gives the lock back, and the [`Lease`] that it stands
//! for, which can be handed to whatever works under it.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{
    Error, ErrorKind, Fence, FencingToken, HolderId, LockName, LossCause, Mode, Moment,
    ReleaseOutcome, Result,
};

use super::cell::LeaseCell;
use super::state::{LeaseState, Phase};
use super::undo::{self, Release};

/// A lease: what is known of a hold, for whoever works under it. Cheap to clone, and a clone does not
/// prolong it: the lock is given back with the [`Guard`].
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Lease, Locker};
///
/// async fn write_pages(lease: Lease) -> lockfast::Result<()> {
///     for page in 1..=3 {
///         let checked = lease.check()?; // just before each side effect
///         println!("page {page} with fence {}, {:?} left", checked.fence, checked.remaining);
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
/// let lease = guard.lease().clone();
/// tokio::select! {
///     written = write_pages(lease.clone()) => written?,
///     why = lease.lost() => println!("stopped: {why}"),
/// }
/// guard.extend(Duration::from_secs(60)).await?; // from now on it is renewed for a minute
/// guard.release().await?;
/// assert!(!lease.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lease(pub(crate) Arc<LeaseCell>);

/// The answer of [`Lease::check`].
///
/// ```
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
/// let checked = guard.check()?;
/// println!("INSERT … with fence {}, within {:?}", checked.fence, checked.remaining);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// To be sent along with whatever is done now.
    pub fence: Fence,
    /// How long the lease is good for unless it is renewed.
    pub remaining: Duration,
}

/// Where a lease stands.
///
/// ```
/// use lockfast::{LeaseStatus, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
/// match guard.status() {
///     LeaseStatus::Held => println!("held for {:?} at least", guard.remaining()),
///     LeaseStatus::Jeopardy { failure, .. } => println!("still held, but not renewed: {failure}"),
///     LeaseStatus::Lost(why) => println!("stop: {why}"),
///     _ => println!("given back"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LeaseStatus {
    /// It is held.
    Held,
    /// It is held, but a renewal failed; it will be lost unless one succeeds in time.
    Jeopardy {
        /// When it will be lost.
        until: Moment,
        /// What the renewal met.
        failure: String,
    },
    /// It ended without its holder's asking.
    Lost(LossCause),
    /// It was given back.
    Released,
}

impl Lease {
    /// The lock. See [`Guard`] for an example.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// How it is held; a writer's lease is shared from the moment at which
    /// [`RwLock::downgrade`](crate::RwLock::downgrade) was asked for, unless that was refused. See
    /// [`AnyLock`](crate::AnyLock) for an example.
    pub fn mode(&self) -> Mode {
        self.0.held_mode().mode()
    }

    /// The fence of this grant: higher than that of every earlier one.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let first = report.acquire().await?;
    /// let before = first.fence();
    /// first.release().await?;
    /// assert!(report.acquire().await?.fence().get() > before.get());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// The fence together with the lock it belongs to.
    ///
    /// ```
    /// use lockfast::{Locker, fence::Gate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let balance = Gate::new("account/7", 100)?;
    /// let guard = Locker::connect("memory:").await?.lock("account/7").await?;
    /// *balance.check(&guard.token())? += 10; // refused if a later holder was here
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> FencingToken {
        FencingToken { lock: self.0.name.clone(), fence: self.0.fence }
    }

    /// The secret by which the store knows this holder.
    /// See [`Once::finish_detached`](crate::Once::finish_detached) for an example.
    pub fn holder(&self) -> HolderId {
        self.0.holder
    }

    /// Whether the lease is good right now. Call it just before each side effect, and send the
    /// fence along: between this call and the effect the process may still be paused.
    /// See [`Lease`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the cause, [`ErrorKind::NotHeld`] after the release,
    /// [`ErrorKind::ForkedProcess`] in a forked child.
    pub fn check(&self) -> Result<Checked> {
        self.0.check_process()?;
        let state = self.0.look();
        match &state.phase {
            Phase::Held | Phase::Jeopardy { .. } => Ok(Checked {
                fence: self.0.fence,
                remaining: state.deadline.remaining(self.0.store.now()),
            }),
            Phase::Lost(cause) => Err(self.0.lost_error(cause.clone())),
            Phase::Released => Err(self.not_held()),
        }
    }

    /// Whether the lease is good right now, as [`Lease::check`] says it. See [`Lease`] for an example.
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// How long the lease is good for unless it is renewed; zero when it is over.
    /// See [`LeaseStatus`] for an example.
    pub fn remaining(&self) -> Duration {
        self.check().map_or(Duration::ZERO, |checked| checked.remaining)
    }

    /// The moment from which the lease counts as lost unless it is renewed.
    ///
    /// ```
    /// use lockfast::{Locker, Moment};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
    /// let deadline = guard.deadline();
    /// assert!(!deadline.has_passed(Moment::now()));
    /// println!("a request may take {:?}", deadline.remaining(Moment::now()) / 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(&self) -> Moment {
        self.0.look().deadline
    }

    /// Where the lease stands. See [`LeaseStatus`] for an example.
    pub fn status(&self) -> LeaseStatus {
        let state = self.0.look();
        match &state.phase {
            Phase::Held => LeaseStatus::Held,
            Phase::Jeopardy { failure } => {
                LeaseStatus::Jeopardy { until: state.deadline, failure: failure.clone() }
            }
            Phase::Lost(cause) => LeaseStatus::Lost(cause.clone()),
            Phase::Released => LeaseStatus::Released,
        }
    }

    /// Waits for the loss of the lease; for ever if it is given back instead. It fires at the
    /// deadline at the latest, also when the network is dead and every thread of the caller's
    /// executor is blocked. See [`Lease`] for an example.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn lost(&self) -> LossCause {
        let mut seen = 0;
        loop {
            seen = self.0.changed(seen).await;
            if let LeaseStatus::Lost(cause) = self.status() {
                return cause;
            }
        }
    }

    /// Every change of the status or the deadline from now on, beginning with what they are.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// use lockfast::{LeaseStatus, Locker};
    ///
    /// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
    /// let mut changes = guard.changes();
    /// assert_eq!(changes.next().await, LeaseStatus::Held);
    /// guard.release().await?;
    /// assert_eq!(changes.next().await, LeaseStatus::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self) -> LeaseChanges {
        LeaseChanges { lease: self.clone(), seen: 0 }
    }

    /// Changes the lease time from now on. A shorter one moves the deadline down at once; a
    /// longer one moves it up when the store has agreed, which this waits for.
    /// See [`Lease`] for an example.
    ///
    /// # Cancel safety
    /// Safe: the new time is kept, and the next renewal asks for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`] for a time that is not possible, [`ErrorKind::Lost`],
    /// [`ErrorKind::NotHeld`], or [`ErrorKind::Unreachable`] when the store did not answer; then
    /// the keeper goes on asking.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        self.check()?;
        let cell = &self.0;
        let wanted = {
            let state = cell.state();
            let policy = state.policy.with_ttl(ttl, cell.store.backend.profile())?;
            drop(state);
            cell.extend(policy)
        };
        self.wait_for(|state| state.result_of(wanted))
            .await?
            .map_err(|failure| Error::new(failure.kind, failure.message).with_lock(&cell.name))
    }

    /// Whether the store keeps the lease for its whole ttl. A lock that was handed over lasts a
    /// second or two until the keeper has confirmed it, which it does at once.
    /// See [`Mutex::acquire_full`](crate::Mutex::acquire_full) for an example.
    pub fn is_full(&self) -> bool {
        self.0.look().is_full
    }

    /// Waits until the store keeps the lease for its whole ttl: for work that cannot be stopped
    /// as quickly as a lock that was handed over may end.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:").await?.lock("backup").await?;
    /// println!("preparing, which can be stopped at once");
    /// guard.full().await?;
    /// println!("copying, which cannot, with {:?} left", guard.remaining());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lease was lost before that, [`ErrorKind::NotHeld`] after the
    /// release.
    pub async fn full(&self) -> Result<()> {
        if !self.is_full() {
            self.0.confirm();
        }
        self.wait_for(|state| state.is_full.then_some(())).await
    }

    /// Waits until something holds of the lease.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&LeaseState) -> Option<T>) -> Result<T> {
        let mut seen = 0;
        loop {
            seen = self.0.changed(seen).await;
            self.check()?;
            if let Some(value) = ready(&self.0.state()) {
                return Ok(value);
            }
        }
    }

    /// Runs `body`, which is dropped where it stands when the lease is lost.
    pub(crate) async fn unless_lost<T>(&self, body: impl Future<Output = T>) -> Result<T> {
        let mut body = pin!(body);
        let mut lost = pin!(self.lost());
        poll_fn(|context| {
            if let Poll::Ready(cause) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(Error::lost(self.name(), cause)));
            }
            body.as_mut().poll(context).map(Ok)
        })
        .await
    }

    fn not_held(&self) -> Error {
        Error::new(ErrorKind::NotHeld, "it was released already").with_lock(&self.0.name)
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("lock", &self.0.name)
            .field("mode", &self.mode())
            .field("fence", &self.0.fence)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// The changes of a lease, one after the other: see [`Lease::changes`].
///
/// ```
/// use lockfast::{LeaseStatus, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
/// let mut changes = guard.changes();
/// let log = tokio::spawn(async move {
///     loop {
///         match changes.next().await {
///             LeaseStatus::Held => println!("held"),
///             LeaseStatus::Jeopardy { failure, .. } => println!("not renewed: {failure}"),
///             over => return over,
///         }
///     }
/// });
/// guard.release().await?;
/// assert_eq!(log.await.expect("no panic"), LeaseStatus::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaseChanges {
    lease: Lease,
    seen: u64,
}

impl LeaseChanges {
    /// Where the lease stands: at first at once, later when its status or deadline has changed.
    /// Changes that were over before anybody asked are left out. See [`LeaseChanges`] for an example.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn next(&mut self) -> LeaseStatus {
        self.seen = self.lease.0.changed(self.seen).await;
        self.lease.status()
    }
}

/// What came of [`Guard::release`].
///
/// ```
/// use lockfast::{Locker, Released};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.lock("nightly-report").await?;
/// match guard.release().await? {
///     Released::AlreadyLost(why) => println!("somebody else may have worked, too: {why}"),
///     Released::Unknown { expires_in, error } => println!("free in {expires_in:?}: {error}"),
///     released => assert!(matches!(released, Released::Released)),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Released {
    /// The store let go of it.
    Released,
    /// Other guards of the same [`Holder`](crate::Holder) remain; the last one gives it back.
    StillHeld,
    /// The job of a [`Once`](crate::Once) has ended before its `at_least`; the store keeps the lock
    /// until then, and then it ends by itself.
    Kept {
        /// When that is.
        expires_in: Duration,
    },
    /// It had been lost before.
    AlreadyLost(LossCause),
    /// The store did not answer. The keeper goes on asking; at the latest it ends by itself.
    Unknown {
        /// When that is.
        expires_in: Duration,
        /// What the release met.
        error: Error,
    },
}

/// A held lock. Dropping it hands the release to the keeper and never blocks, so the lock may
/// stay taken for a moment afterwards; [`Guard::release`] waits for the store and tells what
/// happened. A program that ends right after a drop waits for
/// [`Locker::settled`](crate::Locker::settled) first, or may leave the lock to its ttl.
///
/// It is a [`Lease`] as well: what that says of the hold can be asked of the guard.
///
/// ```
/// use lockfast::{Locker, Released};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.mutex("nightly-report")?.acquire().await?;
/// println!("{} is held with fence {}", guard.name(), guard.check()?.fence);
/// match guard.release().await? {
///     Released::Released => println!("the next in line has it"),
///     Released::AlreadyLost(why) => println!("somebody else may have worked, too: {why}"),
///     other => println!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    lease: Lease,
    /// Whether it still has to be counted out.
    counts: bool,
}

impl Guard {
    pub(crate) fn new(cell: Arc<LeaseCell>) -> Self {
        Self { lease: Lease(cell), counts: true }
    }

    /// The lease, for handing it to others. See [`Lease`] for an example.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Another guard of a lease, if it is held in this mode and not about to be given back.
    pub(crate) fn again(cell: Arc<LeaseCell>, mode: Mode) -> Option<Self> {
        let one_more = |guards: usize| (guards > 0).then_some(guards + 1);
        let held = cell.held_mode();
        if held.mode() != mode {
            return None;
        }
        cell.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        drop(held);
        // It is counted from here on, also when it turns out to be of no use.
        let guard = Self::new(cell);
        guard.is_held().then_some(guard)
    }

    /// Gives the lock back and tells what happened. See [`Guard`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, the keeper finishes the release.
    ///
    /// # Errors
    /// [`ErrorKind::ForkedProcess`] in a forked child; the parent still has the lock.
    pub async fn release(self) -> Result<Released> {
        let cell = Arc::clone(&self.lease.0);
        cell.check_process()?;
        if !self.leave() {
            return Ok(Released::StillHeld);
        }
        let phase = cell.look().phase.clone();
        let claim = cell.claim();
        if let Phase::Lost(cause) = phase {
            // The holder has stopped, so even a lock-delay need not run out.
            undo::start(claim);
            return Ok(Released::AlreadyLost(cause));
        }
        cell.end(cell.store.now());
        let until = cell.state().deadline + claim.entry.lock_delay;
        Ok(match Release::new(claim).await {
            Ok(ReleaseOutcome::Released) => Released::Released,
            Ok(ReleaseOutcome::NotHeld) => Released::AlreadyLost(LossCause::Forgotten),
            Err(error) => {
                Released::Unknown { expires_in: until.remaining(cell.store.now()), error }
            }
        })
    }

    /// Counts this guard out without giving the lock back; whether it was the last.
    fn leave(mut self) -> bool {
        self.counts = false;
        self.lease.0.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let cell = &self.lease.0;
        let is_last = self.counts && cell.guards.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && cell.check_process().is_ok() {
            cell.end(cell.store.now());
            undo::start(cell.claim());
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.lease).finish()
    }
}
