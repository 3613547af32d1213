//! The suite that every store passes, on three real servers. A fresh store is a prefix that
//! nobody has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_conformance::Harness;
use lockfast_conformance::fault::redis::{Redis, Setup};
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// The rights that the README names, with the suite's prefixes for the names of locks.
const RIGHTS: &str = "resetkeys ~lockfast:* ~store-* resetchannels &lockfast:* -@all +hello +info \
    +select +subscribe +publish +script|load +evalsha +time +get +mget +set +del +exists +pexpire \
    +pttl +zadd +zrange +zrem +zcard +zrank +scan";

const ONE_HOLDER: &str = "nodes that do not know each other grant a lock to one holder at a time";
const NO_ORDER: &str = "nobody orders those who wait: they try again when they are called";

#[derive(Clone, Default)]
struct ThreeServers {
    /// Started when they are first needed: the suite's child processes use those of their parent.
    servers: Arc<Mutex<Vec<Redis>>>,
    stores: Arc<AtomicUsize>,
}

impl Harness for ThreeServers {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn fresh_url(&self) -> String {
        let store = self.stores.fetch_add(1, Ordering::Relaxed);
        let mut servers = self.servers.lock().unwrap();
        let start = || Setup::new().line(format!("user locks on >word {RIGHTS}")).start();
        if servers.is_empty() {
            servers.extend((0..3).map(|_| start()));
        }
        let nodes: Vec<String> = servers.iter().map(|it| it.address().to_string()).collect();
        // A machine that runs all cases at once is slower than what the default is made for.
        format!("redlock://locks:word@{}?prefix=store-{store}:&node_timeout=1s", nodes.join(","))
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_redlock::connect(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("exclusion::readers_and_writers_exclude_each_other", ONE_HOLDER),
            ("fencing::is_shared_by_nobody", ONE_HOLDER),
            ("inspect::shows_holders_and_waiters", ONE_HOLDER),
            ("permits::and_exclusive_holders_exclude_each_other", ONE_HOLDER),
            ("permits::are_all_given_out", ONE_HOLDER),
            ("permits::are_never_more_than_the_limit", ONE_HOLDER),
            ("permits::have_one_limit", ONE_HOLDER),
            ("primitives::a_rwlock_has_readers_or_a_writer", ONE_HOLDER),
            ("primitives::a_semaphore_has_permits", ONE_HOLDER),
            ("queue::is_first_come_first_served", NO_ORDER),
            ("release::grants_the_next_in_the_same_step", NO_ORDER),
            ("retry::gives_the_same_fence", ONE_HOLDER),
            ("revoke::takes_it_from_all_holders", ONE_HOLDER),
            ("shared::holders_are_together", ONE_HOLDER),
            ("shared::holders_do_not_starve_a_writer", ONE_HOLDER),
            ("shared::holders_wait_for_a_writer_that_waits", ONE_HOLDER),
            ("shared::waiters_enter_together", ONE_HOLDER),
        ]
    }
}

fn main() -> ExitCode {
    let harness = ThreeServers::default();
    let servers = Arc::clone(&harness.servers);
    let verdict = lockfast_conformance::main(harness);
    servers.lock().unwrap().clear();
    verdict
}
