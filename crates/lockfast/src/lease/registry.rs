//! Which leases of a store are alive, so that the store's word about a holder finds its lease. A
//! holder is entered before its acquisition is sent: a loss that is told before the lease exists
//! is kept for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lockfast_core::{HolderId, LossCause, Moment};

use super::cell::LeaseCell;
use super::state::Event;

/// The holders of a store that want a lock or have one.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashMap<HolderId, Entry>>);

enum Entry {
    /// It asks for a lock. A loss that the store tells now is that of what it is about to learn.
    Asking(Option<LossCause>),
    Holding(Weak<LeaseCell>),
}

impl Registry {
    /// A holder is about to ask for a lock.
    pub(crate) fn ask(&self, holder: HolderId) {
        self.lock().insert(holder, Entry::Asking(None));
    }

    /// A holder was granted what it asked for.
    pub(crate) fn hold(&self, cell: &Arc<LeaseCell>) {
        let before = self.lock().insert(cell.holder, Entry::Holding(Arc::downgrade(cell)));
        if let Some(Entry::Asking(Some(cause))) = before {
            cell.apply(Event::Lost(cause), Moment::now());
        }
    }

    /// A holder neither has nor wants anything any more.
    pub(crate) fn forget(&self, holder: HolderId) {
        self.lock().remove(&holder);
    }

    /// The store says that a holder's lease ended.
    pub(crate) fn lose(&self, holder: HolderId, cause: LossCause) {
        let cell = match self.lock().get_mut(&holder) {
            // For cargo xtask soak --undone: shows that torture finds it.
            Some(Entry::Asking(_)) if cfg!(lockfast_undone = "B42") => return,
            Some(Entry::Asking(lost)) => return *lost = Some(cause),
            Some(Entry::Holding(cell)) => cell.upgrade(),
            None => None,
        };
        if let Some(cell) = cell {
            cell.apply(Event::Lost(cause), Moment::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
