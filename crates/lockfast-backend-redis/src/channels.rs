//! The channels on which a node of a cluster pushes to us: one for each lock that we wait for,
//! because what a script publishes must be where the lock is.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::lock;
use crate::wire::Pipeline;

/// So many are kept although nobody waits, so that the next one who does need not subscribe.
const IDLE_MAX: usize = 16;

/// What this connection has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    known: Mutex<HashSet<String>>,
    /// Acquisitions on their way, which may come to wait.
    in_flight: AtomicUsize,
}

impl Channels {
    /// Subscribes to what is not known yet. When nobody waits for anything, all others go.
    pub(crate) fn write(&self, pipeline: &mut Pipeline, wanted: Vec<String>, is_idle: bool) {
        let mut known = lock(&self.known);
        let is_idle = is_idle && self.in_flight.load(Ordering::Acquire) == 0;
        if is_idle && wanted.is_empty() && known.len() > IDLE_MAX {
            pipeline.unanswered(&["SUNSUBSCRIBE"]);
            known.clear();
        }
        self.in_flight.fetch_add(wanted.len(), Ordering::AcqRel);
        for channel in wanted {
            if !known.contains(&channel) {
                pipeline.all(&["SSUBSCRIBE", &channel]);
                known.insert(channel);
            }
        }
    }

    /// So many acquisitions are answered or lost.
    pub(crate) fn settle(&self, count: usize) {
        let less = |now: usize| Some(now.saturating_sub(count));
        let _ = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// The subscriptions may not be there any more; to subscribe again does no harm.
    pub(crate) fn forget(&self) {
        lock(&self.known).clear();
    }
}
