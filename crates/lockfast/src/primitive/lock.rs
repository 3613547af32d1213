//! A named lock in one mode: what every primitive is made of.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{
    Error, Feature, Fence, FencingToken, HolderId, LockName, LossCause, Mode, Moment, Refusal,
    Result, Wait,
};

use crate::lease::acquire::{Acquired, Target};
use crate::lease::deadline::deadline_of;
use crate::lease::handle::{Guard, Lease, Released};
use crate::lease::policy::{Options, Policy};
use crate::store::Store;

/// A named lock in one mode. Cheap to clone; it holds nothing until it is acquired.
#[derive(Clone, Debug)]
pub struct Lock {
    target: Target,
}

/// What came of one try.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is held.
    Granted(Guard),
    /// Somebody else has it.
    Taken(Refusal),
}

/// A lease that nothing renews: it ends when its ttl does, or when whoever knows its holder id
/// releases it. It outlives the process that took it.
#[derive(Clone, Debug)]
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

impl Lock {
    pub(crate) fn new(store: Arc<Store>, name: LockName, mode: Mode, policy: Policy) -> Self {
        Self { target: Target { store, name, mode, policy } }
    }

    /// The same lock, taken and kept in another way.
    ///
    /// # Errors
    /// What [`Options::check`] says.
    pub fn with(mut self, options: Options) -> Result<Self> {
        self.target.policy = Policy::new(&options, self.target.store.backend.profile())?;
        Ok(self)
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

    /// The name.
    pub fn name(&self) -> &LockName {
        &self.target.name
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.target.mode
    }

    /// The lease time: what was chosen, or what the store allows next to 30 s.
    pub fn ttl(&self) -> Duration {
        self.target.policy.ttl
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.target.store
    }

    /// The same lock, waited for as long as it takes.
    pub(super) fn waiting_forever(mut self) -> Self {
        self.target.policy = self.target.policy.waiting_forever();
        self
    }

    pub(crate) fn is_of_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target.store, &other.target.store)
    }

    /// Takes the lock, waiting as its options say.
    ///
    /// # Cancel safety
    /// Safe: when dropped at any point, the keeper gives back what may have been granted, and
    /// its place in the queue.
    ///
    /// # Errors
    /// [`ErrorKind::Taken`](crate::ErrorKind::Taken) with who has it when the wait ran out; what
    /// the store meets.
    pub async fn acquire(&self) -> Result<Guard> {
        let wait = self.target.policy.wait_from(Moment::now());
        self.acquire_until(wait).await
    }

    pub(crate) async fn acquire_until(&self, wait: Wait) -> Result<Guard> {
        match self.target.acquire(wait, false).await? {
            Ok(cell) => Ok(Guard::new(cell)),
            Err(refusal) => Err(Error::taken(&self.target.name, refusal)),
        }
    }

    /// Takes the lock as [`Lock::acquire`] does, and returns when the store keeps it for its whole
    /// ttl: for work that cannot be stopped as quickly as a lock that was just handed over may end.
    /// When the process is paused just then, it waits its turn again.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`], and [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was
    /// taken away before its lease was full.
    pub async fn acquire_full(&self) -> Result<Guard> {
        let wait = self.wait_from(Moment::now());
        loop {
            let guard = self.acquire_until(wait).await?;
            match guard.full().await {
                Ok(()) => return Ok(guard),
                Err(error) if is_expiry(&error) && wait.is_open() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn wait_from(&self, now: Moment) -> Wait {
        self.target.policy.wait_from(now)
    }

    /// Takes the lock if it is free.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// What the store meets.
    pub async fn try_acquire(&self) -> Result<Attempt> {
        Ok(match self.target.acquire(Wait::No, false).await? {
            Ok(cell) => Attempt::Granted(Guard::new(cell)),
            Err(refusal) => Attempt::Taken(refusal),
        })
    }

    /// Takes the lock, runs `body` under it, gives it back. When the lease is lost, `body` is
    /// dropped where it stands.
    ///
    /// # Cancel safety
    /// When dropped, `body` is dropped and the keeper gives the lock back.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was lost
    /// before `body` ended.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let lease = guard.lease().clone();
        let finished = run_until_lost(&lease, body(lease.clone())).await;
        let released = guard.release().await?;
        let value = finished?;
        match released {
            Released::AlreadyLost(cause) => Err(Error::lost(&self.target.name, cause)),
            _ => Ok(value),
        }
    }

    /// Takes the lock for whoever will know its holder id; nothing renews it.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`], and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a
    /// store whose leases end with the process.
    pub async fn acquire_detached(&self) -> Result<DetachedLease> {
        let profile = self.target.store.backend.profile();
        profile.require(Feature::Detached).map_err(|error| error.with_lock(self.name()))?;
        let wait = self.target.policy.wait_from(Moment::now());
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

/// Runs `body`, which is dropped where it stands when the lease is lost.
pub(super) async fn run_until_lost<T>(lease: &Lease, body: impl Future<Output = T>) -> Result<T> {
    let mut body = pin!(body);
    let mut lost = pin!(lease.lost());
    poll_fn(|context| {
        if let Poll::Ready(cause) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(Error::lost(lease.name(), cause)));
        }
        body.as_mut().poll(context).map(Ok)
    })
    .await
}

fn is_expiry(error: &Error) -> bool {
    let expired =
        |cause: &LossCause| matches!(cause, LossCause::Expired { .. } | LossCause::Forgotten);
    error.loss().is_some_and(expired)
}
