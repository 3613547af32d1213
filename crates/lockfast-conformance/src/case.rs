//! One case of the suite, and how it is run: on a thread and a runtime of its own, with a hard
//! time limit, so that a hang is a failure like any other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lockfast_core::{BoxFuture, Feature, Profile};

use crate::Seed;
use crate::arena::Arena;
use crate::harness::Harness;

/// Cases about one subject. The rule of each is the doc comment of its function, which is why
/// the group carries its own source.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    pub(crate) cases: &'static [Case],
}

/// A rule that every store keeps.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    /// What a store may lack and the case uses.
    pub(crate) features: &'static [Feature],
    pub(crate) run: fn(Arena) -> BoxFuture<'static, ()>,
}

/// What a case cannot do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Connections,
    Processes,
}

impl Case {
    /// A case that several connections of one process can show.
    pub(crate) const fn new(name: &'static str, run: fn(Arena) -> BoxFuture<'static, ()>) -> Self {
        Self { name, needs: Needs::Connections, features: &[], run }
    }

    /// A case that takes several processes.
    pub(crate) const fn of_processes(
        name: &'static str,
        run: fn(Arena) -> BoxFuture<'static, ()>,
    ) -> Self {
        Self { name, needs: Needs::Processes, features: &[], run }
    }

    /// The same case, which uses what a store may lack.
    pub(crate) const fn using(self, features: &'static [Feature]) -> Self {
        Self { features, ..self }
    }

    /// A store that lacks what the case uses must be listed as one that cannot run it.
    fn check_profile(self, profile: &Profile) {
        for feature in self.features {
            if let Some(reason) = profile.lack_of(*feature) {
                panic!(
                    "the store has no {feature} ({reason}), which the case uses; list it in \
                     Harness::ignored with the reason"
                );
            }
        }
    }

    /// Runs the case against a fresh store.
    pub(crate) fn run_on(
        self,
        harness: &Arc<dyn Harness>,
        seed: Seed,
        time_limit: Duration,
    ) -> Result<(), String> {
        let (report, verdict) = mpsc::channel();
        let harness = Arc::clone(harness);
        let thread = std::thread::Builder::new().name(self.name.into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run_here(harness, seed)));
            // Nobody listens any more once the time limit has passed.
            let _ = report.send(outcome);
        });
        if let Err(error) = thread {
            return Err(format!("no thread for it: {error}"));
        }
        match verdict.recv_timeout(time_limit) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => Err(panic_text(panic.as_ref())),
            Err(_) => Err(format!("it was not finished after {time_limit:?}")),
        }
    }

    fn run_here(self, harness: Arc<dyn Harness>, seed: Seed) {
        let runtime = |name: &str, threads| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name(name)
                .enable_all()
                .build()
                .expect("a runtime")
        };
        // As in the lease engine, what a store does in the background has a runtime of its own.
        let keeper = runtime("keeper", 1);
        let caller = runtime("caller", 2);
        let handle = keeper.handle().clone();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            caller.block_on(async move {
                let arena = Arena::open(harness, handle, seed).await;
                self.check_profile(&arena.profile);
                (self.run)(arena).await;
            });
        }));
        caller.shutdown_background();
        keeper.shutdown_background();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Group {
    /// The doc comment of a case, on one line.
    pub(crate) fn rule_of(&self, case: &str) -> Option<String> {
        let head = format!("async fn {case}(");
        let at = self.source.find(&head)?;
        let mut lines: Vec<&str> = self.source[..at]
            .lines()
            .rev()
            .take_while(|line| line.trim_start().starts_with("///"))
            .map(|line| line.trim_start().trim_start_matches("///").trim())
            .collect();
        lines.reverse();
        (!lines.is_empty()).then(|| lines.join(" "))
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked".into())
}
