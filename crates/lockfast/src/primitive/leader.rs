//! One of many leads: whoever has the lock. Those who want to lead stand in its line; who leads is
//! told when that ends.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{Error, ErrorKind, Fence, LockName, LossCause, Result, Retry};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::any_lock::AnyLock;
use super::observer::Observer;
use crate::lease::handle::{Guard, Lease, Released};
use crate::lease::policy::Options;
use crate::lease::undo;

/// How long a candidate pauses when the store has failed for so long that an acquisition gave up.
const PAUSE: Duration = Duration::from_secs(1);

/// An election. Cheap to clone; it wants nothing until somebody campaigns.
///
/// ```
/// use lockfast::{LeaderEvent, Leadership, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?; // `embedded:` for all processes of a machine
/// let leader = locker.leader("scheduler")?;
/// let mut campaign = leader.campaign()?;
/// println!("standing for {}", leader.name());
///
/// if let LeaderEvent::Elected { term, lease } = campaign.next().await? {
///     lease.check()?; // just before each side effect, which carries the term
///     println!("leading with term {term}");
/// }
/// let mut observer = leader.observe().await?;
/// assert!(matches!(observer.next().await?, Leadership::Led(_)));
///
/// campaign.resign().await?; // the next in line leads at once
/// assert!(matches!(observer.next().await?, Leadership::Vacant));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leader {
    lock: AnyLock,
}

/// What a candidate is told.
///
/// ```
/// use lockfast::{LeaderEvent, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let mut campaign = locker.leader("scheduler")?.campaign()?;
/// loop {
///     match campaign.next().await? {
///         LeaderEvent::Elected { term, lease } => {
///             println!("leading with term {term} for {:?} at least", lease.remaining());
///             locker.revoke("scheduler", "maintenance").await?; // by an operator, say
///         }
///         LeaderEvent::Deposed { term, why } => {
///             println!("term {term} is over: {why}"); // stop what a leader does
///             break;
///         }
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LeaderEvent {
    /// It leads.
    Elected {
        /// The fence of this grant: higher than that of every earlier term.
        term: Fence,
        /// What is known of the term: whether it is still good, and when it ends.
        lease: Lease,
    },
    /// It leads no more, and has to stop what a leader does.
    Deposed {
        /// Which term ended.
        term: Fence,
        /// Why.
        why: LossCause,
    },
}

impl Leader {
    pub(crate) fn new(lock: AnyLock) -> Self {
        Self { lock: lock.wait_forever() }
    }

    /// As [`Mutex::ttl`](crate::Mutex::ttl): how long a leader that hangs keeps others from leading.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self::new(self.lock.ttl(ttl))
    }

    /// As [`Mutex::lock_delay`](crate::Mutex::lock_delay): how long a leader that was deposed has to
    /// stop.
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self::new(self.lock.lock_delay(lock_delay))
    }

    /// As [`Mutex::floor`](crate::Mutex::floor): the highest term that the guarded thing has seen.
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        Self::new(self.lock.floor(floor))
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options). A campaign waits without a limit,
    /// whatever they say.
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self::new(self.lock.with_options(options))
    }

    /// The name. See [`Leader`] for an example.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// Stands for election, until [`Campaign::resign`] or until the campaign is dropped.
    /// See [`Leader`] for an example.
    ///
    /// # Errors
    /// What [`Options::check`] says of the options; [`ErrorKind::ForkedProcess`] in a forked child.
    pub fn campaign(&self) -> Result<Campaign> {
        self.lock.check()?;
        let store = self.lock.store();
        store.check_process().map_err(|error| error.with_lock(self.name()))?;
        let (told, events) = mpsc::unbounded_channel();
        let (ready, readiness) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let candidate = Candidate { lock: self.lock.clone(), told, readiness, stop: stop.clone() };
        let task = store.keeper.runtime().spawn(candidate.stand());
        let (leader, over) = (self.clone(), None);
        Ok(Campaign { leader, events, ready, stop, task: Some(task), is_deposed: false, over })
    }

    /// Looks at who leads, without standing for election. See [`Observer`] for an example.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// What [`Options::check`] says of the options; [`ErrorKind::Unsupported`] on a store that tells
    /// nobody what happens in it; when the store cannot tell.
    pub async fn observe(&self) -> Result<Observer> {
        self.lock.check()?;
        Observer::open(Arc::clone(self.lock.store()), self.name().clone()).await
    }
}

