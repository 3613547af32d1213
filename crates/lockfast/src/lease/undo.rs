//! Taking back what may have been granted: for cancelled and failed acquisitions, for dropped
//! guards, for answers that came too late. It runs on the keeper's runtime and does not end
//! before the store answered or the lease has run out by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast_core::{HolderId, LockName, Moment, ReleaseOutcome, ReleaseRequest, Result, jitter};
use tokio::sync::Notify;

use crate::store::Store;

/// Something that a holder has or may have in a store.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) store: Arc<Store>,
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    /// The store keeps it for so long, and the lock-delay, when nobody releases it.
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) request_timeout: Duration,
}

impl Claim {
    /// Asks the store once.
    pub(crate) async fn release(&self) -> Result<ReleaseOutcome> {
        let request = ReleaseRequest { name: self.name.clone(), holder: self.holder };
        let outcome =
            self.store.within(self.request_timeout, self.store.backend.release(request)).await;
        self.store.telemetry.released(&self.name, &outcome);
        outcome
    }
}

/// Releases the claim in the background.
pub(crate) fn start(claim: Claim) {
    if claim.store.check_process().is_err() {
        // A forked child must not give away what its parent holds.
        return;
    }
    let runtime = claim.store.keeper.runtime().clone();
    let counted = Counted::new(&claim.store);
    runtime.spawn(async move {
        run(claim).await;
        drop(counted);
    });
}

async fn run(claim: Claim) {
    let until = Moment::now() + claim.ttl + claim.lock_delay;
    let mut pause = Duration::from_millis(20);
    while claim.release().await.is_err() && !until.has_passed(Moment::now()) {
        tokio::time::sleep(pause.mul_f64(0.5 + jitter())).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// How many claims of a store are being undone, for whoever wants to wait for the end of it.
#[derive(Default)]
pub(crate) struct Undoing {
    count: AtomicUsize,
    done: Notify,
}

impl Undoing {
    pub(crate) async fn finished(&self) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}

/// One that is counted, however it ends.
struct Counted(Arc<Store>);

impl Counted {
    fn new(store: &Arc<Store>) -> Self {
        store.undoing.count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(store))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.undoing.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.undoing.done.notify_waiters();
        }
    }
}

/// Undoes a claim when it is dropped, unless it was settled.
pub(crate) struct UndoOnDrop(Option<Claim>);

impl UndoOnDrop {
    pub(crate) fn new(claim: Claim) -> Self {
        Self(Some(claim))
    }

    /// Nothing is left to undo.
    pub(crate) fn settle(mut self) {
        self.0 = None;
    }
}

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            start(claim);
        }
    }
}
