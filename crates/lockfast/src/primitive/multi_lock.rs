//! Several locks at once: all of them or none, taken in the order of their names, so that two
//! who want the same ones never wait for each other in a circle.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{
    Error, ErrorKind, Fence, FencingToken, LockName, LossCause, Moment, Result, Wait,
};

use super::any_lock::AnyLock;
use super::attempt::Attempt;
use crate::lease::handle::{Guard, Lease, Released};
use crate::lease::policy::Options;

/// Several locks of one connection that are held together: all of them or none. They are taken in the
/// order of their names, whatever order they are given in, so that multi-locks never wait for each
/// other in a circle. One waiting time counts for all together: the shortest that any of them has.
///
/// [`Locker::multi`](crate::Locker::multi) makes one of mutexes, [`MultiLock::new`] one of locks of
/// any mode.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Locker, MultiLock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?;
/// let transfer = locker.multi(["account/7", "account/3"])?.wait(Duration::from_secs(5));
/// let guard = transfer.acquire().await?;
/// for token in guard.tokens() {
///     println!("write to {} with fence {}", token.lock, token.fence); // account/3, account/7
/// }
/// guard.release().await?;
///
/// let catalog = locker.rwlock("catalog")?;
/// let order = MultiLock::new([catalog.reader(), locker.mutex("order/1")?.into()])?;
/// let fences = order.run(|leases| async move { leases.len() }).await?;
/// assert_eq!(fences, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of their names; at least one.
    locks: Vec<AnyLock>,
}

impl MultiLock {
    /// The most locks that can be held together.
    pub const LOCKS_MAX: usize = 256;

    /// Puts locks together. See [`MultiLock`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for none, more than [`MultiLock::LOCKS_MAX`], the same name
    /// twice, or locks of different connections.
    pub fn new(locks: impl IntoIterator<Item = impl Into<AnyLock>>) -> Result<Self> {
        let locks = locks.into_iter().take(Self::LOCKS_MAX + 1).map(Into::into);
        let mut locks: Vec<AnyLock> = locks.collect();
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidConfig, message));
        let Some(first) = locks.first() else {
            return invalid("a multi-lock needs at least one lock".into());
        };
        if locks.len() > Self::LOCKS_MAX {
            return invalid(format!("a multi-lock takes at most {} locks", Self::LOCKS_MAX));
        }
        if locks.iter().any(|lock| !Arc::ptr_eq(lock.store(), first.store())) {
            return invalid(
                "a multi-lock's locks must come from one locker: two stores cannot be kept in step"
                    .into(),
            );
        }
        locks.sort_by(|a, b| a.name().cmp(b.name()));
        if let Some(pair) = locks.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return invalid(format!(
                "{} is in the multi-lock twice",
                quote(pair[0].name().as_str())
            ));
        }
        Ok(Self { locks })
    }

    /// Each with this lease time, as [`Mutex::ttl`](crate::Mutex::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// Waits at most so long for all together, as [`Mutex::wait`](crate::Mutex::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.change(|lock| lock.wait(wait))
    }

    /// As [`Mutex::wait_forever`](crate::Mutex::wait_forever).
    #[must_use]
    pub fn wait_forever(self) -> Self {
        self.change(AnyLock::wait_forever)
    }

    /// Each with this lock-delay, as [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        self.change(|lock| lock.lock_delay(lock_delay))
    }

    /// Each with these options, as [`Mutex::with_options`](crate::Mutex::with_options).
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        self.change(|lock| lock.with_options(options.clone()))
    }

    fn change(self, change: impl FnMut(AnyLock) -> AnyLock) -> Self {
        Self { locks: self.locks.into_iter().map(change).collect() }
    }

    /// The names, in the order in which they are taken.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let transfer = Locker::connect("memory:").await?.multi(["account/7", "account/3"])?;
    /// let names: Vec<&str> = transfer.names().map(|name| name.as_str()).collect();
    /// assert_eq!(names, ["account/3", "account/7"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.locks.iter().map(AnyLock::name)
    }

    /// Takes all of them, and returns when all are held at once. See [`MultiLock`] for an example.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire), for each of them.
    ///
    /// # Errors
    /// As [`Mutex::acquire`](crate::Mutex::acquire), and [`ErrorKind::Lost`] when one was lost while
    /// another was waited for; then none is held.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        let now = self.locks.first().map_or_else(Moment::now, |lock| lock.store().now());
        let waits = self.locks.iter().map(|lock| lock.wait_from(now));
        let shortest = waits.min_by_key(|wait| match wait {
            Wait::No => Duration::ZERO,
            Wait::Until(end) => end.remaining(now),
            Wait::Forever => Duration::MAX,
        });
        self.acquire_until(shortest.unwrap_or(Wait::No)).await
    }

    /// Takes all of them if they are free; otherwise none, and who has the first that is taken.
    ///
    /// ```
    /// use lockfast::{Attempt, Locker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let other = locker.lock("account/7").await?;
    /// match locker.multi(["account/3", "account/7"])?.try_acquire().await? {
    ///     Attempt::Acquired(guard) => println!("transferring with {:?}", guard.fences()),
    ///     Attempt::Taken(refusal) => assert_eq!(refusal.lock.name.as_str(), "account/7"),
    /// }
    /// # other.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    ///
    /// # Errors
    /// As [`MultiLock::acquire`], but never because one is taken.
    pub async fn try_acquire(&self) -> Result<Attempt<MultiGuard>> {
        match self.acquire_until(Wait::No).await {
            Ok(guard) => Ok(Attempt::Acquired(guard)),
            Err(error) => match error.refusal() {
                Some(refusal) => Ok(Attempt::Taken(refusal.clone())),
                None => Err(error),
            },
        }
    }

    async fn acquire_until(&self, wait: Wait) -> Result<MultiGuard> {
        // None is touched when another cannot be asked for.
        self.locks.iter().try_for_each(AnyLock::check)?;
        let mut guards = Vec::with_capacity(self.locks.len());
        for lock in &self.locks {
            guards.push(lock.acquire_until(wait).await?);
        }
        if let Some((_last, earlier)) = guards.split_last() {
            // They may have been lost while the others were waited for.
            earlier.iter().try_for_each(|guard: &Guard| guard.check().map(|_| ()))?;
        }
        Ok(MultiGuard { guards })
    }

    /// Takes all of them, runs `body` under them, gives them back. When one is lost, `body` is dropped
    /// where it stands. See [`MultiLock`] for an example.
    ///
    /// # Cancel safety
    /// When dropped, `body` is dropped and the keeper gives the locks back.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`]; [`ErrorKind::Lost`] when one was lost before `body` ended.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Vec<Lease>) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let finished = {
            let mut body = pin!(body(guard.leases().cloned().collect()));
            let mut lost = pin!(guard.first_lost());
            poll_fn(|context| match lost.as_mut().poll(context) {
                Poll::Ready((name, cause)) => Poll::Ready(Err(Error::lost(&name, cause))),
                Poll::Pending => body.as_mut().poll(context).map(Ok),
            })
            .await
        };
        let released = guard.release().await?;
        let value = finished?;
        for (name, released) in self.names().zip(released) {
            if let Released::AlreadyLost(cause) = released {
                return Err(Error::lost(name, cause));
            }
        }
        Ok(value)
    }
}

