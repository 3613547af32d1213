//! What a caller holds: a [`Guard`] that gives the lock back, and the [`Lease`] that it stands
//! for, which can be handed to whatever works under it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockfast_core::{
    Error, ErrorKind, Fence, FencingToken, HolderId, LockName, LossCause, Mode, Moment,
    ReleaseOutcome, Result,
};
use tokio_util::sync::CancellationToken;

use super::cell::LeaseCell;
use super::state::{LeaseState, Phase};
use super::undo::{self, Release};

/// A lease: what is known of a hold, for whoever works under it. Cloning it does not prolong it.
#[derive(Clone)]
pub struct Lease(pub(crate) Arc<LeaseCell>);

/// The answer of [`Lease::check`].
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// To be sent along with whatever is done now.
    pub fence: Fence,
    /// How long the lease is good for unless it is renewed.
    pub remaining: Duration,
}

/// Where a lease stands.
#[derive(Clone, Debug, PartialEq)]
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
    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// The fence of this grant: higher than that of every earlier one.
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// The fence together with the lock it belongs to.
    pub fn token(&self) -> FencingToken {
        FencingToken { lock: self.0.name.clone(), fence: self.0.fence }
    }

    /// The secret by which the store knows this holder.
    pub fn holder(&self) -> HolderId {
        self.0.holder
    }

    /// Whether the lease is good right now. Call it just before each side effect, and send the
    /// fence along: between this call and the effect the process may still be paused.
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
                remaining: state.deadline.remaining(Moment::now()),
            }),
            Phase::Lost(cause) => Err(self.0.lost_error(cause.clone())),
            Phase::Released => Err(self.not_held()),
        }
    }

    /// How long the lease is good for unless it is renewed; zero when it is over.
    pub fn remaining(&self) -> Duration {
        self.check().map_or(Duration::ZERO, |checked| checked.remaining)
    }

    /// The moment from which the lease counts as lost unless it is renewed.
    pub fn deadline(&self) -> Moment {
        self.0.look().deadline
    }

    /// Where the lease stands.
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
    /// executor is blocked.
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

    /// A token that is cancelled when the lease is lost.
    pub fn cancellation(&self) -> CancellationToken {
        self.0.cancellation()
    }

    /// Waits until the deadline or the status changed since the version `seen`, and returns the
    /// version it has now. Start with 0, which is answered at once.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn changed(&self, seen: u64) -> u64 {
        self.0.changed(seen).await
    }

    /// Changes the lease time from now on. A shorter one moves the deadline down at once; a
    /// longer one moves it up when the store has agreed, which this waits for.
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
    pub fn is_full(&self) -> bool {
        self.0.look().is_full
    }

    /// Waits until the store keeps the lease for its whole ttl: for work that cannot be stopped
    /// as quickly as a lock that was handed over may end.
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

    fn not_held(&self) -> Error {
        Error::new(ErrorKind::NotHeld, "it was released already").with_lock(&self.0.name)
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("lock", &self.0.name)
            .field("mode", &self.0.mode)
            .field("fence", &self.0.fence)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// What came of [`Guard::release`].
#[derive(Debug)]
pub enum Released {
    /// The store let go of it.
    Released,
    /// Other guards of the same lease remain; the last one gives it back.
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

    /// The lease, for handing it to others.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Another guard of the same lease, for code that needs the lock and may run inside code
    /// that has it. The lock is given back with the last of them.
    ///
    /// # Errors
    /// When the lease is over.
    pub fn reenter(&self) -> Result<Self> {
        self.check()?;
        self.lease.0.guards.fetch_add(1, Ordering::AcqRel);
        Ok(Self { lease: self.lease.clone(), counts: true })
    }

    /// Gives the lock back and tells what happened.
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
        cell.end(Moment::now());
        let until = cell.state().deadline + claim.entry.lock_delay;
        Ok(match Release::new(claim).await {
            Ok(ReleaseOutcome::Released) => Released::Released,
            Ok(ReleaseOutcome::NotHeld) => Released::AlreadyLost(LossCause::Forgotten),
            Err(error) => Released::Unknown { expires_in: until.remaining(Moment::now()), error },
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
            cell.end(Moment::now());
            undo::start(cell.claim());
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.lease).finish()
    }
}
