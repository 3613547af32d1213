//! The suite that every store passes, on servers of one kind. A fresh store is a prefix that nobody
//! has used.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// How the suite finds its servers.
pub struct Suite<S> {
    pub name: &'static str,
    pub start: fn() -> S,
    /// The URL of a server, with options to come.
    pub url: fn(&S) -> String,
    pub ignored: &'static [(&'static str, &'static str)],
}

impl<S: Send + 'static> Suite<S> {
    /// Runs it.
    pub fn run(self) -> ExitCode {
        let started: Arc<Mutex<Option<S>>> = Arc::default();
        let store =
            Store { suite: self, started: Arc::clone(&started), count: AtomicUsize::new(0) };
        let verdict = lockfast_conformance::main(store);
        drop(started.lock().unwrap().take());
        verdict
    }
}

struct Store<S> {
    suite: Suite<S>,
    /// Started when it is first needed: the suite's child processes use that of their parent.
    started: Arc<Mutex<Option<S>>>,
    count: AtomicUsize,
}

impl<S: Send + 'static> Harness for Store<S> {
    fn name(&self) -> &'static str {
        self.suite.name
    }

    fn fresh_url(&self) -> String {
        let mut started = self.started.lock().unwrap();
        let url = (self.suite.url)(started.get_or_insert_with(self.suite.start));
        format!("{url}?prefix=store-{}:", self.count.fetch_add(1, Ordering::Relaxed))
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_redis::connect(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        self.suite.ignored
    }
}
