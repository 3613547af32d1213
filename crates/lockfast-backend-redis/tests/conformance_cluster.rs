//! The suite that every store passes, on a real cluster of three masters. A fresh store is a prefix that nobody
//! has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kit::rights::with_user;
use kit::topology::{Cluster, start_cluster_of};
use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// What `cluster.rs` checks instead: such a name is refused.
const BRACES: &str = "it uses the name {a}, whose lock and queue would be in different slots";

#[derive(Clone, Default)]
struct ThreeMasters {
    /// Started when it is first needed: the suite's child processes use that of their parent.
    cluster: Arc<Mutex<Option<Cluster>>>,
    stores: Arc<AtomicUsize>,
}

impl Harness for ThreeMasters {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn fresh_url(&self) -> String {
        let store = self.stores.fetch_add(1, Ordering::Relaxed);
        let mut cluster = self.cluster.lock().unwrap();
        let nodes = &cluster.get_or_insert_with(|| start_cluster_of(with_user)).nodes;
        let (first, second) = (nodes[0].address(), nodes[1].address());
        format!("redis+cluster://locks:word@{first},{second}?prefix=store-{store}:")
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
        &[("names::are_different_locks", BRACES), ("names::are_listed_to_the_letter", BRACES)]
    }
}

fn main() -> ExitCode {
    let harness = ThreeMasters::default();
    let cluster = Arc::clone(&harness.cluster);
    let verdict = lockfast_conformance::main(harness);
    drop(cluster.lock().unwrap().take());
    verdict
}
