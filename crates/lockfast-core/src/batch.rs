//! Natural batching: one writer per store, and what arrives while a batch is in flight forms the
//! next one. There are no timers, so a lone request pays nothing for it.

use std::sync::{Mutex, PoisonError};

/// The queue in front of a store's only writer.
///
/// Whoever pushes into an empty inbox wakes the writer; the writer takes everything that is
/// there. A request carries the way its answer goes back; when the asker is gone by then, the
/// answer is dropped and the rest of the batch is not disturbed.
pub struct Inbox<T> {
    waiting: Mutex<Vec<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<T> Inbox<T> {
    /// An empty inbox whose writer is woken by `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { waiting: Mutex::new(Vec::new()), wake: Box::new(wake) }
    }

    /// Adds a request, and wakes the writer if it was the first.
    pub fn push(&self, item: T) {
        let was_empty = {
            let mut waiting = self.lock();
            waiting.push(item);
            waiting.len() == 1
        };
        if was_empty {
            (self.wake)();
        }
    }

    /// Takes everything, in order, into the empty `batch`; its room is used again.
    pub fn take_into(&self, batch: &mut Vec<T>) {
        debug_assert!(batch.is_empty(), "a batch must be finished before the next");
        std::mem::swap(&mut *self.lock(), batch);
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_writer_is_woken_once_per_batch() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox::new({
            let wakes = Arc::clone(&wakes);
            move || {
                wakes.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut batch = Vec::new();
        for round in 1..=3 {
            (0..5).for_each(|item| inbox.push(item));
            assert_eq!((inbox.len(), inbox.is_empty()), (5, false));
            inbox.take_into(&mut batch);
            assert_eq!(batch, [0, 1, 2, 3, 4]);
            assert_eq!(wakes.load(Ordering::SeqCst), round);
            batch.clear();
        }
    }
}
