//! A test kit: locks that are paused, cut off, refused or lost when a test says so, and a clock that a
//! test sets ahead. Nothing waits in real time, and no server is needed. Feature `testing`:
//!
//! ```sh
//! cargo add --dev lockfast --features testing
//! ```
//!
//! Code that takes a [`Locker`] is given one of a [`TestKit`]. Here it stops its work when it loses the
//! lock, and the test sees to the loss:
//!
//! ```
//! use lockfast::{Locker, Result, testing::TestKit};
//!
//! async fn work(locker: &Locker) -> Result<String> {
//!     let guard = locker.lock("job").await?;
//!     tokio::select! {
//!         cause = guard.lost() => Ok(format!("stopped: {cause}")),
//!         () = std::future::pending() => Ok("done".into()), // the work
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! // In an `async` test that returns `lockfast::Result<()>`:
//! let kit = TestKit::new()?;
//! let locker = kit.locker().await?;
//! let lose = async {
//!     kit.until_held("job").await?; // no sleep: it waits for the code under test
//!     kit.lose("job")
//! };
//! let (said, lost) = tokio::join!(work(&locker), lose);
//! lost?;
//! assert!(said?.starts_with("stopped: "));
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//! | call | what the code under test meets |
//! |---|---|
//! | [`TestKit::lose`], [`TestKit::lose_with`] | the lease is lost, with this cause |
//! | [`TestKit::advance`] | so much time has passed at once, as on a machine that slept |
//! | [`TestKit::pause`] | no answer: requests hang |
//! | [`TestKit::cut`] | [`ErrorKind::Unreachable`], also for those who wait |
//! | [`TestKit::refuse`] | [`ErrorKind::Permission`] |
//! | [`TestKit::heal`] | the store serves again |
//! | a second [`TestKit::locker`] | another process: what it holds is taken |
//!
//! The store behind it is `memory:`, and what happens to leases is decided by the same code as in
//! production. A test that ends while the store is cut off takes a second longer: the last locker
//! waits for what it cannot give back.
//!
//! # Time
//! The leases of a kit go by the clock of that kit, which runs as the machine's does and is set ahead by
//! [`TestKit::advance`]. Tests that run beside each other do not disturb each other.
//!
//! The paused time of tokio (`start_paused`, `tokio::time::advance`) does not move leases: they are kept
//! by threads of their own, which do not wait for your executor. It does no harm to leases either, but a
//! timeout of yours around a call to a lock would run out at once, because tokio skips the time in which
//! your runtime has nothing to do. Use it for your own timers only, and the kit for leases.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_backend_embedded::TestMemory;
use lockfast_core::flaky::{Fault, FaultSwitch, Flaky};
use lockfast_core::time::Clock;
use lockfast_core::{
    Backend, ClientId, ConnectContext, Error, ErrorKind, Label, LockName, LockView, LossCause,
    LossReporter, Query, Result,
};

use crate::lease::keeper::Keeper;
use crate::{Locker, LockerBuilder, blocking};

/// How long a test waits for what has to happen, in real time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store in memory that does what a test says. Cheap to clone; all clones are the same store.
///
/// Names are those in the store: with the prefix that a locker was connected with.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{ErrorKind, LossCause, testing::TestKit};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let kit = TestKit::new()?;
/// let (ours, theirs) = (kit.locker().await?, kit.locker().await?); // two processes
/// let guard = ours.mutex("job")?.ttl(Duration::from_secs(30)).acquire().await?;
/// assert!(!theirs.mutex("job")?.try_acquire().await?.is_acquired());
///
/// kit.advance(Duration::from_secs(30)); // takes no time
/// assert_eq!(guard.lost().await, LossCause::Expired { last_failure: None });
/// let next = theirs.lock("job").await?;
/// assert!(next.fence().get() > guard.fence().get());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestKit {
    memory: TestMemory,
    /// A connection that no fault concerns.
    bare: Arc<dyn Backend>,
    switch: FaultSwitch,
    clock: Clock,
}

impl TestKit {
    /// A kit with an empty store. See [`TestKit`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the process has too many files or threads.
    pub fn new() -> Result<Self> {
        let clock = Clock::settable();
        let memory = TestMemory::new(clock.clone())?;
        let bare = memory.connect(ConnectContext {
            runtime: Keeper::of_this_process()?.runtime().clone(),
            client: ClientId::random()?,
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        });
        Ok(Self { memory, bare, switch: FaultSwitch::default(), clock })
    }

    /// A connection to the store, as [`Locker::connect`] makes one. Each is like another process.
    /// See [`TestKit`] for an example.
    ///
    /// # Cancel safety
    /// Safe: a connection that was not handed out is closed.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the process has too many threads.
    pub async fn locker(&self) -> Result<Locker> {
        self.connect(Locker::builder()).await
    }

