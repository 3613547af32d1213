//! A job of which one run is enough for all machines: whoever comes first runs it, the others skip
//! it.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockfast_core::view::exact;
use lockfast_core::{
    BoxFuture, Error, ErrorKind, Feature, Fence, HolderId, LockName, LossCause, Mode, Moment,
    Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result, Wait, jitter,
};

use super::attempt::Attempt;
use crate::lease::acquire::Target;
use crate::lease::handle::{Lease, Released};
use crate::lease::policy::{Options, Policy};
use crate::lease::state::Phase;
use crate::lease::undo;
use crate::store::Store;

/// How soon a store that did not answer at the end of a job is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A scheduled job that the whole fleet starts and one of them runs.
///
/// - **`at_most`** is the length of its lease. Nothing renews it: when the process dies, the lock is
///   free by then, and a job that takes longer is stopped just before. Whoever needs longer after all
///   says so, with [`Lease::extend`].
/// - **`at_least`** keeps the lock for so long after the start of the job, also when the job and its
///   process have ended before, so that a machine whose clock is behind does not run it once more.
///   It is zero unless set.
///
/// Both are counted by the store. Nobody waits: who finds it taken skips it, and is told who has it
/// and until when.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Locker, Ran};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?; // `embedded:` for all processes of a machine
/// let report = locker
///     .once("nightly-report", Duration::from_secs(600))?
///     .at_least(Duration::from_secs(60));
///
/// let first = report.run(|lease| async move { format!("fence {}", lease.fence()) }).await?;
/// assert!(matches!(first, Ran::Done(pages) if pages.starts_with("fence")));
///
/// match report.run(|_| async { "not again within a minute" }).await? {
///     Ran::Done(_) => unreachable!(),
///     Ran::Skipped(refusal) => println!("{} was skipped: {refusal}", report.name()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Once(Arc<Job>);

/// What is known of a job: shared with its guards, which end it.
#[derive(Clone, Debug)]
struct Job {
    target: Target,
    options: Options,
    at_least: Duration,
    /// Why the options are of no use here, if so; then the target has those before.
    flaw: Option<Error>,
}

/// What came of [`Once::run`].
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Locker, Ran};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let job = Locker::connect("memory:").await?.once("nightly-report", Duration::from_secs(600))?;
/// match job.run(|_| async { 7 }).await? {
///     Ran::Done(pages) => println!("{pages} pages"),
///     Ran::Skipped(refusal) => println!("skipped: {refusal}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Ran<T> {
    /// The job ran to its end here.
    Done(T),
    /// Somebody else runs it, or has run it just now.
    Skipped(Refusal),
}

impl Once {
    pub(crate) fn new(
        store: Arc<Store>,
        name: LockName,
        options: Options,
        at_most: Duration,
    ) -> Result<Self> {
        let policy = policy_for(&options, at_most, &store).map_err(|it| it.with_lock(&name))?;
        let target = Target { store, name, mode: Mode::Exclusive, policy };
        Ok(Self(Arc::new(Job { target, options, at_least: Duration::ZERO, flaw: None })))
    }

    /// Keeps the lock for at least so long after the start of the job. No longer than `at_most`, and not
    /// on a store whose leases end with the process.
    ///
    /// What is set here and below does not fail: a value that is not possible is refused by the next
    /// call that can fail, before anything is touched. See [`Once`] for an example.
    #[must_use]
    pub fn at_least(mut self, at_least: Duration) -> Self {
        Arc::make_mut(&mut self.0).at_least = at_least;
        self
    }

