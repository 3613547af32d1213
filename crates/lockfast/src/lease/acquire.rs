//! The way to a lease: ask, wait as the policy says, try again when the store cannot be reached,
//! and leave nothing behind when it ends in any other way than a grant.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Error, ErrorKind, Grant, HolderId, LockName, Mode, Moment,
    Refusal, Result, Retry, Wait, jitter, observe,
};
use tracing::Instrument as _;

use super::cell::LeaseCell;
use super::deadline::deadline_of;
use super::policy::Policy;
use super::undo::{Claim, Entry, UndoOnDrop};
use crate::store::Store;

/// Which lock is wanted, and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) store: Arc<Store>,
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
}

/// How long the store may fail before an acquisition that waits without a limit is told: it would
/// not learn otherwise that the store is gone for good.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many grants in a row may come too late for one that waits: a process can be paused when its
/// turn comes, but a way to the store that is slower than the lease does not get any better.
const LATE_MAX: u32 = 10;
/// How long the last try has after a call that was not answered by the end of the wait: if the store
/// did not serve until then, it is not waited for as long again.
const LAST_TIME_MAX: Duration = Duration::from_secs(2);

/// What came of an acquisition.
pub(crate) enum Acquired {
    Granted { holder: HolderId, grant: Grant },
    Taken(Refusal),
}

impl Target {
    /// Takes the lock and hands the lease to the keeper. A detached one is watched over by this
    /// process and outlives it.
    pub(crate) async fn acquire(
        &self,
        wait: Wait,
        detached: bool,
    ) -> Result<Result<Arc<LeaseCell>, Refusal>> {
        let (holder, grant) = match self.ask(wait, detached).await? {
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
        self.store.registry.hold(&cell, grant.session);
        self.store.keeper.track(Arc::clone(&cell));
        Ok(Ok(cell))
    }

    /// Takes the lock. The registry keeps the holder until it is forgotten or has a lease.
    pub(crate) async fn ask(&self, wait: Wait, detached: bool) -> Result<Acquired> {
        self.store.check_process().map_err(|error| error.with_lock(&self.name))?;
        let span = tracing::debug_span!(
            observe::span::ACQUIRE,
            lock = %self.name,
            backend = self.store.backend.profile().backend,
        );
        self.ask_until_answered(wait, detached).instrument(span).await
    }

    async fn ask_until_answered(&self, wait: Wait, detached: bool) -> Result<Acquired> {
        let telemetry = &self.store.telemetry;
        let start = self.store.now();
        let mut attempt = Attempt::new(self, wait)?;
        let mut repeats = Repeats::new(wait, self.policy.retries);
        loop {
            let asked = self.store.now();
            let (how, limit) = repeats.next_try(asked, self.policy.request_timeout);
            let error = match self.ask_once(attempt.holder, how, limit, detached).await {
                Ok(AcquireOutcome::Granted(grant)) if !self.is_late(&grant) => {
                    telemetry.granted(&self.name, grant.fence, self.store.now().since(start));
                    return Ok(Acquired::Granted { holder: attempt.succeed(), grant });
                }
                Ok(AcquireOutcome::Granted(grant)) => self.too_late(&grant),
                Ok(AcquireOutcome::Taken(mut refusal)) => {
                    attempt.settle();
                    // Earlier tries count too.
                    refusal.waited = wait.waited(start, self.store.now());
                    telemetry.taken(&self.name, &refusal);
                    return Ok(Acquired::Taken(refusal));
                }
                Err(error) => error.with_lock(&self.name),
            };
            telemetry.acquire_failed(&self.name, &error);
            let Some(pause) = repeats.pause_after(&error, asked, self.store.now()) else {
                attempt.fail(&error, repeats.count > 0);
                return Err(error);
            };
            if error.kind() == ErrorKind::TooLate {
                // What that holder was granted is over and must not be mistaken for the next, nor be
                // in its way.
                attempt.take_back().await;
                attempt = Attempt::new(self, wait)?;
            }
            self.store.sleep(pause).await;
        }
    }

    async fn ask_once(
        &self,
        holder: HolderId,
        wait: Wait,
        limit: Duration,
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
        match wait {
            Wait::No => self.store.within(limit, call).await,
            Wait::Until(end) => {
                let left = end.remaining(self.store.now());
                self.store.within(left + limit, call).await
            }
            Wait::Forever => call.await,
        }
    }

    fn is_late(&self, grant: &Grant) -> bool {
        deadline_of(grant, self.policy.ttl, self.policy.drift).has_passed(self.store.now())
    }

    fn too_late(&self, grant: &Grant) -> Error {
        Error::new(
            ErrorKind::TooLate,
            format!(
                "granted too late: the answer took {:?} of a lease of {:?}",
                self.store.now().since(grant.from),
                grant.lasts(self.policy.ttl)
            ),
        )
        .with_lock(&self.name)
    }
}

/// When an acquisition is tried again. Whoever waits for a lock also waits for a store that cannot
/// serve it for a while (it restarts, loads its data, fails over); whoever does not wait has a few
/// quick tries, which heal a broken connection and no more.
///
/// A wait ends with a try that does not wait: who was paused when it ended, or whose call was not
/// answered by then, is told whether the lock is taken and not that something failed.
pub(crate) struct Repeats {
    wait: Wait,
    most: u32,
    count: u32,
    late: u32,
    failing_since: Option<Moment>,
    /// Whether a call that began in time was not served until the end of the wait.
    is_overdue: bool,
}

impl Repeats {
    pub(crate) fn new(wait: Wait, most: u32) -> Self {
        Self { wait, most, count: 0, late: 0, failing_since: None, is_overdue: false }
    }

