//! What a task does with a lock that it has, and how it ends.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockfast::{Fence, Guard, Lease, LossCause, Moment, Released, RevokeOutcome};

use super::task::{Task, Wish};
use super::{THREADS, word_of_error};
use crate::history::{Mode, What};
use crate::recorder::Recorder;

/// Between two looks at a lock that is held.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// For how long a process may do nothing at all.
const BLOCK_MAX: Duration = Duration::from_millis(40);

/// A lock that a task has.
pub(super) struct Hold<'a> {
    task: &'a mut Task,
    wish: &'a Wish,
    guard: Guard,
    /// When it was last found to be held.
    last: u64,
    /// The deadline that it had then.
    deadline: u64,
}

/// What is done in the middle of it.
enum Deed {
    Nothing,
    Extend(Duration),
    Revoke,
}

/// How it is given back.
enum Way {
    Release,
    Drop,
    /// The release is dropped after this time.
    CancelRelease(Duration),
}

/// A revocation that was sent. What came of it is recorded at its end, also when the holder hears of
/// its loss before and does not wait for the answer.
struct Revocation<'a> {
    recorder: &'a Recorder,
    lock: String,
    how: String,
}

impl Drop for Revocation<'_> {
    fn drop(&mut self) {
        let (lock, how) = (std::mem::take(&mut self.lock), std::mem::take(&mut self.how));
        self.recorder.record(What::Revoked { lock, how });
    }
}

impl<'a> Hold<'a> {
    /// A lock that was granted and found to be held just now.
    pub(super) fn new(task: &'a mut Task, wish: &'a Wish, guard: Guard, deadline: u64) -> Self {
        Self { task, wish, guard, last: Moment::now().host_ns(), deadline }
    }

    /// Holds it for a while and gives it back.
    pub(super) async fn live(mut self) {
        let ttl = self.task.shared.ttl;
        let dice = &mut self.task.dice;
        // Nobody has to wait for one that is mostly free, so it is held longer.
        let is_quiet = self.task.shared.script.targets[self.wish.place].quiet;
        let span = match dice.below(100) {
            _ if is_quiet && dice.one_in(2) => dice.time_below(ttl / 2),
            0..75 => dice.time_below(Duration::from_millis(5)),
            75..93 => dice.time_below(Duration::from_millis(50)),
            93..99 => dice.time_below(ttl / 4),
            _ => dice.time_below(ttl * 3 / 2),
        };
        let deed = match dice.below(100) {
            0..4 => Deed::Extend(dice.time_between(ttl / 2, ttl * 3 / 2)),
            4..6 => Deed::Revoke,
            _ => Deed::Nothing,
        };
        let way = match dice.below(100) {
            0..50 => Way::Release,
            50..80 => Way::Drop,
            _ => Way::CancelRelease(dice.time_below(Duration::from_millis(3))),
        };
        if let Some(cause) = self.keep(span, deed).await {
            return self.lose(&cause).await;
        }
        self.give_back(way).await;
    }

    /// Keeps it, writes and looks; the cause if it is lost.
    async fn keep(&mut self, span: Duration, deed: Deed) -> Option<LossCause> {
        let end = Moment::now() + span;
        self.write().await;
        let lease = Lease::clone(&self.guard);
        // A loss is heard of at once, whatever the store makes of what it is asked.
        tokio::select! {
            cause = lost_for_good(&lease) => return Some(cause),
            () = self.perform(deed) => {}
        }
        while !end.has_passed(Moment::now()) && !self.task.shared.is_ending() {
            let left = end.remaining(Moment::now()).min(LOOK_INTERVAL);
            tokio::select! {
                cause = lease.lost() => return Some(cause),
                () = self.task.shared.sleep(left) => {}
            }
            if let Err(cause) = self.look() {
                return Some(cause);
            }
        }
        // Whoever holds for long writes at the end too.
        if span > LOOK_INTERVAL {
            self.write().await;
        }
        None
    }

