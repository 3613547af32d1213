//! Leases that nobody renews: the store is asked now and then whether it still knows them, which a
//! renewal would tell otherwise. Not every store tells at once that a lock was taken away.
//!
//! One task of a store looks after all of them. It ends some time after the last one, so that whoever
//! takes and gives back many in a row does not start it each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_core::time::Clock;
use lockfast_core::{HolderView, LockView, Moment, Query, RenewOutcome, RenewRequest, Result};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::cell::LeaseCell;
use super::state::Event;

/// How often the store is asked at least.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The leases of a store that are looked after.
pub(crate) struct Lookout {
    clock: Clock,
    watched: Mutex<Watched>,
    /// Rings when the task has to wake sooner than it wanted.
    sooner: Notify,
}

#[derive(Default)]
struct Watched {
    /// By their numbers.
    leases: BTreeMap<u64, Entry>,
    /// How many there have ever been.
    count: u64,
    /// When the task wakes next; `None` while there is no task.
    wakes: Option<Moment>,
}

struct Entry {
    cell: Arc<LeaseCell>,
    next: Next,
}

enum Next {
    /// The store is asked at this moment.
    Due(Moment),
    /// It is being asked, or has said that the lease is lost.
    Asked(AbortHandle),
}

impl Lookout {
    /// One that goes by this clock.
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let (watched, sooner) = (Mutex::default(), Notify::new());
        let lookout = Arc::new(Self { clock, watched, sooner });
        let weak = Arc::downgrade(&lookout);
        lookout.clock.on_advance(move || {
            if let Some(lookout) = weak.upgrade() {
                lookout.sooner.notify_one();
            }
        });
        lookout
    }

    /// Looks after a lease that begins now, until it is forgotten; its number.
    pub(crate) fn watch(self: &Arc<Self>, cell: &Arc<LeaseCell>, now: Moment) -> u64 {
        let due = now + interval(cell);
        let mut watched = self.watched();
        watched.count += 1;
        let number = watched.count;
        watched.leases.insert(number, Entry { cell: Arc::clone(cell), next: Next::Due(due) });
        self.wake_by(due, &mut watched, cell);
        number
    }

    /// Whoever had the lease has given it back, or is about to.
    pub(crate) fn forget(&self, number: u64) {
        let entry = self.watched().leases.remove(&number);
        if let Some(Entry { next: Next::Asked(asking), .. }) = entry {
            asking.abort();
        }
    }

    fn wake_by(self: &Arc<Self>, due: Moment, watched: &mut Watched, cell: &LeaseCell) {
        match watched.wakes {
            Some(wakes) if wakes.host_ns() <= due.host_ns() => return,
            Some(_) => self.sooner.notify_one(),
            None => drop(cell.store.keeper.runtime().spawn(Arc::clone(self).run())),
        }
        watched.wakes = Some(due);
    }

    /// The task. It keeps no lease, nor the store, while it sleeps.
    async fn run(self: Arc<Self>) {
        while let Some(wakes) = self.ask_what_is_due() {
            let left = wakes.remaining(self.clock.now());
            // Either is a reason to look.
            let _ = tokio::time::timeout(left, self.sooner.notified()).await;
        }
    }

    /// Begins to ask for each lease whose time has come; when the next one's comes. `None` when there is
    /// none at all, and the task ends.
    fn ask_what_is_due(self: &Arc<Self>) -> Option<Moment> {
        let now = self.clock.now();
        let mut watched = self.watched();
        let mut next: Option<Moment> = None;
        for (number, entry) in &mut watched.leases {
            match entry.next {
                Next::Due(due) if due.has_passed(now) => {
                    let asking = Arc::clone(self).ask(*number, Arc::clone(&entry.cell));
                    let asking = tokio::spawn(asking);
                    entry.next = Next::Asked(asking.abort_handle());
                }
                Next::Due(due) => next = Some(next.map_or(due, |next| next.earlier_of(due))),
                Next::Asked(_) => {}
            }
        }
        if watched.leases.is_empty() {
            watched.wakes = None;
        } else {
            watched.wakes = Some(next.unwrap_or(now + LOOK_EVERY));
        }
        watched.wakes
    }

    async fn ask(self: Arc<Self>, number: u64, cell: Arc<LeaseCell>) {
        if is_known(&cell).await {
            let due = self.clock.now() + interval(&cell);
            let mut watched = self.watched();
            if let Some(entry) = watched.leases.get_mut(&number) {
                entry.next = Next::Due(due);
                self.wake_by(due, &mut watched, &cell);
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interval(cell: &LeaseCell) -> Duration {
    (cell.state().policy.ttl / 6).min(LOOK_EVERY)
}

/// Asks the store once. What it does not know is lost; when it does not answer, that is not known.
async fn is_known(cell: &Arc<LeaseCell>) -> bool {
    let (store, policy) = (&cell.store, cell.state().policy);
    let limit = policy.request_timeout;
    let look = store.backend.inspect(Query::Name(cell.name.clone()));
    let seen = store.within(limit, look).await;
    if !is_missing(&seen, cell) {
        return true;
    }
    // It does not create, and it tells the cause.
    let left = cell.state().deadline.remaining(store.now());
    let ttl = store.backend.profile().ttl.fit(left);
    let (name, lock_delay) = (cell.name.clone(), policy.lock_delay);
    let request = RenewRequest { name, holder: cell.holder, ttl, lock_delay };
    let answer = store.within(limit, store.backend.renew(vec![request])).await;
    let Ok([RenewOutcome::Lost(cause)]) = answer.as_deref() else { return true };
    cell.apply(Event::Lost(cause.clone()), store.now());
    false
}

/// Whether the store has answered, and the lease is not there.
fn is_missing(seen: &Result<Vec<LockView>>, cell: &LeaseCell) -> bool {
    // A store may not be able to tell which grant it is; a program that is not Lockfast has neither
    // label nor fence.
    let is_ours =
        |holder: &HolderView| holder.fence.map_or(holder.label.is_some(), |it| it == cell.fence);
    let Ok(views) = seen else { return false };
    !views.iter().flat_map(|view| &view.holders).any(is_ours)
}
