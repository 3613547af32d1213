//! What drives a connection: its work is one future that any thread may poll, one at a time. Mostly it is the ear, a task on the runtime of whoever asks, so that neither a request nor
//! its answer has to cross from one thread to another. The keeper's task is the net: it drives
//! whenever something is asked from elsewhere, and whenever the ear does not.

mod ear;
mod socket;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};

use lockfast_core::BoxFuture;
use tokio::runtime::{self, Handle};

pub use socket::{Plug, Raw, Readiness, Socket};

const IDLE: u8 = 0;
const TURNING: u8 = 1;
/// Somebody came while another was at it, who therefore does it once more.
const AGAIN: u8 = 2;

/// A connection's work and who does it.
pub struct Drive {
    runtime: Handle,
    work: Mutex<Option<BoxFuture<'static, ()>>>,
    turning: AtomicU8,
    /// The thread that is at it.
    turner: Mutex<Option<ThreadId>>,
    is_closed: AtomicBool,
    /// Whether somebody was told that something has arrived, and the work was not yet.
    has_arrived: AtomicBool,
    /// The connection, while there is one.
    plug: Mutex<Option<Arc<Plug>>>,
    /// Rises when the connection changes.
    connection: AtomicU64,
    home: Mutex<Home>,
    /// The tasks.
    ear: Mutex<Option<Waker>>,
    keeper: Mutex<Option<Waker>>,
    /// The ear that counts; one with another number is of an earlier home.
    number: AtomicU64,
    /// How often the ear was woken.
    beats: AtomicU64,
    /// Whether something happened since the keeper last looked.
    is_stirred: AtomicBool,
    /// Whether something is in flight.
    is_flying: AtomicBool,
    /// Whether somebody asked who is not at home, since the keeper last looked.
    is_called: AtomicBool,
    /// Whether the keeper will look by itself before long.
    is_timed: AtomicBool,
}

/// The runtime on which the ear is.
#[derive(Default)]
struct Home {
    runtime: Option<runtime::Id>,
    /// Whether there was something that the ear did not do in time.
    is_deaf: bool,
    /// A runtime on which no ear could begin to listen.
    unfit: Option<runtime::Id>,
}

impl Drive {
    /// Nothing is done yet; the keeper's part is on that runtime.
    pub fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            work: Mutex::default(),
            turning: AtomicU8::new(IDLE),
            turner: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_arrived: AtomicBool::new(false),
            plug: Mutex::default(),
            connection: AtomicU64::new(0),
            home: Mutex::default(),
            ear: Mutex::default(),
            keeper: Mutex::default(),
            number: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            is_stirred: AtomicBool::new(false),
            is_flying: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            is_timed: AtomicBool::new(false),
        })
    }

    /// Does `work` until the store is closed; it may use the keeper's runtime wherever it is
    /// polled.
    pub async fn run(self: Arc<Self>, work: BoxFuture<'static, ()>) {
        // What budget the polling task has left says nothing about this work, which would
        // otherwise wake itself for ever.
        *lock(&self.work) = Some(Box::pin(tokio::task::unconstrained(work)));
        let _closing = CloseOnDrop(Arc::clone(&self));
        watch::Watch::default().keep(self).await;
    }

    /// The link has another connection, or none. Whoever made it listens to it.
    pub fn set_plug(&self, plug: Option<Arc<Plug>>) {
        *lock(&self.plug) = plug;
        self.connection.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether something is in flight whose answer the keeper is to look after.
    pub fn set_flying(&self, is_flying: bool) {
        self.is_flying.store(is_flying, Ordering::SeqCst);
    }

    /// Ends the work. It may be under way on this very thread, and then ends as soon as it pauses.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.number.fetch_add(1, Ordering::SeqCst);
        if self.turning.swap(AGAIN, Ordering::SeqCst) == IDLE {
            drop(lock(&self.work).take());
        }
        // The socket knows how to wake us, and would keep us as we keep it.
        self.set_plug(None);
        wake(&self.ear);
    }

    /// Lets the work go on as far as it can. If somebody is at it, it is left to him.
    fn turn(self: &Arc<Self>) {
        if self.turning.swap(AGAIN, Ordering::SeqCst) != IDLE {
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let _keeper = self.runtime.enter();
        loop {
            // Whoever is woken by that is looked at below.
            if self.has_arrived.swap(false, Ordering::SeqCst)
                && let Some(plug) = lock(&self.plug).clone()
            {
                plug.stir();
            }
            self.turning.store(TURNING, Ordering::SeqCst);
            let mut work = lock(&self.work);
            if self.is_closed.load(Ordering::SeqCst) {
                let ended = work.take();
                drop(work);
                return drop(ended);
            }
            if let Some(future) = &mut *work {
                *lock(&self.turner) = Some(thread::current().id());
                // It ends only when the store is closed.
                let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
                *lock(&self.turner) = None;
            }
            drop(work);
            let ended =
                self.turning.compare_exchange(TURNING, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            // Whoever heard something after it was looked for above, and before this was at it,
            // has left it to this.
            let is_missed = || self.has_arrived.load(Ordering::SeqCst);
            if ended.is_ok() && (!is_missed() || self.turning.swap(AGAIN, Ordering::SeqCst) != IDLE)
            {
                return;
            }
        }
    }
}

/// Without the keeper's runtime there are no timers, so that nobody may go on with the work.
struct CloseOnDrop(Arc<Drive>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let drive = &self.0;
        drive.close();
        // Whoever is at it on another thread must have paused before the timers end under him.
        if *lock(&drive.turner) != Some(thread::current().id()) {
            drop(lock(&drive.work).take());
        }
    }
}

/// The work can go on: whoever is near does it.
impl Wake for Drive {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let busy = |state: u8| (state != IDLE).then_some(AGAIN);
        if self.turning.fetch_update(Ordering::SeqCst, Ordering::SeqCst, busy).is_ok() {
            return;
        }
        self.is_stirred.store(true, Ordering::SeqCst);
        let is_home = self.is_home();
        if !is_home || !self.is_timed.load(Ordering::SeqCst) {
            wake(&self.keeper);
        }
        if is_home {
            wake(&self.ear);
        }
    }
}

/// Somebody for whom the ear holds its work back for a moment.
pub trait Gather: Send + Sync {
    /// Whether a batch is forming that is worth a moment more.
    fn is_gathering(&self) -> bool;
}

fn wake(task: &Mutex<Option<Waker>>) {
    // Not under the lock: a waker may run anything.
    let waker = lock(task).clone();
    waker.into_iter().for_each(Waker::wake);
}

fn remember(task: &Mutex<Option<Waker>>, context: &Context<'_>) {
    let mut task = lock(task);
    if !task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
        *task = Some(context.waker().clone());
    }
}

/// Locks a mutex; nothing that holds one of these can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "drive_test.rs"]
mod tests;