    async fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Nothing => {}
            // It may fail, or be lost meanwhile, which is found out later.
            Deed::Extend(ttl) => {
                let ttl = self.task.locker().profile().ttl.fit(ttl);
                let _ = tokio::time::timeout(ttl, self.guard.extend(ttl)).await;
            }
            Deed::Revoke => self.revoke().await,
        }
    }

    /// Looks whether it is still held, and records that it is.
    fn look(&mut self) -> Result<(), LossCause> {
        let (guard, claim) = (&self.guard, self.wish.claim);
        let mut found = (self.last, self.deadline);
        let is_held = self.task.shared.recorder.record_if(|at| {
            guard.check().ok()?;
            found = (at.host_ns(), guard.deadline().host_ns());
            Some(What::Still { claim, deadline: found.1 })
        });
        (self.last, self.deadline) = found;
        if is_held { Ok(()) } else { Err(cause_of(guard)) }
    }

    /// Writes to what the lock guards, if it keeps others out of there.
    async fn write(&mut self) {
        if self.wish.mode != Mode::Exclusive {
            return;
        }
        let (claim, fence) = (self.wish.claim, self.guard.fence().get());
        let Some(count) = self.task.shared.write(self.wish.place, fence).await else { return };
        self.task.shared.recorder.record(What::Wrote {
            claim,
            fence,
            admitted: count.admitted,
            highest: count.highest,
            number: count.number,
        });
    }

    /// Has the lock taken away, by an operator who may or may not know whom he takes it from. Some
    /// go on with whoever is next, who may not have heard yet that it is: least of all in a process
    /// of which no thread runs.
    async fn revoke(&mut self) {
        let dice = &mut self.task.dice;
        let expect_fence = dice.one_in(2).then(|| self.guard.fence());
        let (more, blocks) = (dice.below(3), dice.one_in(2));
        let span = dice.time_between(BLOCK_MAX / 10, BLOCK_MAX);
        let mut revocations = pin!(async {
            tokio::join!(
                self.revoke_from(expect_fence),
                async {
                    if more > 0 {
                        self.revoke_from(None).await;
                    }
                },
                async {
                    if more > 1 {
                        self.revoke_from(None).await;
                    }
                },
            )
        });
        let sent = poll_fn(|context| Poll::Ready(revocations.as_mut().poll(context))).await;
        if blocks {
            block_threads(span);
        }
        if sent.is_pending() {
            revocations.await;
        }
    }

    async fn revoke_from(&self, expect_fence: Option<Fence>) {
        let name = self.guard.name().clone();
        let lock = name.to_string();
        let recorder = &self.task.shared.recorder;
        recorder.record(What::Revoking { lock: lock.clone() });
        let mut revocation = Revocation { recorder, lock, how: "cancelled".into() };
        let locker = self.task.other_locker();
        let revoked = match expect_fence {
            Some(fence) => locker.revoke_fence(&name, fence, "torture").await,
            None => locker.revoke(&name, "torture").await,
        };
        revocation.how = match revoked {
            Ok(RevokeOutcome::Revoked(_)) => "revoked".into(),
            Ok(RevokeOutcome::NotHeld | RevokeOutcome::OtherFence(_)) => "not_held".into(),
            Err(error) => word_of_error(error.kind()),
        };
    }

    /// It has been told that the lock is lost.
    async fn lose(mut self, cause: &LossCause) {
        let (shared, deadline) = (&self.task.shared, Moment::from_host_ns(self.deadline));
        shared.recorder.record_if(|at| {
            let kept = deadline.has_passed(at).then(|| shared.machine.between(deadline, at));
            Some(What::Ended {
                claim: self.wish.claim,
                how: "lost".into(),
                cause: Some(cause.code().to_owned()),
                last: Some(self.last),
                deadline: self.deadline,
                kept: kept.map(|kept| u64::try_from(kept.as_nanos()).unwrap_or(u64::MAX)),
            })
        });
        // As one does who does not look before he writes.
        if self.task.dice.one_in(3) {
            self.write().await;
        }
    }

    async fn give_back(self, way: Way) {
        let (guard, claim) = (&self.guard, self.wish.claim);
        let how = match way {
            Way::Release => "release",
            Way::Drop => "drop",
            Way::CancelRelease(_) => "cancelled_release",
        };
        let is_held = self.task.shared.recorder.record_if(|_| {
            guard.check().ok()?;
            let deadline = guard.deadline().host_ns();
            let how = how.into();
            Some(What::Ended { claim, how, cause: None, last: None, deadline, kept: None })
        });
        if !is_held {
            let cause = cause_of(guard);
            return self.lose(&cause).await;
        }
        let Self { task, guard, .. } = self;
        let released = match way {
            Way::Release => Some(guard.release().await),
            Way::Drop => {
                drop(guard);
                None
            }
            Way::CancelRelease(after) => tokio::time::timeout(after, guard.release()).await.ok(),
        };
        let Some(released) = released else { return };
        let how = match released {
            Ok(Released::AlreadyLost(_)) => "already_lost".into(),
            Ok(Released::Unknown { error, .. }) | Err(error) => word_of_error(error.kind()),
            Ok(_) => "released".into(),
        };
        task.shared.recorder.record(What::Released { claim, how });
    }
}

/// Lets no task of this process run for a while. The keeper has a thread of its own.
fn block_threads(span: Duration) {
    for _ in 1..THREADS {
        tokio::spawn(async move { std::thread::sleep(span) });
    }
    std::thread::sleep(span);
}

/// Waits for a loss. Of one by a revocation, which is most likely our own, the answer to that is to
/// come first; but it is not waited for beyond the deadline.
async fn lost_for_good(lease: &Lease) -> LossCause {
    let cause = lease.lost().await;
    if matches!(cause, LossCause::Revoked { .. }) {
        tokio::time::sleep(lease.deadline().remaining(Moment::now())).await;
    }
    cause
}

/// Why a lock that is not held any more is not.
fn cause_of(guard: &Guard) -> LossCause {
    let error = guard.check().err();
    let cause = error.and_then(|error| error.loss().cloned());
    cause.unwrap_or(LossCause::Forgotten)
}
