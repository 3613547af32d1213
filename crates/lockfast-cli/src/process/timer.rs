//! A timer on the clock that also counts suspend, for a task: tokio's own stops while the machine
//! sleeps.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use lockfast::Moment;
use lockfast_core::Alarm;
use tokio::sync::Notify;

/// A timer that is due at a [`Moment`], also when the machine slept past it. It has a thread of
/// its own.
pub(crate) struct Timer(Arc<Shared>);

struct Shared {
    alarm: Alarm,
    /// When it is due, and the number of the wait that wants to know.
    due: std::sync::Mutex<Option<(Moment, u64)>>,
    rung: AtomicU64,
    notify: Notify,
    closed: std::sync::atomic::AtomicBool,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the process has no file descriptor or no thread left.
    pub(crate) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            alarm: Alarm::new()?,
            due: std::sync::Mutex::new(None),
            rung: AtomicU64::new(0),
            notify: Notify::new(),
            closed: std::sync::atomic::AtomicBool::new(false),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new().name("timer".to_owned()).spawn(move || thread.run())?;
        Ok(Self(shared))
    }

    /// Waits until `at`; for ever without one.
    ///
    /// # Cancel safety
    /// Safe: the next call sets the timer anew.
    pub(crate) async fn wait(&mut self, at: Option<Moment>) {
        let Some(at) = at else { return std::future::pending().await };
        let wanted = self.0.set(at);
        while self.0.rung.load(Ordering::Acquire) != wanted {
            self.0.notify.notified().await;
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.alarm.ring();
    }
}

impl Shared {
    fn set(&self, at: Moment) -> u64 {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let number =
            due.map_or_else(|| self.rung.load(Ordering::Acquire), |(_, number)| number) + 1;
        *due = Some((at, number));
        self.alarm.ring();
        number
    }

    fn run(&self) {
        while !self.closed.load(Ordering::Acquire) {
            let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
            if self.alarm.wait(due.map(|(at, _)| at)).is_err() {
                return;
            }
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, number)) = *due
                && at.has_passed(Moment::now())
            {
                *due = None;
                self.rung.store(number, Ordering::Release);
                self.notify.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_due_when_it_should_be() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new().unwrap();
            let start = Moment::now();
            for millis in [30, 10, 60, 61] {
                timer.wait(Some(start + Duration::from_millis(millis))).await;
                assert!(Moment::now().since(start) >= Duration::from_millis(millis));
            }
            // A wait that was given up does not end the next one.
            let start = Moment::now();
            let soon = start + Duration::from_millis(500);
            let given_up = tokio::time::timeout(Duration::from_millis(1), timer.wait(Some(soon)));
            assert!(given_up.await.is_err());
            let later = start + Duration::from_millis(550);
            timer.wait(Some(later)).await;
            assert!(later.has_passed(Moment::now()));
        });
    }
}
