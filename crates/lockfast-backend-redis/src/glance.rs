//! A caller that is alone gives the core away a few times before it goes to sleep. Where server,
//! keeper and caller share a core, the answer is there when it gets the core back, which saves
//! putting its thread to sleep and waking it. Where that does not help it is soon given up.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use lockfast_core::Moment;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// How long a glance may take, and how often the core is given away in it.
const TIME_MAX: Duration = Duration::from_micros(40);
const YIELDS_MAX: u32 = 8;
const CREDIT_MAX: i32 = 32;
/// Without credit, one of so many requests tries whether things have changed.
const TRY_EVERY: u32 = 256;

/// Whether glances have paid off.
#[derive(Debug, Default)]
pub(crate) struct Glance {
    credit: AtomicI32,
    skipped: AtomicU32,
    askers: AtomicI32,
}

impl Glance {
    /// Waits for an answer.
    pub(crate) async fn receive<T>(
        &self,
        mut answer: oneshot::Receiver<T>,
    ) -> Result<T, oneshot::error::RecvError> {
        if let Some(received) = self.glance(&mut answer) {
            return Ok(received);
        }
        answer.await
    }

    fn glance<T>(&self, answer: &mut oneshot::Receiver<T>) -> Option<T> {
        let is_alone = self.askers.fetch_add(1, Ordering::Relaxed) == 0;
        let found = (is_alone && self.is_worthwhile()).then(|| self.look(answer)).flatten();
        self.askers.fetch_sub(1, Ordering::Relaxed);
        found
    }

    fn is_worthwhile(&self) -> bool {
        self.credit.load(Ordering::Relaxed) > 0
            || self.skipped.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY)
    }

    fn look<T>(&self, answer: &mut oneshot::Receiver<T>) -> Option<T> {
        let start = Moment::now();
        for tries in 0..=YIELDS_MAX {
            if tries > 0 {
                rustix::thread::sched_yield();
            }
            match answer.try_recv() {
                Ok(received) => {
                    let credit = self.credit.load(Ordering::Relaxed);
                    self.credit.store((credit + 4).min(CREDIT_MAX), Ordering::Relaxed);
                    return Some(received);
                }
                Err(TryRecvError::Closed) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if Moment::now().since(start) > TIME_MAX {
                break;
            }
        }
        let credit = self.credit.load(Ordering::Relaxed);
        self.credit.store((credit - 8).max(0), Ordering::Relaxed);
        None
    }
}