    /// As [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        let options = self.0.options.clone().lock_delay(lock_delay);
        self.with_options(options)
    }

    /// As [`Mutex::floor`](crate::Mutex::floor).
    #[must_use]
    pub fn floor(self, floor: Fence) -> Self {
        let options = self.0.options.clone().floor(floor);
        self.with_options(options)
    }

    /// As [`Mutex::with_options`](crate::Mutex::with_options). The lease is `at_most` long and nobody
    /// waits, whatever they say.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        let job = Arc::make_mut(&mut self.0);
        job.flaw = match policy_for(&options, job.at_most(), &job.target.store) {
            Ok(policy) => {
                job.target.policy = policy;
                None
            }
            Err(error) => Some(error.with_lock(&job.target.name)),
        };
        job.options = options;
        self
    }

    /// The name. See [`Once`] for an example.
    pub fn name(&self) -> &LockName {
        &self.0.target.name
    }

    /// How long the lock is held at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let job = Locker::connect("memory:").await?.once("nightly-report", Duration::from_secs(600))?;
    /// println!("whoever runs it is stopped after {:?}", job.at_most());
    /// # assert_eq!(job.at_most(), Duration::from_secs(600));
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_most(&self) -> Duration {
        self.0.at_most()
    }

    /// Takes the lock if it is free: for a job that [`Once::run`] cannot run.
    /// See [`OnceGuard`] for an example.
    ///
    /// # Cancel safety
    /// Safe: when dropped at any point, the keeper gives back what may have been granted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for an `at_least` above `at_most`, [`ErrorKind::Unsupported`] for
    /// one on a store whose leases end with the process; what [`Options::check`] says of the options;
    /// what the store meets.
    pub async fn start(&self) -> Result<Attempt<OnceGuard>> {
        let job = &self.0;
        job.check()?;
        // Where a lease can outlive its process it does: a job that was killed has run, too.
        let detached = job.require_detached().is_ok();
        Ok(match job.target.acquire(Wait::No, detached).await? {
            // Not before the store began to count, so that it keeps the lock for long enough.
            Ok(cell) => {
                let started = job.target.store.now();
                // Nothing renews it, so no renewal tells that it was taken away.
                let watch = job.target.store.lookout.watch(&cell, started);
                let (lease, job) = (Lease(cell), Arc::clone(job));
                Attempt::Acquired(OnceGuard { lease, job, started, watch, is_open: true })
            }
            Err(refusal) => Attempt::Taken(refusal),
        })
    }

    /// Runs the job, unless somebody else does or has just done so. When the lease is lost or
    /// `at_most` is over, `body` is dropped where it stands. See [`Once`] for an example.
    ///
    /// # Cancel safety
    /// When dropped, `body` is dropped, and the lock is kept until `at_least` is over.
    ///
    /// # Errors
    /// As [`Once::start`]; [`ErrorKind::Lost`] when the lease was lost, or `at_most` was over,
    /// before `body` ended.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<Ran<T>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = match self.start().await? {
            Attempt::Acquired(guard) => guard,
            Attempt::Taken(refusal) => return Ok(Ran::Skipped(refusal)),
        };
        let lease = guard.lease.clone();
        let finished = lease.unless_lost(body(lease.clone())).await;
        let released = guard.finish().await?;
        let value = finished?;
        match released {
            Released::AlreadyLost(cause) => Err(Error::lost(self.name(), cause)),
            _ => Ok(Ran::Done(value)),
        }
    }

    /// Ends a job that another process began at `started`: for whoever looks after one that died.
    /// The lock is free at once, or when `at_least` is over. That nobody has
    /// [changed](Lease::extend) how long its lease lasts is taken for granted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Locker, Released};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let job = locker.once("nightly-report", Duration::from_secs(600))?;
    /// let guard = job.start().await?.acquired().expect("nobody else runs it");
    /// let (holder, started) = (guard.holder(), guard.started()); // told to whoever looks after it
    /// std::mem::forget(guard); // as if it had been killed
    /// assert!(matches!(job.finish_detached(holder, started).await?, Released::Released));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// As [`Once::start`], and [`ErrorKind::Unsupported`] on a store whose leases end with the process.
    /// Then the lock is free when `at_most` is over.
    pub async fn finish_detached(&self, holder: HolderId, started: Moment) -> Result<Released> {
        let job = &self.0;
        job.check()?;
        job.require_detached()?;
        let lock_delay = job.target.policy.lock_delay;
        let until = started + job.at_most() + lock_delay;
        let is_as_begun = lock_delay.is_zero();
        job.give_back(&Ending { holder, started, is_as_begun, until }).await
    }
}

impl Job {
    fn name(&self) -> &LockName {
        &self.target.name
    }

    fn at_most(&self) -> Duration {
        self.target.policy.ttl
    }

