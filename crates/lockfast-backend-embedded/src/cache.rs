//! The queues and the store's row as this connection last wrote or read them. They are as good as
//! new while nobody else has written to the database, which SQLite tells within the transaction.

use std::collections::HashMap;

use lockfast_core::LockName;

use crate::queue::Queue;
use crate::wire::Meta;

/// Queues that need not be read again, the empty ones included.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    queues: HashMap<LockName, Queue>,
    meta: Option<Meta>,
    version: Option<i64>,
}

impl Cache {
    /// How many queues are kept.
    const QUEUES_MAX: usize = 8192;

    /// Forgets everything if the database is not of this version, as seen by the transaction that
    /// is open.
    pub(crate) fn check(&mut self, version: i64) {
        if self.version != Some(version) {
            self.clear();
            self.version = Some(version);
        }
    }

    /// Takes a queue out, to be changed and put back once that is committed.
    pub(crate) fn take(&mut self, name: &LockName) -> Option<Queue> {
        self.queues.remove(name)
    }

    /// Takes the store's row out, to be put back like the queues.
    pub(crate) fn take_meta(&mut self) -> Option<Meta> {
        self.meta.take()
    }

    /// Puts everything back.
    pub(crate) fn keep(&mut self, queues: HashMap<LockName, Queue>, meta: Meta) {
        self.meta = Some(meta);
        if self.queues.len() + queues.len() > Self::QUEUES_MAX {
            self.queues.clear();
        }
        if queues.len() <= Self::QUEUES_MAX {
            self.queues.extend(queues);
        }
    }

    /// Forgets everything, because it is not known what was committed.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        self.meta = None;
        self.version = None;
    }
}
