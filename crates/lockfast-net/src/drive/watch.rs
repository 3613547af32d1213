//! The keeper's part: it drives the link wherever the ear does not, and looks at it once in a
//! while as long as it is in use.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use super::{Drive, lock, remember};

/// How long an ear that does not hear goes unnoticed, and a server that does not answer beyond its
/// limit.
const TICK: Duration = Duration::from_millis(100);
/// How long the keeper listens before it finds out whether the ear does.
const TRIAL: Duration = Duration::from_millis(5);

/// What the keeper knows of the ear.
#[derive(Default)]
pub(super) struct Watch {
    timer: Option<Pin<Box<Sleep>>>,
    /// The ear's beats when it was last looked at.
    beats: u64,
    /// Whether the keeper was called since then.
    is_called: bool,
}

impl Watch {
    /// Drives for ever.
    pub(super) async fn keep(mut self, drive: Arc<Drive>) {
        poll_fn(|context| self.poll(&drive, context)).await;
    }

    fn poll(&mut self, drive: &Arc<Drive>, context: &mut Context<'_>) -> Poll<()> {
        remember(&drive.keeper, context);
        loop {
            if drive.is_called.swap(false, Ordering::SeqCst) {
                self.is_called = true;
                listen(drive);
            }
            drive.turn();
            match &mut self.timer {
                Some(timer) => {
                    if timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.timer = None;
                    self.look(drive);
                }
                None => {
                    drive.is_timed.store(true, Ordering::SeqCst);
                    if is_active(drive) {
                        self.timer = Some(Box::pin(tokio::time::sleep(TRIAL)));
                        continue;
                    }
                    // Whoever asks from now on wakes the keeper.
                    drive.is_timed.store(false, Ordering::SeqCst);
                    if !is_active(drive) {
                        listen(drive);
                        // What listens is told only after it was looked at.
                        drive.turn();
                        return Poll::Pending;
                    }
                    drive.is_stirred.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    /// Leaves the connection to the ear if that drives, and listens otherwise.
    fn look(&mut self, drive: &Drive) {
        let beats = drive.beats.load(Ordering::SeqCst);
        let is_heard = beats != self.beats;
        self.beats = beats;
        let is_called = std::mem::take(&mut self.is_called);
        if !is_active(drive) {
            // The timer is not set again, and the keeper listens.
            return;
        }
        {
            let mut home = lock(&drive.home);
            home.is_deaf = home.runtime.is_some() && !is_heard;
        }
        if is_heard && !is_called {
            if let Some(plug) = &*lock(&drive.plug) {
                plug.ignore();
            }
        } else {
            listen(drive);
        }
        // Whoever called before that counted on the keeper.
        if drive.is_called.load(Ordering::SeqCst) {
            listen(drive);
        }
        self.timer = Some(Box::pin(tokio::time::sleep(TICK)));
    }
}

/// Whether there is something to look after.
fn is_active(drive: &Drive) -> bool {
    drive.is_stirred.swap(false, Ordering::SeqCst) | drive.is_flying.load(Ordering::SeqCst)
}

/// Lets the keeper's runtime be told of what arrives, and of what has arrived.
fn listen(drive: &Drive) {
    drive.has_arrived.store(true, Ordering::SeqCst);
    if let Some(plug) = &*lock(&drive.plug) {
        // Without a descriptor to spare the connection is looked at all the same, at each tick.
        let _ = plug.listen();
    }
}