    /// How long the next try waits for the lock, and for the store.
    fn next_try(&self, now: Moment, request_timeout: Duration) -> (Wait, Duration) {
        match self.wait {
            _ if self.is_overdue => (Wait::No, request_timeout.min(LAST_TIME_MAX)),
            Wait::Until(end) if end.has_passed(now) => (Wait::No, request_timeout),
            wait => (wait, request_timeout),
        }
    }

    /// How long to pause before the next try, after one that began at `asked` and has failed;
    /// `None` when there is none.
    pub(crate) fn pause_after(
        &mut self,
        error: &Error,
        asked: Moment,
        now: Moment,
    ) -> Option<Duration> {
        if error.kind() == ErrorKind::TooLate {
            return self.pause_after_late(asked);
        }
        // A node that is not the right one may be so again, or another may be found.
        let is_elsewhere = [ErrorKind::Unreachable, ErrorKind::NoQuorum, ErrorKind::WrongNode]
            .contains(&error.kind());
        if !is_elsewhere || error.retry() != Retry::Later || self.most == 0 {
            return None;
        }
        if now.since(asked) >= PATIENCE / 2 {
            // It stood in line for most of that time, so the store has only just failed.
            self.failing_since = None;
            self.count = self.count.min(1);
        }
        let since = *self.failing_since.get_or_insert(now);
        let left = match self.wait {
            Wait::No if self.count >= self.most => return None,
            Wait::No => Duration::MAX,
            Wait::Until(end) if end.has_passed(now) && !end.has_passed(asked) => {
                self.is_overdue = true;
                self.count += 1;
                return Some(Duration::ZERO);
            }
            Wait::Until(end) => end.remaining(now),
            Wait::Forever => (since + PATIENCE).remaining(now),
        };
        if left.is_zero() {
            return None;
        }
        let pause = (Duration::from_millis(50) * 2_u32.pow(self.count.min(5))).min(PAUSE_MAX);
        self.count += 1;
        Some(pause.mul_f64(0.5 + jitter()).min(left))
    }

    /// The store serves, but this process did not hear of it in time: whoever waited waits on, or
    /// looks once more when the wait is over.
    fn pause_after_late(&mut self, asked: Moment) -> Option<Duration> {
        let is_open = match self.wait {
            Wait::No => false,
            Wait::Until(end) => !end.has_passed(asked),
            Wait::Forever => true,
        };
        if !is_open || self.most == 0 || self.late >= LATE_MAX {
            return None;
        }
        self.late += 1;
        self.failing_since = None;
        Some(Duration::ZERO)
    }
}

/// An acquisition under way: undone when it is dropped before its end.
struct Attempt<'a> {
    target: &'a Target,
    holder: HolderId,
    undo: Option<UndoOnDrop>,
    /// Whether the registry keeps the holder when this is dropped.
    is_known: bool,
}

impl<'a> Attempt<'a> {
    fn new(target: &'a Target, wait: Wait) -> Result<Self> {
        let holder = target.store.new_holder()?;
        target.store.registry.ask(holder);
        let entry = Entry {
            name: target.name.clone(),
            holder,
            ttl: target.policy.ttl,
            lock_delay: target.policy.lock_delay,
            request_timeout: target.policy.request_timeout,
            may_wait: wait != Wait::No,
        };
        let claim = Claim { store: Arc::clone(&target.store), entry };
        Ok(Self { target, holder, undo: Some(UndoOnDrop::new(claim)), is_known: false })
    }

    /// The lock is granted. Its lease takes over the entry in the registry.
    fn succeed(mut self) -> HolderId {
        self.is_known = true;
        self.settle()
    }