    /// Refuses options that are of no use.
    fn check(&self) -> Result<()> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        let (at_least, at_most) = (self.at_least, self.at_most());
        if at_least > at_most {
            let message = format!(
                "at_least {} is longer than at_most {}, after which the lock is free in any case",
                exact(at_least),
                exact(at_most)
            );
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(self.name()));
        }
        if at_least.is_zero() { Ok(()) } else { self.require_detached() }
    }

    fn require_detached(&self) -> Result<()> {
        let profile = self.target.store.backend.profile();
        profile.require(Feature::Detached).map_err(|error| error.with_lock(self.name()))
    }

    /// Asks the store once to let go of the lock, now or when `at_least` is over.
    async fn give_back(&self, ending: &Ending) -> Result<Released> {
        let Target { store, name, policy, .. } = &self.target;
        let (name, limit) = (name.clone(), policy.request_timeout);
        let holder = ending.holder;
        let elapsed = store.now().since(ending.started);
        let ttl = match self.rest(elapsed, ending.is_as_begun) {
            Rest::None => {
                let request = ReleaseRequest { name, holder };
                let outcome = store.within(limit, store.backend.release(request)).await;
                store.telemetry.released(self.name(), &outcome);
                return Ok(match outcome? {
                    ReleaseOutcome::Released => Released::Released,
                    ReleaseOutcome::NotHeld => Released::AlreadyLost(LossCause::Forgotten),
                });
            }
            Rest::Whole(expires_in) => return Ok(Released::Kept { expires_in }),
            Rest::Short(ttl) => ttl,
        };
        let request = RenewRequest { name, holder, ttl, lock_delay: Duration::ZERO };
        match store.within(limit, store.backend.renew(vec![request])).await?.pop() {
            Some(RenewOutcome::Renewed) => Ok(Released::Kept { expires_in: ttl }),
            Some(RenewOutcome::Lost(cause)) => Ok(Released::AlreadyLost(cause)),
            Some(RenewOutcome::Unanswered(error)) => Err(error.with_lock(self.name())),
            None => Err(Error::new(ErrorKind::Internal, "the store answered no renewal")),
        }
    }

    /// What has to remain of the lease when the job ends so long after its start.
    fn rest(&self, elapsed: Duration, is_as_begun: bool) -> Rest {
        let Policy { ttl: at_most, drift, .. } = self.target.policy;
        // This clock may be fast; the store must not let go too early by its own.
        let surely = elapsed.mul_f64(1.0 - drift);
        let Some(rest) = self.at_least.checked_sub(surely).filter(|rest| !rest.is_zero()) else {
            return Rest::None;
        };
        let fitting = self.target.store.backend.profile().ttl.fit(rest);
        let whole = at_most.saturating_sub(elapsed);
        if fitting < whole || !is_as_begun { Rest::Short(fitting) } else { Rest::Whole(whole) }
    }

    /// Goes on to let go in the background, until the store has answered or the lease has ended by
    /// itself.
    fn finish_in_background(self: Arc<Self>, ending: Ending, call: FinishCall) {
        let store = Arc::clone(&self.target.store);
        undo::work(&store, async move {
            let mut is_done = call.await.is_ok();
            let mut pause = PAUSE_MIN;
            while !is_done && !ending.until.has_passed(self.target.store.now()) {
                self.target.store.sleep(pause.mul_f64(0.5 + jitter())).await;
                pause = (pause * 2).min(PAUSE_MAX);
                is_done = self.give_back(&ending).await.is_ok();
            }
        });
    }
}

type FinishCall = BoxFuture<'static, Result<Released>>;

/// The end of a job that its caller waits for. When the caller stops waiting, or the store does not
/// answer, it goes on in the background.
struct Finish {
    rest: Option<(Arc<Job>, Ending)>,
    call: Option<FinishCall>,
}

impl Finish {
    fn new(job: Arc<Job>, ending: Ending) -> Self {
        let rest = Some((Arc::clone(&job), ending.clone()));
        let call: FinishCall = Box::pin(async move { job.give_back(&ending).await });
        Self { rest, call: Some(call) }
    }

    fn go_on(&mut self, call: FinishCall) {
        if let Some((job, ending)) = self.rest.take() {
            job.finish_in_background(ending, call);
        }
    }
}

impl Future for Finish {
    type Output = Result<Released>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.call.as_mut() else { return Poll::Pending };
        let Poll::Ready(outcome) = call.as_mut().poll(context) else { return Poll::Pending };
        self.call = None;
        if let Err(error) = &outcome {
            let failed = Err(error.clone());
            self.go_on(Box::pin(async { failed }));
        }
        Poll::Ready(outcome)
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.go_on(call);
        }
    }
}

fn policy_for(options: &Options, at_most: Duration, store: &Store) -> Result<Policy> {
    Policy::for_once(options, at_most, store.backend.profile()).map_err(|error| {
        let message = format!("at_most is the length of its lease, but {}", error.message());
        match error.kind() {
            ErrorKind::InvalidTtl => error.with_message(message),
            _ => error,
        }
    })
}

/// A lease that ends with its job.
#[derive(Clone)]
struct Ending {
    holder: HolderId,
    started: Moment,
    /// Whether the store keeps it for `at_most` from its start on, neither shorter nor longer.
    is_as_begun: bool,
    /// When the store lets go of it by itself.
    until: Moment,
}

/// What has to remain of a lease.
#[derive(Debug, PartialEq)]
enum Rest {
    None,
    /// This much from now on.
    Short(Duration),
    /// All of it, which is this much.
    Whole(Duration),
}

/// A job that runs here. Dropping it ends it as [`OnceGuard::finish`] does, in the background.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let job = Locker::connect("memory:").await?.once("nightly-report", Duration::from_secs(600))?;
/// if let Some(guard) = job.start().await?.acquired() {
///     println!("running with fence {}", guard.check()?.fence);
///     guard.finish().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the job counts as ended as soon as the guard is dropped"]
#[derive(Debug)]
pub struct OnceGuard {
    lease: Lease,
    job: Arc<Job>,
    /// Not before the store began to count.
    started: Moment,
    /// Its number with those who look after it.
    watch: u64,
    is_open: bool,
}

