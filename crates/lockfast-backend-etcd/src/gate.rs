//! One request of a holder at a time: whatever a request did is known before the next one starts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_core::HolderId;
use tokio::sync::{Mutex as Queue, MutexGuard, Notify};

use crate::store::lock;

#[derive(Debug, Default)]
struct Gate {
    busy: Queue<()>,
    /// How many want to pass.
    wanting: AtomicUsize,
    give_way: Notify,
}

/// The gates of all holders that ask for something.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<HashMap<HolderId, Arc<Gate>>>);

/// A request of a holder.
pub(crate) struct Entering<'a> {
    gates: &'a Gates,
    holder: HolderId,
    gate: Arc<Gate>,
}

impl Gates {
    /// Another request of a holder.
    pub(crate) fn enter(&self, holder: HolderId) -> Entering<'_> {
        let gate = Arc::clone(lock(&self.0).entry(holder).or_default());
        Entering { gates: self, holder, gate }
    }
}

impl Entering<'_> {
    /// Waits until no other request of the holder is under way. One that only waits for its turn
    /// gives way.
    pub(crate) async fn pass(&self) -> MutexGuard<'_, ()> {
        if let Ok(passed) = self.gate.busy.try_lock() {
            return passed;
        }
        let _wanting = Wanting::new(&self.gate);
        self.gate.busy.lock().await
    }

    /// Ends when another request of the holder wants to pass.
    pub(crate) async fn wanted(&self) {
        while self.gate.wanting.load(Ordering::SeqCst) == 0 {
            self.gate.give_way.notified().await;
        }
    }
}

/// One that wants to pass, until it does or gives up.
struct Wanting<'a>(&'a Gate);

impl<'a> Wanting<'a> {
    fn new(gate: &'a Gate) -> Self {
        gate.wanting.fetch_add(1, Ordering::SeqCst);
        gate.give_way.notify_one();
        Self(gate)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.wanting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let mut gates = lock(&self.gates.0);
        // The map's own and this one.
        if Arc::strong_count(&self.gate) <= 2 {
            gates.remove(&self.holder);
        }
    }
}
