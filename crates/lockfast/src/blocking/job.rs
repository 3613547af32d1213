//! Elections and scheduled jobs, blocking.

use std::time::Duration;

use lockfast_core::{Error, Fence, HolderId, LockName, LossCause, Moment, Result};

use super::handle::{Lease, OnceGuard};
use super::{block_on, block_within};
use crate::{Attempt, Leadership, Options, Ran, Released};

/// [`crate::Leader`], blocking.
///
/// ```
/// use lockfast::Leadership;
/// use lockfast::blocking::LeaderEvent;
///
/// # fn main() -> lockfast::Result<()> {
/// let leader = lockfast::blocking::Locker::connect("memory:")?.leader("scheduler")?;
/// let mut campaign = leader.campaign()?;
/// if let LeaderEvent::Elected { term, lease } = campaign.next()? {
///     lease.check()?; // again before each side effect: nobody else tells this thread of a loss
///     println!("leading with term {term}");
/// }
/// assert!(matches!(leader.observe()?.next()?, Leadership::Led(_)));
/// campaign.resign()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leader(pub(super) crate::Leader);

impl Leader {
    /// As [`Leader::ttl`](crate::Leader::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// As [`Leader::lock_delay`](crate::Leader::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`Leader::floor`](crate::Leader::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`Leader::with_options`](crate::Leader::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Leader::name`](crate::Leader::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Leader::campaign`](crate::Leader::campaign). See [`Campaign`] for an example.
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self) -> Result<Campaign> {
        self.0.campaign().map(Campaign)
    }

    /// As [`Leader::observe`](crate::Leader::observe). See [`Observer`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn observe(&self) -> Result<Observer> {
        block_on(self.0.observe()).map(Observer)
    }
}

/// [`crate::Campaign`], blocking.
///
/// ```
/// use lockfast::blocking::{LeaderEvent, Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let mut campaign = Locker::connect("memory:")?.leader("scheduler")?.campaign()?;
/// loop {
///     match campaign.next()? {
///         LeaderEvent::Elected { term, lease } => {
///             if lease.is_held() {
///                 println!("one step with term {term}"); // and the next, while it is held
///             }
///             break; // or lead on until it is lost, and ask for the next event
///         }
///         LeaderEvent::Deposed { why, .. } => println!("deposed: {why}"),
///         _ => {}
///     }
/// }
/// campaign.resign()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a campaign is a resignation"]
#[derive(Debug)]
pub struct Campaign(crate::Campaign);

impl Campaign {
    /// As [`Campaign::next`](crate::Campaign::next). See [`Campaign`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: an error does not end it")]
    pub fn next(&mut self) -> Result<LeaderEvent> {
        block_on(self.0.next()).map(LeaderEvent::from)
    }

    /// The next event, if one comes within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let mut campaign = Locker::connect("memory:")?.leader("scheduler")?.campaign()?;
    /// match campaign.next_within(Duration::from_secs(10))? {
    ///     Some(event) => println!("{event:?}"),
    ///     None => println!("somebody else leads"), // and look after other things
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<LeaderEvent>> {
        Ok(block_within(limit, self.0.next())?.map(LeaderEvent::from))
    }

    /// As [`Campaign::resign`](crate::Campaign::resign). See [`Campaign`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync); then the keeper finishes it.
    pub fn resign(self) -> Result<Option<Released>> {
        block_on(self.0.resign())
    }
}

/// [`crate::LeaderEvent`], blocking: the lease of a term can be waited for without `async`.
///
/// ```
/// use std::time::Duration;
/// use lockfast::blocking::{LeaderEvent, Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let mut campaign = Locker::connect("memory:")?.leader("scheduler")?.campaign()?;
/// if let LeaderEvent::Elected { term, lease } = campaign.next()? {
///     println!("leading with term {term}");
///     let lost = lease.lost_within(Duration::from_millis(10))?;
///     assert!(lost.is_none());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LeaderEvent {
    /// As [`LeaderEvent::Elected`](crate::LeaderEvent::Elected).
    Elected {
        /// The fence of this grant: higher than that of every earlier term.
        term: Fence,
        /// What is known of the term: whether it is still good, and when it ends.
        lease: Lease,
    },
    /// As [`LeaderEvent::Deposed`](crate::LeaderEvent::Deposed).
    Deposed {
        /// Which term ended.
        term: Fence,
        /// Why.
        why: LossCause,
    },
}