/// A campaign: the place of one candidate in the line of an election, and what it is told. It goes
/// on in the background, whether or not anybody listens; first come, first served where the store
/// keeps an order.
///
/// Nothing is dropped or put together: each term is told as elected and as deposed, in this order.
/// After a deposal the candidate stands for election again when the next event is asked for: whoever
/// asks has stopped leading. Until then its last lease is not given back either, so that a
/// [lock-delay](Options::lock_delay) keeps the next leader out while this one stops.
///
/// Dropping it is a resignation in the background.
///
/// ```
/// use lockfast::{LeaderEvent, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let mut campaign = Locker::connect("memory:").await?.leader("scheduler")?.campaign()?;
/// while let LeaderEvent::Elected { term, lease } = campaign.next().await? {
///     println!("leading with term {term} for {:?}", lease.remaining());
///     break; // or lead until it is lost, and ask for the next event
/// }
/// campaign.resign().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a campaign is a resignation"]
#[derive(Debug)]
pub struct Campaign {
    leader: Leader,
    events: mpsc::UnboundedReceiver<Result<LeaderEvent>>,
    ready: mpsc::UnboundedSender<()>,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<Option<Released>>>>,
    /// Whether the last event was a deposal.
    is_deposed: bool,
    /// Why there will be no more events.
    over: Option<Error>,
}

impl Campaign {
    /// The next event. After a deposal, asking for it says that leading has stopped.
    /// See [`Campaign`] for an example.
    ///
    /// # Cancel safety
    /// Safe: no event is lost, and the place in the line is kept.
    ///
    /// # Errors
    /// What ends the campaign, as a right that is missing does. A store that cannot be reached does
    /// not: it is asked again until it can.
    pub async fn next(&mut self) -> Result<LeaderEvent> {
        let name = self.leader.name();
        self.leader.lock.store().check_process().map_err(|error| error.with_lock(name))?;
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        if std::mem::take(&mut self.is_deposed) {
            // When nobody hears it, there is an error to be read.
            let _ = self.ready.send(());
        }
        let ended = || Error::new(ErrorKind::Internal, "the keeper's runtime has ended");
        let told = self.events.recv().await.unwrap_or_else(|| Err(ended().with_lock(name)));
        match &told {
            Ok(event) => self.is_deposed = matches!(event, LeaderEvent::Deposed { .. }),
            Err(error) => self.over = Some(error.clone()),
        }
        told
    }

    /// Leads no more and leaves the line; what became of the term if it was leading. The next in line
    /// leads as soon as the store has let go. Stop what a leader does before.
    ///
    /// Whoever campaigns again after that stands at the end of the line. Where a store keeps no
    /// order, it may be elected before those who waited.
    ///
    /// ```
    /// use lockfast::{LeaderEvent, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let leader = Locker::connect("memory:").await?.leader("scheduler")?;
    /// let mut first = leader.campaign()?;
    /// first.next().await?; // it is elected
    /// let mut second = leader.campaign()?;
    /// first.resign().await?;
    /// assert!(matches!(second.next().await?, LeaderEvent::Elected { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, the keeper finishes it.
    ///
    /// # Errors
    /// [`ErrorKind::ForkedProcess`] in a forked child; the parent goes on.
    pub async fn resign(mut self) -> Result<Option<Released>> {
        self.leader.lock.store().check_process()?;
        self.stop.cancel();
        let Some(task) = &mut self.task else { return Ok(None) };
        let ended = task.await;
        self.task = None;
        ended.unwrap_or_else(|error| {
            let error = Error::new(ErrorKind::Internal, "the campaign failed").with_source(error);
            Err(error.with_lock(self.leader.name()))
        })
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let store = self.leader.lock.store();
        if let Some(task) = self.task.take()
            && store.check_process().is_ok()
        {
            self.stop.cancel();
            // Counted from now on, so that whoever ends the program can wait for it.
            undo::work(store, task);
        }
    }
}

/// The side of a campaign that runs on the keeper's runtime.
struct Candidate {
    lock: AnyLock,
    told: mpsc::UnboundedSender<Result<LeaderEvent>>,
    readiness: mpsc::UnboundedReceiver<()>,
    stop: CancellationToken,
}

impl Candidate {
    async fn stand(mut self) -> Result<Option<Released>> {
        loop {
            let Some(guard) = self.be_elected().await else { return Ok(None) };
            let (term, lease) = (guard.fence(), guard.lease().clone());
            self.tell(Ok(LeaderEvent::Elected { term, lease }));
            if let Some(why) = self.stop.run_until_cancelled(guard.lost()).await {
                self.tell(Ok(LeaderEvent::Deposed { term, why }));
                let _ = self.stop.run_until_cancelled(self.readiness.recv()).await;
            }
            let released = guard.release().await?;
            if self.stop.is_cancelled() {
                return Ok(Some(released));
            }
        }
    }

    /// Waits its turn; `None` when the campaign is over.
    async fn be_elected(&self) -> Option<Guard> {
        loop {
            match self.stop.run_until_cancelled(self.lock.acquire_full()).await? {
                Ok(guard) => return Some(guard),
                Err(error) if error.retry() == Retry::Later || error.kind() == ErrorKind::Lost => {}
                Err(error) => {
                    self.tell(Err(error));
                    return None;
                }
            }
            self.stop.run_until_cancelled(self.lock.store().sleep(PAUSE)).await?;
        }
    }

    fn tell(&self, event: Result<LeaderEvent>) {
        // Nobody listens to a campaign that was dropped; it ends at the next step.
        let _ = self.told.send(event);
    }
}