/// Several held locks. Dropping it gives all of them back, as [`Guard`] does.
///
/// ```
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let guard = Locker::connect("memory:").await?.multi(["b", "a"])?.acquire().await?;
/// let tokens = guard.check()?; // just before each side effect
/// assert_eq!(tokens[0].lock.as_str(), "a");
/// assert_eq!(guard.fences().len(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The lease of each, in the order of their names.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let guard = Locker::connect("memory:").await?.multi(["b", "a"])?.acquire().await?;
    /// for lease in guard.leases() {
    ///     println!("{} is held for {:?} at least", lease.name(), lease.remaining());
    /// }
    /// # assert_eq!(guard.leases().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.guards.iter().map(Guard::lease)
    }

    /// The fence of each together with its lock, in the order of their names.
    /// See [`MultiLock`] for an example.
    pub fn tokens(&self) -> Vec<FencingToken> {
        self.leases().map(Lease::token).collect()
    }

    /// The fence of each, in the order of their names, without the names: [`MultiGuard::tokens`] has both.
    /// See [`MultiGuard`] for an example.
    pub fn fences(&self) -> Vec<Fence> {
        self.leases().map(Lease::fence).collect()
    }

    /// Whether all are held right now; their tokens, to be sent along with whatever is done.
    /// See [`MultiGuard`] for an example.
    ///
    /// # Errors
    /// As [`Lease::check`], for the first that is not.
    pub fn check(&self) -> Result<Vec<FencingToken>> {
        self.leases().map(|lease| lease.check().map(|_| lease.token())).collect()
    }

    /// Waits for the loss of any of them.
    ///
    /// ```
    /// use lockfast::{Locker, LossCause};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let guard = locker.multi(["account/3", "account/7"])?.acquire().await?;
    /// locker.revoke("account/7", "maintenance").await?; // one of them is enough
    /// assert_eq!(guard.lost().await, LossCause::Revoked { reason: "maintenance".into() });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn lost(&self) -> LossCause {
        self.first_lost().await.1
    }

    /// Waits for the loss of any of them, and says which it is.
    async fn first_lost(&self) -> (LockName, LossCause) {
        let mut losses: Vec<Pin<Box<dyn Future<Output = LossCause> + Send + '_>>> =
            self.guards.iter().map(|guard| Box::pin(guard.lost()) as _).collect();
        let (lost, cause) = poll_fn(|context| {
            let lost = losses.iter_mut().enumerate().find_map(|(number, lost)| {
                match lost.as_mut().poll(context) {
                    Poll::Ready(cause) => Some((number, cause)),
                    Poll::Pending => None,
                }
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        (self.guards[lost].name().clone(), cause)
    }

    /// Gives all back; what happened to each, in the order of their names.
    /// See [`MultiLock`] for an example.
    ///
    /// # Cancel safety
    /// As [`Guard::release`], for each of them.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Vec<Released>> {
        let mut released = Vec::with_capacity(self.guards.len());
        for guard in self.guards {
            released.push(guard.release().await?);
        }
        Ok(released)
    }
}
