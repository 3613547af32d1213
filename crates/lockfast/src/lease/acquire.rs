//! The way to a lease: ask, wait as the policy says, try again when the store cannot be reached,
//! and leave nothing behind when it ends in any other way than a grant.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Error, ErrorKind, Grant, HolderId, LockName, Mode, Moment,
    Refusal, Result, Retry, Wait,
};
use tracing::Instrument as _;

use super::cell::LeaseCell;
use super::deadline::deadline;
use super::keeper::jitter;
use super::policy::Policy;
use super::undo::{Claim, UndoOnDrop};
use crate::store::Store;

/// Which lock is wanted, and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) store: Arc<Store>,
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
}

/// What came of an acquisition.
pub(crate) enum Acquired {
    Granted { holder: HolderId, grant: Grant },
    Taken(Refusal),
}

impl Target {
    /// Takes the lock and hands the lease to the keeper.
    pub(crate) async fn acquire(&self, wait: Wait) -> Result<Result<Arc<LeaseCell>, Refusal>> {
        let (holder, grant) = match self.ask(wait, false).await? {
            Acquired::Granted { holder, grant } => (holder, grant),
            Acquired::Taken(refusal) => return Ok(Err(refusal)),
        };
        let cell = Arc::new(LeaseCell::new(
            Arc::clone(&self.store),
            self.name.clone(),
            holder,
            self.mode,
            &grant,
            self.policy,
        ));
        self.store.keeper.track(Arc::clone(&cell));
        Ok(Ok(cell))
    }

    /// Takes the lock and leaves the lease to whoever is told its holder id.
    pub(crate) async fn ask(&self, wait: Wait, detached: bool) -> Result<Acquired> {
        self.store.check_process().map_err(|error| error.with_lock(&self.name))?;
        let span = tracing::debug_span!(
            "lockfast.acquire",
            lock = %self.name,
            backend = self.store.backend.profile().backend,
        );
        self.ask_until_answered(wait, detached).instrument(span).await
    }

    async fn ask_until_answered(&self, wait: Wait, detached: bool) -> Result<Acquired> {
        let telemetry = &self.store.telemetry;
        let start = Moment::now();
        let attempt = Attempt::new(self)?;
        let mut tries_left = self.policy.retries;
        loop {
            let error = match self.ask_once(attempt.holder, wait, detached).await {
                Ok(AcquireOutcome::Granted(grant)) if !self.is_late(&grant) => {
                    telemetry.granted(&self.name, grant.fence, Moment::now().since(start));
                    return Ok(Acquired::Granted { holder: attempt.settle(), grant });
                }
                Ok(AcquireOutcome::Granted(grant)) => self.too_late(&grant),
                Ok(AcquireOutcome::Taken(refusal)) => {
                    attempt.settle();
                    telemetry.taken(&self.name, &refusal);
                    return Ok(Acquired::Taken(refusal));
                }
                Err(error) => error.with_lock(&self.name),
            };
            telemetry.acquire_failed(&self.name, &error);
            // A node that is not the right one may be so again, or another may be found.
            let is_elsewhere = [ErrorKind::Unreachable, ErrorKind::NoQuorum, ErrorKind::WrongNode]
                .contains(&error.kind());
            let may_retry = is_elsewhere && error.retry() == Retry::Later;
            let in_time = !matches!(wait, Wait::Until(end) if end.has_passed(Moment::now()));
            if !(may_retry && tries_left > 0 && in_time) {
                attempt.fail(&error, tries_left < self.policy.retries);
                return Err(error);
            }
            let tried = self.policy.retries - tries_left;
            tries_left -= 1;
            let pause = Duration::from_millis(50) * 2_u32.pow(tried.min(5));
            self.store.sleep(pause.mul_f64(0.5 + jitter())).await;
        }
    }

    async fn ask_once(
        &self,
        holder: HolderId,
        wait: Wait,
        detached: bool,
    ) -> Result<AcquireOutcome> {
        let request = AcquireRequest {
            name: self.name.clone(),
            mode: self.mode,
            holder,
            ttl: self.policy.ttl,
            lock_delay: self.policy.lock_delay,
            wait,
            detached,
            floor: self.policy.floor,
        };
        let call = self.store.backend.acquire(request);
        let limit = self.policy.request_timeout;
        match wait {
            Wait::No => self.store.within(limit, call).await,
            Wait::Until(end) => self.store.within(end.remaining(Moment::now()) + limit, call).await,
            Wait::Forever => call.await,
        }
    }

    fn is_late(&self, grant: &Grant) -> bool {
        deadline(grant.from, self.policy.ttl, self.policy.drift).has_passed(Moment::now())
    }

    fn too_late(&self, grant: &Grant) -> Error {
        Error::new(
            ErrorKind::TooLate,
            format!(
                "granted too late: the answer took {:?} of a lease of {:?}",
                Moment::now().since(grant.from),
                self.policy.ttl
            ),
        )
        .with_lock(&self.name)
    }
}

/// An acquisition under way: undone when it is dropped before its end.
struct Attempt<'a> {
    target: &'a Target,
    holder: HolderId,
    undo: Option<UndoOnDrop>,
}

impl<'a> Attempt<'a> {
    fn new(target: &'a Target) -> Result<Self> {
        let holder = HolderId::random(target.store.client)?;
        let claim = Claim {
            store: Arc::clone(&target.store),
            name: target.name.clone(),
            holder,
            ttl: target.policy.ttl,
            lock_delay: target.policy.lock_delay,
            request_timeout: target.policy.request_timeout,
        };
        Ok(Self { target, holder, undo: Some(UndoOnDrop::new(claim)) })
    }

    /// The store's answer is known and leaves nothing to undo.
    fn settle(mut self) -> HolderId {
        if let Some(undo) = self.undo.take() {
            undo.settle();
        }
        self.holder
    }

    /// It failed; what may have been granted all the same is undone. A clear refusal says nothing
    /// about an earlier try whose answer was lost.
    fn fail(mut self, error: &Error, was_tried_before: bool) {
        let unknown =
            [ErrorKind::Unreachable, ErrorKind::NoQuorum, ErrorKind::TooLate, ErrorKind::Internal];
        match self.undo.take() {
            Some(undo) if was_tried_before || unknown.contains(&error.kind()) => drop(undo),
            Some(undo) => undo.settle(),
            None => {}
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.undo.is_some() {
            self.target.store.telemetry.cancelled(&self.target.name);
        }
    }
}