impl From<crate::LeaderEvent> for LeaderEvent {
    fn from(event: crate::LeaderEvent) -> Self {
        match event {
            crate::LeaderEvent::Elected { term, lease } => {
                Self::Elected { term, lease: lease.into() }
            }
            crate::LeaderEvent::Deposed { term, why } => Self::Deposed { term, why },
        }
    }
}

/// [`crate::Observer`], blocking.
///
/// ```
/// use lockfast::{Leadership, blocking::Locker};
///
/// # fn main() -> lockfast::Result<()> {
/// let leader = Locker::connect("memory:")?.leader("scheduler")?;
/// let mut observer = leader.observe()?;
/// assert!(matches!(observer.next()?, Leadership::Vacant));
/// let _campaign = leader.campaign()?;
/// if let Leadership::Led(view) = observer.next()? {
///     println!("led since {:?}", view.since); // as soon as somebody does
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Observer(crate::Observer);

impl Observer {
    /// As [`Observer::next`](crate::Observer::next). See [`Observer`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: an error does not end it")]
    pub fn next(&mut self) -> Result<Leadership> {
        block_on(self.0.next())
    }

    /// Who leads, if that changes within `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::blocking::Locker;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let mut observer = Locker::connect("memory:")?.leader("scheduler")?.observe()?;
    /// while let Some(leadership) = observer.next_within(Duration::from_millis(10))? {
    ///     println!("{leadership:?}"); // vacant, and then nothing new
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Leadership>> {
        block_within(limit, self.0.next())
    }
}

/// [`crate::Once`], blocking.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Ran;
///
/// # fn main() -> lockfast::Result<()> {
/// let locker = lockfast::blocking::Locker::connect("memory:")?;
/// let report = locker.once("nightly-report", Duration::from_secs(600))?;
/// let ran = report.run(|lease| {
///     lease.check()?; // again before each side effect: nobody stops this thread
///     Ok::<_, lockfast::Error>(lease.fence())
/// })?;
/// assert!(matches!(ran, Ran::Done(Ok(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Once(pub(super) crate::Once);

impl Once {
    /// As [`Once::at_least`](crate::Once::at_least).
    #[must_use]
    pub fn at_least(self, at_least: Duration) -> Self {
        Self(self.0.at_least(at_least))
    }

    /// As [`Once::lock_delay`](crate::Once::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self(self.0.lock_delay(lock_delay))
    }

    /// As [`Once::floor`](crate::Once::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self(self.0.floor(floor))
    }

    /// As [`Once::with_options`](crate::Once::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self(self.0.with_options(options))
    }

    /// As [`Once::name`](crate::Once::name).
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`Once::at_most`](crate::Once::at_most).
    pub fn at_most(&self) -> Duration {
        self.0.at_most()
    }

    /// As [`Once::start`](crate::Once::start). See [`OnceGuard`](super::OnceGuard) for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn start(&self) -> Result<Attempt<OnceGuard>> {
        Ok(block_on(self.0.start())?.map(OnceGuard::new))
    }

    /// As [`Once::run`](crate::Once::run), but nobody can stop a thread: a job that may take longer than
    /// `at_most` checks its lease. See [`Once`] for an example.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn run<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<Ran<T>> {
        let guard = match self.start()? {
            Attempt::Acquired(guard) => guard,
            Attempt::Taken(refusal) => return Ok(Ran::Skipped(refusal)),
        };
        let value = body(&guard);
        match guard.finish()? {
            Released::AlreadyLost(cause) => Err(Error::lost(self.name(), cause)),
            _ => Ok(Ran::Done(value)),
        }
    }

    /// As [`Once::finish_detached`](crate::Once::finish_detached).
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Released, blocking::Locker};
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let job = Locker::connect("memory:")?.once("nightly-report", Duration::from_secs(600))?;
    /// let guard = job.start()?.acquired().expect("nobody else runs it");
    /// let (holder, started) = (guard.holder(), guard.started()); // told to whoever looks after it
    /// std::mem::forget(guard); // as if it had been killed
    /// assert!(matches!(job.finish_detached(holder, started)?, Released::Released));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`](crate::ErrorKind::BlockingInAsync).
    pub fn finish_detached(&self, holder: HolderId, started: Moment) -> Result<Released> {
        block_on(self.0.finish_detached(holder, started))
    }
}
