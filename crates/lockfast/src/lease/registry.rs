//! Which leases of a store are alive, so that the store's word about a holder or a session finds
//! its leases. A holder is entered before its acquisition is sent: a loss that is told before the
//! lease exists is kept for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lockfast_core::{HolderId, LossCause, LossReport, SessionId};

use super::cell::LeaseCell;
use super::sessions::Sessions;
use super::state::Event;

/// The holders of a store that want a lock or have one.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    entries: HashMap<HolderId, Entry>,
    sessions: Sessions,
    /// How many have ever asked.
    asked: u64,
}

enum Entry {
    /// It asks for a lock. A loss that the store tells now is that of what it is about to learn.
    Asking {
        number: u64,
        lost: Option<LossCause>,
        /// The session of what it is about to learn, where the store has told of one since.
        moved: Option<SessionId>,
    },
    Holding {
        cell: Weak<LeaseCell>,
        session: Option<SessionId>,
    },
}

impl Registry {
    /// A holder is about to ask for a lock.
    pub(crate) fn ask(&self, holder: HolderId) {
        let inner = &mut *self.lock();
        inner.asked += 1;
        inner
            .entries
            .insert(holder, Entry::Asking { number: inner.asked, lost: None, moved: None });
    }

    /// A holder was granted what it asked for.
    pub(crate) fn hold(&self, cell: &Arc<LeaseCell>, session: Option<SessionId>) {
        let lost = {
            let inner = &mut *self.lock();
            let (told, moved) = match inner.entries.remove(&cell.holder) {
                Some(Entry::Asking { lost, moved, .. }) => (lost, moved),
                _ => (None, None),
            };
            // The grant may have been on its way for long.
            let session = moved.or(session);
            let entry = Entry::Holding { cell: Arc::downgrade(cell), session };
            inner.entries.insert(cell.holder, entry);
            let ended = session.and_then(|session| inner.sessions.join(session, cell.holder).err());
            told.or(ended)
        };
        if let Some(cause) = lost {
            cell.apply(Event::Lost(cause), cell.store.now());
        }
    }

    /// A holder neither has nor wants anything any more.
    pub(crate) fn forget(&self, holder: HolderId) {
        let inner = &mut *self.lock();
        if let Some(Entry::Holding { session: Some(session), .. }) = inner.entries.remove(&holder) {
            inner.sessions.leave(session, holder);
        }
    }

    /// The store tells what it was not asked for.
    pub(crate) fn tell(&self, report: LossReport) {
        match report {
            LossReport::Lease(holder, cause) => self.lose(holder, cause),
            LossReport::Session(session, cause) => self.end_session(session, &cause),
            LossReport::Moved(holder, session) => self.move_to(holder, session),
        }
    }

    fn lose(&self, holder: HolderId, cause: LossCause) {
        let cell = match self.lock().entries.get_mut(&holder) {
            // For cargo xtask soak --undone: shows that torture finds it.
            Some(Entry::Asking { .. }) if cfg!(lockfast_undone = "B42") => return,
            Some(Entry::Asking { lost, .. }) => return *lost = Some(cause),
            Some(Entry::Holding { cell, .. }) => cell.upgrade(),
            None => None,
        };
        if let Some(cell) = cell {
            cell.apply(Event::Lost(cause), cell.store.now());
        }
    }

    /// A session ended, and its leases with it. Those who ask may be granted something in it that
    /// they have not heard of yet.
    fn end_session(&self, session: SessionId, cause: &LossCause) {
        let cells: Vec<Arc<LeaseCell>> = {
            let Inner { entries, sessions, asked } = &mut *self.lock();
            let members = sessions.end(session, cause.clone(), *asked);
            if sessions.ended_count() > sessions.keep_max(entries.len()) {
                let numbers = entries.values().filter_map(|entry| match entry {
                    Entry::Asking { number, .. } => Some(*number),
                    Entry::Holding { .. } => None,
                });
                sessions.forget_ended_before(numbers.min());
            }
            let find = |holder| match entries.get(&holder) {
                Some(Entry::Holding { cell, .. }) => cell.upgrade(),
                _ => None,
            };
            members.into_iter().filter_map(find).collect()
        };
        for cell in cells {
            cell.apply(Event::Lost(cause.clone()), cell.store.now());
        }
    }

    fn move_to(&self, holder: HolderId, to: SessionId) {
        let (cell, cause) = {
            let inner = &mut *self.lock();
            let (cell, session) = match inner.entries.get_mut(&holder) {
                Some(Entry::Holding { cell, session }) => (cell, session),
                Some(Entry::Asking { moved, .. }) => return *moved = Some(to),
                None => return,
            };
            if let Some(from) = session.replace(to) {
                inner.sessions.leave(from, holder);
            }
            match inner.sessions.join(to, holder) {
                Ok(()) => return,
                Err(cause) => (cell.upgrade(), cause),
            }
        };
        if let Some(cell) = cell {
            cell.apply(Event::Lost(cause), cell.store.now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
