//! The keeper's loop: what is due is looked at, what has to be renewed is sent in batches, what
//! passed its deadline is announced. It decides nothing; `state` does.

use std::cmp::{self, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockfast_core::{Error, Moment, RenewOutcome, RenewRequest, jitter};

use super::cell::LeaseCell;
use super::keeper::Keeper;
use super::state::{Action, Event, Failure, Renewal};
use crate::store::Store;

/// How many leases one renewal request carries.
const BATCH_MAX: usize = 512;

/// A lease in the order of when it is to be looked at.
struct Entry {
    due_ns: u64,
    cell: Arc<LeaseCell>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due_ns == other.due_ns
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.due_ns.cmp(&other.due_ns)
    }
}

/// The keeper thread's own state.
pub(crate) struct Driver {
    keeper: Arc<Keeper>,
    schedule: BinaryHeap<Reverse<Entry>>,
    /// How many entries were live when the schedule was last cleaned.
    live_at_cleaning: usize,
}

impl Driver {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, schedule: BinaryHeap::new(), live_at_cleaning: 0 }
    }

    pub(crate) fn run(mut self) {
        loop {
            for cell in self.keeper.take_tracked() {
                self.enter(cell);
            }
            if self.keeper.take_jump() {
                self.enter_all_again();
            }
            self.look_at_what_is_due();
            self.clean();
            let next = self.schedule.peek().map(|Reverse(entry)| entry.due_ns);
            self.keeper.sleep_until(next.map(Moment::from_host_ns));
        }
    }

    fn enter(&mut self, cell: Arc<LeaseCell>) {
        let due = cell.next_look();
        if let Some(due) = due {
            cell.scheduled_ns.store(due.host_ns(), Ordering::Relaxed);
            self.schedule.push(Reverse(Entry { due_ns: due.host_ns(), cell }));
        }
    }

    /// A clock was set ahead, so that leases are due sooner than they were entered for.
    fn enter_all_again(&mut self) {
        for Reverse(Entry { due_ns, cell }) in std::mem::take(&mut self.schedule) {
            if cell.scheduled_ns.load(Ordering::Relaxed) == due_ns {
                self.enter(cell);
            }
        }
    }

    fn look_at_what_is_due(&mut self) {
        let now = Moment::now();
        let mut batches: Vec<Batch> = Vec::new();
        let mut seen = Vec::new();
        while let Some(Reverse(entry)) = self.schedule.peek() {
            let slack = entry.cell.state().slack();
            if entry.due_ns > (now + slack).host_ns() {
                break;
            }
            let Some(Reverse(Entry { due_ns, cell })) = self.schedule.pop() else {
                break;
            };
            if cell.scheduled_ns.load(Ordering::Relaxed) != due_ns {
                continue;
            }
            let tick = Event::Tick { slack, jitter: jitter() };
            if cell.apply(tick, cell.store.now()) == Action::Renew {
                let late = Duration::from_nanos(now.host_ns().saturating_sub(due_ns));
                Batch::add(&mut batches, Arc::clone(&cell), late);
            }
            seen.push(cell);
        }
        for cell in seen {
            self.enter(cell);
        }
        for batch in batches {
            self.keeper.runtime().spawn(batch.renew());
        }
    }

    /// Drops leases that are over, when they are more than those that are not.
    fn clean(&mut self) {
        if self.schedule.len() > 2 * self.live_at_cleaning + 4 * BATCH_MAX {
            self.schedule.retain(|Reverse(entry)| !entry.cell.state().is_over());
            self.live_at_cleaning = self.schedule.len();
        }
    }
}

/// Leases of one store that are renewed together.
struct Batch {
    store: Arc<Store>,
    cells: Vec<Arc<LeaseCell>>,
    /// How long an answer may take for the first of them, and about as long for the others.
    request_timeout: Duration,
    /// How late the latest of them is.
    late: Duration,
}

impl Batch {
    /// Adds a lease to the batch of its store that has room. One that can wait for an answer does not
    /// go with one that cannot, which would cut its time short.
    fn add(batches: &mut Vec<Self>, cell: Arc<LeaseCell>, late: Duration) {
        let request_timeout = cell.state().policy.request_timeout;
        let open = batches.iter_mut().rev().find(|batch| {
            Arc::ptr_eq(&batch.store, &cell.store)
                && are_alike(batch.request_timeout, request_timeout)
                && batch.cells.len() < BATCH_MAX
        });
        match open {
            Some(batch) => {
                batch.late = batch.late.max(late);
                batch.cells.push(cell);
            }
            None => {
                let store = Arc::clone(&cell.store);
                batches.push(Self { store, cells: vec![cell], request_timeout, late });
            }
        }
    }

    /// Asks the store for more time for all of these that are still wanted, and tells each what
    /// came of it.
    async fn renew(self) {
        let Self { store, cells, late, .. } = self;
        let sent = store.now();
        let mut request_timeout = Duration::MAX;
        let mut asked: Vec<(Arc<LeaseCell>, Renewal)> = Vec::with_capacity(cells.len());
        let mut requests: Vec<RenewRequest> = Vec::with_capacity(cells.len());
        for cell in cells {
            let mut state = cell.state();
            let Some(renewal) = state.send(sent) else { continue };
            request_timeout = request_timeout.min(state.policy.request_timeout);
            drop(state);
            let Renewal { ttl, lock_delay, .. } = renewal;
            let (name, holder) = (cell.name.clone(), cell.holder);
            requests.push(RenewRequest { name, holder, ttl, lock_delay });
            asked.push((cell, renewal));
        }
        if asked.is_empty() {
            return;
        }
        let answer = store.within(request_timeout, store.backend.renew(requests)).await;
        store.telemetry.renewed(&answer, asked.len(), late);
        let outcomes = match answer {
            Ok(outcomes) if outcomes.len() == asked.len() => outcomes,
            Ok(outcomes) => return fail_all(&asked, &wrong_count(asked.len(), outcomes.len())),
            Err(error) => return fail_all(&asked, &error),
        };
        for ((cell, renewal), outcome) in asked.iter().zip(outcomes) {
            cell.answer(match outcome {
                RenewOutcome::Renewed => Event::Renewed(*renewal),
                RenewOutcome::Lost(cause) => Event::Lost(cause),
                RenewOutcome::Unanswered(error) => failed(*renewal, &error),
            });
        }
    }
}

/// Whether neither of two spans is twice as long as the other, or more.
fn are_alike(one: Duration, other: Duration) -> bool {
    one.max(other) < one.min(other) * 2
}

fn fail_all(asked: &[(Arc<LeaseCell>, Renewal)], error: &Error) {
    for (cell, renewal) in asked {
        cell.answer(failed(*renewal, error));
    }
}

fn failed(renewal: Renewal, error: &Error) -> Event {
    Event::RenewalFailed { renewal, failure: Failure::from(error), jitter: jitter() }
}

fn wrong_count(asked: usize, answered: usize) -> Error {
    Error::new(
        lockfast_core::ErrorKind::Internal,
        format!("the store answered {answered} of {asked} renewals"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B149, P3: a lease that must be answered soon does not cut short the time of others.
    #[test]
    fn leases_with_like_times_are_renewed_together() {
        let table =
            [(5_000, 5_000, true), (5_000, 2_501, true), (50, 5_000, false), (50, 99, true)];
        for (one, other, expected) in table {
            let [one, other] = [one, other].map(Duration::from_millis);
            assert_eq!(are_alike(one, other), expected, "{one:?} {other:?}");
            assert_eq!(are_alike(other, one), expected, "{one:?} {other:?}");
        }
    }
}
