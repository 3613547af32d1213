//! Who waits for a change of a node.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

const CHANGED: u8 = 1;
const DELETED: u8 = 2;
/// It was deleted after it had been changed.
const CHANGED_AND_DELETED: u8 = 4;
/// The connection broke: changes may have been missed.
const MISSED: u8 = 8;

/// Hears of changes of a node after it was read. What is told is in the order in which it happened,
/// for all nodes that are watched in one session.
#[derive(Debug, Default)]
pub(crate) struct NodeWatcher {
    told: AtomicU8,
    /// Whether nothing but the node's end is waited for.
    awaits_end: bool,
    notify: Notify,
}

impl NodeWatcher {
    /// One that is woken when the node is deleted, not when its data is changed.
    pub(crate) fn of_end() -> Self {
        Self { awaits_end: true, ..Self::default() }
    }

    /// Waits for what was not told yet.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Has it looked at again.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Whether anything was told.
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire) != 0
    }

    fn is_changed(&self) -> bool {
        self.told.load(Ordering::Acquire) & CHANGED != 0
    }

    /// Whether it was deleted after its data was changed.
    pub(crate) fn is_changed_and_deleted(&self) -> bool {
        self.told.load(Ordering::Acquire) & CHANGED_AND_DELETED != 0
    }

    pub(super) fn tell_changed(&self) {
        self.told.fetch_or(CHANGED, Ordering::AcqRel);
        if !self.awaits_end {
            self.notify.notify_one();
        }
    }

    pub(super) fn tell_deleted(&self) {
        let told = if self.is_changed() { CHANGED_AND_DELETED } else { DELETED };
        self.told.fetch_or(told, Ordering::AcqRel);
        self.notify.notify_one();
    }

    pub(super) fn tell_missed(&self) {
        self.told.fetch_or(MISSED, Ordering::AcqRel);
        self.notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deleted_after_a_change_is_told_apart() {
        let watcher = NodeWatcher::of_end();
        assert!(!watcher.is_told());
        watcher.tell_changed();
        assert!(watcher.is_changed() && !watcher.is_changed_and_deleted());
        watcher.tell_deleted();
        assert!(watcher.is_changed_and_deleted());
        let moved = NodeWatcher::of_end();
        moved.tell_deleted();
        // It may have been made again, and changed then.
        moved.tell_changed();
        assert!(moved.is_told() && !moved.is_changed_and_deleted());
        let broken = NodeWatcher::default();
        broken.tell_missed();
        assert!(broken.is_told() && !broken.is_changed());
    }
}
