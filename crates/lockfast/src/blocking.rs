//! The same locks for code without an executor. It needs no runtime: the keeper's threads do the
//! work, and the calling thread sleeps until they are done.
//!
//! ```
//! # fn main() -> lockfast::Result<()> {
//! let locker = lockfast::blocking::Locker::connect("memory:")?;
//! let guard = locker.mutex("nightly-report")?.acquire()?;
//! println!("working with fence {}", guard.check()?.fence);
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use lockfast_core::{
    Diagnosis, Error, ErrorKind, Guarantee, LockName, LockView, LossCause, Mode, Profile, Result,
};

use crate::lease::handle::{Lease, Released};
use crate::lease::policy::Options;
use crate::primitive::{LeaderEvent, Leadership, Ran};

/// Runs a future on this thread.
///
/// # Errors
/// [`ErrorKind::BlockingInAsync`] where a runtime would be blocked.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::new(
            ErrorKind::BlockingInAsync,
            "a blocking call would stop this async runtime; use the async API here (inside \
             spawn_blocking: Handle::current().block_on(…) with the async API)",
        ));
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// As [`crate::diagnose`].
///
/// ```
/// # fn main() -> lockfast::Result<()> {
/// let diagnosis = lockfast::blocking::diagnose("memory:")?;
/// println!("good for {}: {}", diagnosis.guarantee, diagnosis.because);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there, and [`ErrorKind::BlockingInAsync`].
pub fn diagnose(url: &str) -> Result<Diagnosis> {
    block_on(crate::diagnose(url))
}

/// [`crate::Locker`], blocking.
#[derive(Clone, Debug)]
pub struct Locker(crate::Locker);

impl Locker {
    /// As [`crate::Locker::connect`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_as(crate::Locker::builder(), url)
    }

    /// As [`crate::LockerBuilder::connect`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn connect_as(builder: crate::LockerBuilder, url: &str) -> Result<Self> {
        block_on(builder.connect(url)).map(Self)
    }

    /// As [`crate::Locker::profile`].
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }

    /// As [`crate::Locker::guarantee`].
    pub fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }

    /// As [`crate::Locker::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, name: impl AsRef<str>, mode: Mode) -> Result<Lock> {
        self.0.lock(name, mode).map(Lock)
    }

    /// As [`crate::Locker::mutex`].
    ///
    /// # Errors
    /// As there.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Lock> {
        self.lock(name, Mode::Exclusive)
    }

    /// As [`crate::Locker::semaphore`].
    ///
    /// # Errors
    /// As there.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Lock> {
        self.lock(name, Mode::permit(permits)?)
    }

    /// As [`crate::Locker::leader`].
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self, name: impl AsRef<str>) -> Result<Leader> {
        self.0.leader(name).map(Leader)
    }

    /// As [`crate::Locker::once`].
    ///
    /// # Errors
    /// As there.
    pub fn once(&self, name: impl AsRef<str>, at_most: Duration) -> Result<Once> {
        self.0.once(name, at_most).map(Once)
    }

    /// As [`crate::Locker::inspect`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn inspect(&self, name: &LockName) -> Result<LockView> {
        block_on(self.0.inspect(name))
    }

    /// As [`crate::Locker::settled`].
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`].
    pub fn settle(&self) -> Result<()> {
        block_on(async {
            self.0.settled().await;
            Ok(())
        })
    }
}

/// A connection that was made in another way, with a store of one's own, say.
impl From<crate::Locker> for Locker {
    fn from(locker: crate::Locker) -> Self {
        Self(locker)
    }
}

/// [`crate::Lock`], blocking.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

/// What came of one try.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is held.
    Granted(Guard),
    /// Somebody else has it.
    Taken(lockfast_core::Refusal),
}

impl Lock {
    /// As [`crate::Lock::with`].
    ///
    /// # Errors
    /// As there.
    pub fn with(self, options: Options) -> Result<Self> {
        self.0.with(options).map(Self)
    }

    /// As [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard)
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn try_acquire(&self) -> Result<Attempt> {
        Ok(match block_on(self.0.try_acquire())? {
            crate::Attempt::Granted(guard) => Attempt::Granted(Guard(guard)),
            crate::Attempt::Taken(refusal) => Attempt::Taken(refusal),
        })
    }
}

/// [`crate::Guard`], blocking. Its [`Lease`] is the same.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard(crate::Guard);

impl Guard {
    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`]; then the keeper gives the lock back.
    pub fn release(self) -> Result<Released> {
        block_on(self.0.release())
    }

    /// As [`crate::Guard::reenter`].
    ///
    /// # Errors
    /// As there.
    pub fn reenter(&self) -> Result<Self> {
        self.0.reenter().map(Self)
    }

    /// Sleeps until the lease is lost, as [`Lease::lost`].
    ///
    /// # Errors
    /// [`ErrorKind::BlockingInAsync`].
    pub fn wait_for_loss(&self) -> Result<LossCause> {
        block_on(async { Ok(self.0.lost().await) })
    }
}

impl std::ops::Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0
    }
}

/// [`crate::Leader`], blocking.
///
/// ```
/// use lockfast::{LeaderEvent, Leadership};
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
pub struct Leader(crate::Leader);

impl Leader {
    /// As [`crate::Leader::with`].
    ///
    /// # Errors
    /// As there.
    pub fn with(self, options: Options) -> Result<Self> {
        self.0.with(options).map(Self)
    }

    /// As [`crate::Leader::campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self) -> Result<Campaign> {
        self.0.campaign().map(Campaign)
    }

    /// As [`crate::Leader::observe`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn observe(&self) -> Result<Observer> {
        block_on(self.0.observe()).map(Observer)
    }
}

/// [`crate::Campaign`], blocking.
#[must_use = "dropping a campaign is a resignation"]
#[derive(Debug)]
pub struct Campaign(crate::Campaign);

impl Campaign {
    /// As [`crate::Campaign::next`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: an error does not end it")]
    pub fn next(&mut self) -> Result<LeaderEvent> {
        block_on(self.0.next())
    }

    /// As [`crate::Campaign::resign`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`]; then the keeper finishes it.
    pub fn resign(self) -> Result<Option<Released>> {
        block_on(self.0.resign())
    }
}

/// [`crate::Observer`], blocking.
#[derive(Debug)]
pub struct Observer(crate::Observer);

impl Observer {
    /// As [`crate::Observer::next`].
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: an error does not end it")]
    pub fn next(&mut self) -> Result<Leadership> {
        block_on(self.0.next())
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
pub struct Once(crate::Once);

impl Once {
    /// As [`crate::Once::at_least`].
    ///
    /// # Errors
    /// As there.
    pub fn at_least(self, at_least: Duration) -> Result<Self> {
        self.0.at_least(at_least).map(Self)
    }

    /// As [`crate::Once::run`], but nobody can stop a thread: a job that may take longer than
    /// `at_most` checks its lease.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::BlockingInAsync`].
    pub fn run<T>(&self, body: impl FnOnce(&Lease) -> T) -> Result<Ran<T>> {
        let guard = match block_on(self.0.start())? {
            crate::OnceAttempt::Granted(guard) => guard,
            crate::OnceAttempt::Taken(refusal) => return Ok(Ran::Skipped(refusal)),
        };
        let value = body(&guard);
        match block_on(guard.finish())? {
            Released::AlreadyLost(cause) => Err(Error::lost(self.0.name(), cause)),
            _ => Ok(Ran::Done(value)),
        }
    }
}
