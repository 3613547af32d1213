//! The keeper: one thread per process that watches deadlines and decides when to renew, and one
//! runtime on which stores do their work. Neither waits for the caller's executor, and the
//! thread does not wait for the stores either.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lockfast_core::{Alarm, Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Sleep;

use super::cell::LeaseCell;
use super::driver::Driver;

/// How many new leases may wait for the keeper to look at them before it is woken to do so. Most
/// leases are given back long before their first renewal, and those cost the keeper nothing.
const UNSEEN_MAX: usize = 1024;

/// The process's keeper.
pub(crate) struct Keeper {
    runtime: Runtime,
    alarm: Alarm,
    pid: u32,
    /// Leases that began, or whose times changed.
    tracked: Mutex<Vec<Arc<LeaseCell>>>,
    /// When the thread wakes next, in host nanoseconds.
    next_wake: AtomicU64,
    /// Whether a clock by which leases go was set ahead.
    has_jumped: AtomicBool,
}

static KEEPER: OnceLock<Result<Arc<Keeper>, String>> = OnceLock::new();

impl Keeper {
    /// The keeper of this process, started when it is first needed.
    pub(crate) fn of_this_process() -> Result<Arc<Self>> {
        let keeper = KEEPER.get_or_init(|| Self::start().map_err(|error| error.to_string()));
        match keeper {
            Ok(keeper) => keeper.check_process().map(|()| Arc::clone(keeper)),
            Err(cause) => Err(Error::new(
                ErrorKind::Internal,
                format!("the keeper thread cannot be started: {cause}"),
            )),
        }
    }

    fn start() -> std::io::Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lockfast-store")
            .enable_all()
            .build()?;
        let keeper = Arc::new(Self {
            runtime,
            alarm: Alarm::new()?,
            pid: std::process::id(),
            tracked: Mutex::new(Vec::new()),
            next_wake: AtomicU64::new(u64::MAX),
            has_jumped: AtomicBool::new(false),
        });
        let driver = Driver::new(Arc::clone(&keeper));
        std::thread::Builder::new().name("lockfast-keeper".into()).spawn(move || driver.run())?;
        Ok(keeper)
    }

    /// Refuses to work in a forked child, where neither thread exists.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ForkedProcess,
            format!(
                "this process was forked from {}, which keeps its leases; connect anew after exec",
                self.pid
            ),
        ))
    }

    pub(crate) fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Sleeps on the keeper's clock, whatever executor the caller has.
    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        let _keeper = self.runtime.enter();
        tokio::time::sleep(span)
    }

    /// Watches over a lease from now on, or again after its times were changed from outside.
    pub(crate) fn track(&self, cell: Arc<LeaseCell>) {
        let due = cell.next_look().map_or(u64::MAX, |due| due.host_ns());
        let unseen = {
            let mut tracked = self.tracked();
            tracked.push(cell);
            tracked.len()
        };
        if due < self.next_wake.load(Ordering::Acquire) || unseen >= UNSEEN_MAX {
            self.alarm.ring();
        }
    }

    /// A clock by which leases go was set ahead: all of them are looked at anew.
    pub(crate) fn jump(&self) {
        self.has_jumped.store(true, Ordering::Release);
        self.alarm.ring();
    }

    pub(crate) fn take_jump(&self) -> bool {
        self.has_jumped.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn take_tracked(&self) -> Vec<Arc<LeaseCell>> {
        std::mem::take(&mut *self.tracked())
    }

    fn tracked(&self) -> MutexGuard<'_, Vec<Arc<LeaseCell>>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `due`, or until something urgent was said.
    pub(crate) fn sleep_until(&self, due: Option<lockfast_core::Moment>) {
        self.next_wake.store(due.map_or(u64::MAX, |due| due.host_ns()), Ordering::Release);
        // What was pushed before the store above may not have rung; look once more.
        if self.tracked().is_empty() {
            // It cannot fail with the descriptors that it made itself; if it ever does, the
            // loop goes on without sleep, which is safe.
            let _ = self.alarm.wait(due);
        }
        self.next_wake.store(0, Ordering::Release);
    }
}