impl OnceGuard {
    /// The lease, for handing it to others.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let job = Locker::connect("memory:").await?.once("nightly-report", Duration::from_secs(600))?;
    /// if let Some(guard) = job.start().await?.acquired() {
    ///     let lease = guard.lease().clone();
    ///     let pages = tokio::spawn(async move { lease.check().map(|checked| checked.fence) });
    ///     println!("written with fence {}", pages.await.expect("no panic")?);
    ///     guard.finish().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// When the job started, for [`Once::finish_detached`].
    pub fn started(&self) -> Moment {
        self.started
    }

    /// Ends the job: the lock is free at once, or when `at_least` is over.
    /// See [`OnceGuard`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, the keeper finishes it.
    ///
    /// # Errors
    /// [`ErrorKind::ForkedProcess`] in a forked child; the parent still has the lock.
    pub async fn finish(mut self) -> Result<Released> {
        self.lease.0.check_process()?;
        let (loss, until, finish) = self.close();
        if let Some(cause) = loss {
            return Ok(Released::AlreadyLost(cause));
        }
        Ok(finish.await.unwrap_or_else(|error| Released::Unknown {
            expires_in: until.remaining(self.lease.0.store.now()),
            error,
        }))
    }

    /// Ends the lease here; what lets go of it is begun by whoever waits for it, or by dropping it. Also
    /// when it is lost: the deadline is a little before the store's, and `at_least` may end with that.
    fn close(&mut self) -> (Option<LossCause>, Moment, Finish) {
        self.is_open = false;
        let cell = &self.lease.0;
        let loss = match &cell.look().phase {
            Phase::Lost(cause) => Some(cause.clone()),
            _ => None,
        };
        let ending = self.ending();
        let until = ending.until;
        cell.end(cell.store.now());
        cell.store.lookout.forget(self.watch);
        (loss, until, Finish::new(Arc::clone(&self.job), ending))
    }
}

impl OnceGuard {
    /// How the lease is to end, which somebody may have extended or shortened.
    fn ending(&self) -> Ending {
        let (cell, at_most) = (&self.lease.0, self.job.at_most());
        let state = cell.state();
        let lock_delay = state.policy.lock_delay;
        let (begun, now) = (self.started + at_most, state.deadline);
        let until = if begun.has_passed(now) { now } else { begun } + lock_delay;
        let is_as_begun = state.policy.ttl == at_most && lock_delay.is_zero();
        Ending { holder: cell.holder, started: self.started, is_as_begun, until }
    }
}

impl Deref for OnceGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for OnceGuard {
    fn drop(&mut self) {
        if self.is_open && self.lease.0.check_process().is_ok() {
            drop(self.close());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_remains_is_never_longer_than_the_lease() {
        let ms = Duration::from_millis;
        let locker = crate::Locker::connect("memory:").await.unwrap();
        let job = |at_least| locker.once("a", ms(10_000)).unwrap().at_least(at_least).0;
        assert_eq!(job(ms(0)).rest(ms(0), true), Rest::None);
        // A hundredth of what has passed may be this clock's fault.
        assert_eq!(job(ms(4_000)).rest(ms(1_000), true), Rest::Short(ms(3_010)));
        assert_eq!(
            job(ms(4_000)).rest(ms(4_010), true),
            Rest::Short(ms(100)),
            "the shortest lease"
        );
        assert_eq!(job(ms(4_000)).rest(ms(4_100), true), Rest::None);
        assert_eq!(job(ms(10_000)).rest(ms(1_000), true), Rest::Whole(ms(9_000)));
        assert_eq!(job(ms(9_950)).rest(ms(9_945), true), Rest::Whole(ms(55)));
        assert_eq!(job(ms(10_000)).rest(ms(11_000), true), Rest::None);
        // Somebody has changed how long it lasts, so the store is told.
        assert_eq!(job(ms(10_000)).rest(ms(1_000), false), Rest::Short(ms(9_010)));
        assert_eq!(job(ms(0)).rest(ms(1_000), false), Rest::None);
    }

    #[tokio::test]
    async fn times_that_do_not_go_together_are_refused() {
        let second = Duration::from_secs(1);
        let locker = crate::Locker::connect("memory:").await.unwrap();
        let job = locker.once("a", 2 * second).unwrap().at_least(3 * second);
        let error = job.start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains("at_least 3s is longer than at_most 2s"), "{error}");
        for at_most in [Duration::ZERO, 25 * 3600 * second] {
            let error = locker.once("a", at_most).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidTtl);
            assert!(error.to_string().contains("at_most is the length"), "{error}");
        }
    }
}
