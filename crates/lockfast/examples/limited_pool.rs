//! A service allows three requests at a time, from all who use it together. Twelve workers take one of
//! three permits for each request.
//!
//! ```text
//! cargo run --example limited_pool
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast::Result;
use lockfast::blocking::Locker;

const WORKERS: usize = 12;
pub(crate) const PERMITS: u32 = 3;

/// The service that must not be asked too much at once.
#[derive(Debug, Default)]
pub(crate) struct Service {
    busy: AtomicUsize,
    /// How many requests it had at the same time, at most.
    pub(crate) most: AtomicUsize,
    /// How many it has served.
    pub(crate) served: AtomicUsize,
}

impl Service {
    fn serve(&self) {
        let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(busy, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        self.served.fetch_add(1, Ordering::SeqCst);
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends a request for each worker.
pub(crate) fn serve_all(directory: &Path) -> Result<Service> {
    let store = format!("embedded:{}", directory.display());
    let service = Service::default();
    let worker = || -> Result<()> {
        let pool = Locker::connect(&store)?.semaphore("service", PERMITS)?;
        let permit = pool.acquire()?; // waits for one
        service.serve();
        permit.release()?;
        Ok(())
    };
    std::thread::scope(|scope| {
        // All of them are started before the first is waited for.
        let workers = [(); WORKERS].map(|()| scope.spawn(worker));
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(served) => served,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(service)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let Service { most, served, .. } = serve_all(directory.path())?;
    println!("{} requests served, at most {} at once", served.into_inner(), most.into_inner());
    Ok(())
}