    /// The store's answer is known and leaves nothing to undo.
    fn settle(mut self) -> HolderId {
        if let Some(undo) = self.undo.take() {
            undo.settle();
        }
        self.holder
    }

    /// What was granted is of no use any more; the store has it back when this returns, or as soon
    /// as it answers.
    async fn take_back(mut self) {
        if let Some(undo) = self.undo.take() {
            undo.release().await;
        }
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
        if !self.is_known {
            self.target.store.registry.forget(self.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn unreachable() -> Error {
        Error::new(ErrorKind::Unreachable, "it loads its data")
    }

    /// How many tries follow the first, each of which fails at once, and for how long.
    fn count(wait: Wait, most: u32, start: Moment) -> (u32, Duration) {
        let mut repeats = Repeats::new(wait, most);
        let mut now = start;
        while let Some(pause) = repeats.pause_after(&unreachable(), now, now) {
            now = now + pause;
        }
        (repeats.count, now.since(start))
    }

    #[test]
    fn who_waits_outlasts_a_store_that_fails_for_a_while() {
        let start = Moment::now();
        let (tries, took) = count(Wait::No, 2, start);
        assert_eq!(tries, 2);
        assert!(took < SECOND / 4, "{took:?}");
        let (tries, took) = count(Wait::Until(start + 10 * SECOND), 2, start);
        assert!((7..40).contains(&tries), "{tries}");
        assert_eq!(took, 10 * SECOND, "the last try is when the wait ends");
        assert_eq!(count(Wait::Forever, 2, start).1, PATIENCE);
        // Who asks for no other try gets none.
        for wait in [Wait::No, Wait::Until(start + SECOND), Wait::Forever] {
            assert_eq!(count(wait, 0, start).0, 0);
        }
    }

    #[test]
    fn what_lasts_is_told_at_once() {
        let now = Moment::now();
        let mut repeats = Repeats::new(Wait::Forever, 2);
        let full = unreachable().with_retry(Retry::Never);
        assert_eq!(repeats.pause_after(&full, now, now), None);
        for kind in [ErrorKind::Permission, ErrorKind::Conflict] {
            assert_eq!(repeats.pause_after(&Error::new(kind, ""), now, now), None);
        }
    }

    /// B20: a process that was paused when its turn came waits on, but not without end.
    #[test]
    fn who_waits_outlasts_a_grant_that_came_too_late() {
        let now = Moment::now();
        let late = Error::new(ErrorKind::TooLate, "");
        let table = [
            (Wait::No, 2, 0),
            (Wait::Until(now), 2, 0),
            (Wait::Until(now + SECOND), 2, LATE_MAX),
            (Wait::Forever, 2, LATE_MAX),
            (Wait::Forever, 0, 0),
        ];
        for (wait, most, times) in table {
            let mut repeats = Repeats::new(wait, most);
            let again = (0..99).take_while(|_| repeats.pause_after(&late, now, now).is_some());
            assert_eq!(again.count(), times as usize, "{wait:?}");
        }
    }

    /// B87: a process that was paused until after the end of its wait, or was not answered by then,
    /// looks once more and does not wait.
    #[test]
    fn who_missed_the_end_of_its_wait_looks_once_more() {
        let (start, limit) = (Moment::now(), 5 * SECOND);
        let end = start + SECOND;
        let late = Error::new(ErrorKind::TooLate, "");
        for (error, last_limit) in [(late, limit), (unreachable(), LAST_TIME_MAX)] {
            let mut repeats = Repeats::new(Wait::Until(end), 2);
            assert_eq!(repeats.next_try(start, limit), (Wait::Until(end), limit));
            let resumed = end + 9 * SECOND;
            assert_eq!(repeats.pause_after(&error, start, resumed), Some(Duration::ZERO));
            assert_eq!(repeats.next_try(resumed, limit), (Wait::No, last_limit));
            assert_eq!(repeats.pause_after(&error, resumed, resumed + SECOND), None);
            let mut once = Repeats::new(Wait::Until(end), 0);
            assert_eq!(once.pause_after(&error, start, resumed), None, "no other try is wanted");
        }
    }

    #[test]
    fn patience_begins_anew_after_waiting_in_line() {
        let start = Moment::now();
        let mut repeats = Repeats::new(Wait::Forever, 2);
        assert!(repeats.pause_after(&unreachable(), start, start).is_some());
        // The next try stood in line for an hour.
        let later = start + 3600 * SECOND;
        assert!(repeats.pause_after(&unreachable(), start + SECOND, later).is_some());
        let over = later + PATIENCE;
        assert_eq!(repeats.pause_after(&unreachable(), over, over), None);
    }
}
