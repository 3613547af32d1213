//! Taking back what may have been granted: for cancelled and failed acquisitions, for dropped
//! guards, for answers that came too late. It runs on the keeper's runtime and does not end
//! before the store answered or the lease has run out by itself. A place in a line does not run out:
//! when its turn came it would be offered the lock and keep those behind it waiting, so it is given
//! up for as long as anybody uses the store.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use lockfast_core::{
    BoxFuture, HolderId, LockName, ReleaseOutcome, ReleaseRequest, Result, jitter,
};
use tokio::sync::Notify;

use crate::store::Store;

/// How often an overdue place in a line is tried to be given up.
const OVERDUE_EVERY: Duration = Duration::from_secs(1);
/// How many of them are remembered: in an outage without end nobody must need more and more memory.
const OVERDUE_MAX: usize = 4096;

/// Something that a holder has or may have in a store.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) store: Arc<Store>,
    pub(crate) entry: Entry,
}

/// What it has there.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    /// The store keeps it for so long, and the lock-delay, when nobody releases it.
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) request_timeout: Duration,
    /// Whether it may stand in a line.
    pub(crate) may_wait: bool,
}

impl Claim {
    /// Asks the store once.
    async fn release(self) -> Result<ReleaseOutcome> {
        let Self { store, entry } = self;
        let request = ReleaseRequest { name: entry.name.clone(), holder: entry.holder };
        let outcome = store.within(entry.request_timeout, store.backend.release(request)).await;
        store.telemetry.released(&entry.name, &outcome);
        outcome
    }
}

/// Releases the claim in the background.
pub(crate) fn start(claim: Claim) {
    if claim.store.check_process().is_err() {
        // A forked child must not give away what its parent holds.
        return;
    }
    let first = claim.clone().release();
    finish(claim, Box::pin(first));
}

/// Goes on with a release in the background, and asks again until the store has answered.
fn finish(claim: Claim, mut call: ReleaseCall) {
    let runtime = claim.store.keeper.runtime().clone();
    let counted = Counted::new(&claim.store, Some(claim.entry.name.clone()));
    let until = claim.store.now() + claim.entry.ttl + claim.entry.lock_delay;
    runtime.spawn(async move {
        let mut pause = Duration::from_millis(20);
        while call.await.is_err() {
            if until.has_passed(claim.store.now()) {
                if claim.entry.may_wait {
                    Undoing::owe(&claim.store, claim.entry);
                }
                break;
            }
            claim.store.sleep(pause.mul_f64(0.5 + jitter())).await;
            pause = (pause * 2).min(Duration::from_secs(1));
            call = Box::pin(claim.clone().release());
        }
        drop(counted);
    });
}

type ReleaseCall = BoxFuture<'static, Result<ReleaseOutcome>>;

/// A release that its caller waits for. When the caller stops waiting, this very call goes on in
/// the background: a second one beside it could meet the first in the store.
pub(crate) struct Release {
    claim: Option<Claim>,
    call: Option<ReleaseCall>,
}

impl Release {
    pub(crate) fn new(claim: Claim) -> Self {
        let call: ReleaseCall = Box::pin(claim.clone().release());
        Self { claim: Some(claim), call: Some(call) }
    }
}

impl Future for Release {
    type Output = Result<ReleaseOutcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.call.as_mut() else { return Poll::Pending };
        let Poll::Ready(outcome) = call.as_mut().poll(context) else { return Poll::Pending };
        self.call = None;
        if let (Some(claim), true) = (self.claim.take(), outcome.is_err()) {
            start(claim);
        }
        Poll::Ready(outcome)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let (Some(claim), Some(call)) = (self.claim.take(), self.call.take()) {
            // For cargo xtask soak --undone: shows that torture finds it.
            if cfg!(lockfast_undone = "B14") {
                return start(claim);
            }
            finish(claim, call);
        }
    }
}

/// Gives something back in the background, and is waited for as every undoing is.
pub(crate) fn work<T: Send + 'static>(
    store: &Arc<Store>,
    work: impl Future<Output = T> + Send + 'static,
) {
    let counted = Counted::new(store, None);
    store.keeper.runtime().spawn(async move {
        let _ = work.await;
        drop(counted);
    });
}