    /// A connection with choices, as [`LockerBuilder::connect`] makes one.
    ///
    /// ```
    /// use lockfast::{Locker, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let locker = kit.connect(Locker::builder().prefix("billing/")).await?;
    /// let guard = locker.lock("report").await?;
    /// kit.lose("billing/report")?;
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`TestKit::locker`].
    ///
    /// # Errors
    /// As [`LockerBuilder::connect`].
    pub async fn connect(&self, mut builder: LockerBuilder) -> Result<Locker> {
        builder.clock = self.clock.clone();
        let (memory, switch) = (self.memory.clone(), self.switch.clone());
        let connect = |context: ConnectContext| -> lockfast_core::BoxFuture<'static, _> {
            let timers = context.runtime.clone();
            let store: Arc<dyn Backend> =
                Arc::new(Flaky::new(memory.connect(context), switch, timers));
            Box::pin(async move { Ok(store) })
        };
        builder.connect_with(connect).await
    }

    /// A connection for code without an executor.
    ///
    /// ```
    /// use lockfast::testing::TestKit;
    ///
    /// # fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let locker = kit.blocking_locker()?;
    /// let guard = locker.lock("job")?;
    /// kit.lose("job")?;
    /// assert!(guard.check().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TestKit::locker`], and [`ErrorKind::BlockingInAsync`].
    pub fn blocking_locker(&self) -> Result<blocking::Locker> {
        blocking::Locker::of(self.locker())
    }

    /// Waits until somebody has the lock, for ten seconds at most; who has it. A test that goes on only
    /// then need not sleep. See [the module](self) for an example.
    ///
    /// ```
    /// use lockfast::testing::TestKit;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let locker = kit.locker().await?;
    /// let job = tokio::spawn(async move { locker.lock("job").await });
    /// let seen = kit.until_held("job").await?;
    /// let guard = job.await.expect("no panic")?;
    /// assert_eq!(seen.holders[0].fence, Some(guard.fence()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::NotHeld`] when nobody has it by then.
    pub async fn until_held(&self, name: impl AsRef<str>) -> Result<LockView> {
        let name = LockName::new(name)?;
        let alarm = Keeper::of_this_process()?.sleep(PATIENCE);
        let (mut alarm, mut seen) = (pin!(alarm), pin!(self.see_held(&name)));
        poll_fn(|context| {
            if let Poll::Ready(view) = seen.as_mut().poll(context) {
                return Poll::Ready(view);
            }
            alarm.as_mut().poll(context).map(|()| {
                let message = format!("nobody has taken it within {PATIENCE:?}");
                Err(Error::new(ErrorKind::NotHeld, message).with_lock(&name))
            })
        })
        .await
    }

    async fn see_held(&self, name: &LockName) -> Result<LockView> {
        let mut events = self.bare.watch().await?;
        loop {
            let views = self.bare.inspect(Query::Name(name.clone())).await?;
            if let Some(view) = views.into_iter().find(|view| !view.holders.is_empty()) {
                return Ok(view);
            }
            events.next().await;
        }
    }

    /// Takes the lock away from all who have it: they are told that an operator did. For another cause
    /// see [`TestKit::lose_with`]. They are told at once, also while the store is cut off.
    ///
    /// ```
    /// use lockfast::{LossCause, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let guard = kit.locker().await?.lock("job").await?;
    /// kit.lose("job")?;
    /// assert_eq!(guard.lost().await, LossCause::Revoked { reason: "the test kit took it".into() });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::NotHeld`] when nobody has it.
    pub fn lose(&self, name: impl AsRef<str>) -> Result<()> {
        self.lose_with(name, LossCause::Revoked { reason: "the test kit took it".into() })
    }

    /// The same with this cause.
    ///
    /// ```
    /// use lockfast::{LossCause, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let guard = kit.locker().await?.lock("job").await?;
    /// let cause = LossCause::Taken { by: Some("worker 2".into()) };
    /// kit.lose_with("job", cause.clone())?;
    /// assert_eq!(guard.check().unwrap_err().loss(), Some(&cause));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TestKit::lose`].
    pub fn lose_with(&self, name: impl AsRef<str>, cause: LossCause) -> Result<()> {
        let name = LockName::new(name)?;
        if self.memory.lose(&name, &cause) {
            return Ok(());
        }
        let message = "nobody has it; wait with until_held before it is lost";
        Err(Error::new(ErrorKind::NotHeld, message).with_lock(&name))
    }

    /// Lets so much time pass at once, for leases, waits and time limits of this kit, as on a machine that
    /// slept: nothing is renewed in between, so what has less time left is lost, also when the store
    /// serves. See [`TestKit`] for an example.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Lets requests hang, and their answers, until [`TestKit::heal`]. Leases end at their deadlines.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{ErrorKind, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let job = kit.locker().await?.mutex("job")?;
    /// kit.pause();
    /// let (taken, ()) = tokio::join!(job.acquire(), async { kit.heal() });
    /// taken?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause(&self) {
        self.switch.set_all(Fault::Pause);
    }

    /// Cuts the store off until [`TestKit::heal`]: requests fail, and so do those that wait. Leases
    /// cannot be renewed and end at their deadlines.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{ErrorKind, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let locker = kit.locker().await?;
    /// let guard = locker.lock("job").await?;
    /// kit.cut();
    /// let error = locker.mutex("other")?.try_acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unreachable);
    /// assert!(guard.is_held()); // until its deadline
    /// kit.heal();
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cut(&self) {
        self.switch.set_all(Fault::Cut);
    }

    /// Refuses all requests until [`TestKit::heal`], as a server does when rights are missing.
    ///
    /// ```
    /// use lockfast::{ErrorKind, testing::TestKit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let kit = TestKit::new()?;
    /// let locker = kit.locker().await?;
    /// kit.refuse();
    /// assert_eq!(locker.lock("job").await.unwrap_err().kind(), ErrorKind::Permission);
    /// kit.heal();
    /// locker.lock("job").await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse(&self) {
        self.switch.set_all(Fault::Refuse);
    }

    /// Ends [`TestKit::pause`], [`TestKit::cut`] and [`TestKit::refuse`]: the store serves again, and what
    /// was paused goes on. What was lost stays lost. See [`TestKit::refuse`] for an example.
    #[doc(alias = "resume")]
    pub fn heal(&self) {
        self.switch.set_all(Fault::Pass);
    }
}

impl fmt::Debug for TestKit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestKit").field("clock", &self.clock).finish_non_exhaustive()
    }
}
