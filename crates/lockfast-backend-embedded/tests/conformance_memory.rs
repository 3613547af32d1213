//! The suite that every store passes, on `memory:`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// Every store has a name of its own, so that a case can connect to it twice.
struct Memory {
    stores: AtomicUsize,
}

impl Harness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn fresh_url(&self) -> String {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        format!("memory:{number}")
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_embedded::connect(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        const ALONE: &str = "a memory store is seen by one process only";
        &[
            ("process::a_killed_holder_frees_its_lock", ALONE),
            ("process::a_killed_waiter_delays_nobody", ALONE),
            ("process::that_ends_gives_back_what_it_dropped", ALONE),
            ("process::a_stopped_holder_loses_its_lease", ALONE),
            ("process::a_detached_lease_outlives_its_process", ALONE),
            ("process::waiters_of_other_processes_are_woken", ALONE),
            ("process::fences_rise_over_processes", ALONE),
            ("process::workers_never_overlap", ALONE),
            ("process::killed_workers_lose_nothing", ALONE),
            ("process::that_dies_leaves_its_barrier", ALONE),
            ("process::that_dies_has_counted", ALONE),
            ("process::that_dies_leaves_a_refresh_to_the_next", ALONE),
            ("process::that_dies_is_followed_as_leader", ALONE),
        ]
    }
}

fn main() -> ExitCode {
    lockfast_conformance::main(Memory { stores: AtomicUsize::new(0) })
}