/// How many claims of a store are being undone, for whoever wants to wait for the end of it, and
/// what nobody waits for any more.
#[derive(Default)]
pub(crate) struct Undoing {
    pending: Mutex<Pending>,
    overdue: Mutex<Overdue>,
    done: Notify,
    done_for_threads: Condvar,
}

/// What is being undone.
#[derive(Default)]
struct Pending {
    count: usize,
    /// How many claims on each lock.
    names: HashMap<LockName, usize>,
}

impl Undoing {
    pub(crate) async fn finished(&self) {
        self.until(|pending| pending.count == 0).await;
    }

    /// The same for the claims on one lock.
    pub(crate) async fn finished_of(&self, name: &LockName) {
        self.until(|pending| !pending.names.contains_key(name)).await;
    }

    async fn until(&self, is_done: impl Fn(&Pending) -> bool) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if is_done(&self.pending()) {
                return;
            }
            done.await;
        }
    }

    /// Blocks the thread until nothing is being undone, but not longer than `limit`.
    pub(crate) fn wait_blocking(&self, limit: Duration) {
        let pending = self.pending();
        let is_open = |pending: &mut Pending| pending.count > 0;
        // Whether it was long enough is nothing that the caller could act on.
        let _ = self.done_for_threads.wait_timeout_while(pending, limit, is_open);
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places in lines that could not be given up within their ttl.
#[derive(Default)]
struct Overdue {
    entries: Vec<Entry>,
    /// Whether somebody tries it again.
    is_tried: bool,
}

impl Undoing {
    fn owe(store: &Arc<Store>, entry: Entry) {
        let mut overdue = store.undoing.overdue();
        if overdue.entries.len() < OVERDUE_MAX {
            overdue.entries.push(entry);
        }
        if !std::mem::replace(&mut overdue.is_tried, true) {
            store.keeper.runtime().spawn(give_up_overdue(Arc::downgrade(store)));
        }
    }

    fn overdue(&self) -> MutexGuard<'_, Overdue> {
        self.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tries one of them now and then, and when that is answered all the others. It does not keep the
/// store: without its connections nobody has a place in a line.
async fn give_up_overdue(store: Weak<Store>) {
    loop {
        tokio::time::sleep(OVERDUE_EVERY.mul_f64(0.5 + jitter())).await;
        let Some(store) = store.upgrade() else { return };
        let claim = |entry| Claim { store: Arc::clone(&store), entry };
        let first = store.undoing.overdue().entries.first().cloned();
        if let Some(first) = first
            && claim(first).release().await.is_err()
        {
            continue;
        }
        let mut overdue = store.undoing.overdue();
        overdue.is_tried = false;
        for entry in std::mem::take(&mut overdue.entries).into_iter().skip(1) {
            start(claim(entry));
        }
        return;
    }
}

/// One that is counted, however it ends.
struct Counted {
    store: Arc<Store>,
    name: Option<LockName>,
}

impl Counted {
    fn new(store: &Arc<Store>, name: Option<LockName>) -> Self {
        let mut pending = store.undoing.pending();
        pending.count += 1;
        if let Some(name) = &name {
            *pending.names.entry(name.clone()).or_default() += 1;
        }
        drop(pending);
        Self { store: Arc::clone(store), name }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let undoing = &self.store.undoing;
        let mut pending = undoing.pending();
        pending.count -= 1;
        if let Some(name) = &self.name
            && let Some(count) = pending.names.get_mut(name)
        {
            *count -= 1;
            if *count == 0 {
                pending.names.remove(name);
            }
        }
        // Also those who wait for one lock only.
        undoing.done.notify_waiters();
        if pending.count == 0 {
            undoing.done_for_threads.notify_all();
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

    /// Undoes it now. Until the store has answered, that goes on in the background.
    pub(crate) async fn release(mut self) {
        if let Some(claim) = self.0.take() {
            // Nobody relies on it: it is asked again if it failed.
            let _ = Release::new(claim).await;
        }
    }
}

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            start(claim);
        }
    }
}
