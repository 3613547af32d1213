//! The suite on servers of one kind that are started for it.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

use crate::Harness;
use crate::shorthand::Connect;

/// A store whose servers a test binary starts: `fn main() -> ExitCode { Suite { … }.run() }`.
#[derive(Debug)]
pub struct Suite<S> {
    /// The first part of every trial's name.
    pub name: &'static str,
    /// Starts the servers, when they are first needed: the suite's child processes use those of
    /// their parent.
    pub start: fn() -> S,
    /// The URL of a new, empty store on them. The number is another each time.
    pub fresh_url: fn(&S, usize) -> String,
    /// How the store is connected to.
    pub connect: Connect,
    /// The cases that it cannot run: see [`Harness::ignored`].
    pub ignored: &'static [(&'static str, &'static str)],
}

impl<S: Send + 'static> Suite<S> {
    /// Plays random stories against the rule, and stops the servers.
    ///
    /// # Panics
    /// When the store does not say what the rule says: see [`model::check`](crate::model::check).
    pub fn check_model(self) {
        let started: Arc<Mutex<Option<S>>> = Arc::default();
        let count = AtomicUsize::new(0);
        let served = Served { suite: self, started: Arc::clone(&started), count };
        crate::model::check(served);
        drop(started.lock().unwrap().take());
    }

    /// Runs the suite, and stops the servers.
    pub fn run(self) -> ExitCode {
        let started: Arc<Mutex<Option<S>>> = Arc::default();
        let served =
            Served { suite: self, started: Arc::clone(&started), count: AtomicUsize::new(0) };
        let verdict = crate::main(served);
        drop(started.lock().unwrap().take());
        verdict
    }
}

struct Served<S> {
    suite: Suite<S>,
    started: Arc<Mutex<Option<S>>>,
    count: AtomicUsize,
}

impl<S: Send + 'static> Harness for Served<S> {
    fn name(&self) -> &'static str {
        self.suite.name
    }

    fn fresh_url(&self) -> String {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut started = self.started.lock().unwrap();
        (self.suite.fresh_url)(started.get_or_insert_with(self.suite.start), number)
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        (self.suite.connect)(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        self.suite.ignored
    }
}
