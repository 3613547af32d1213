//! The suite that every store passes, on one real server. A fresh store is a prefix that nobody
//! has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kit::{Redis, Setup};
use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

#[derive(Clone, Default)]
struct OneServer {
    /// Started when it is first needed: the suite's child processes use that of their parent.
    redis: Arc<Mutex<Option<Redis>>>,
    stores: Arc<AtomicUsize>,
}

impl Harness for OneServer {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn fresh_url(&self) -> String {
        let store = self.stores.fetch_add(1, Ordering::Relaxed);
        let mut redis = self.redis.lock().unwrap();
        let rights = || kit::rights::rights("~store-*", &[]);
        let user = || Setup::new().line(format!("user locks on >word {}", rights())).start();
        let address = redis.get_or_insert_with(user).address();
        format!("redis://locks:word@{address}?prefix=store-{store}:")
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
        &[]
    }
}

fn main() -> ExitCode {
    let harness = OneServer::default();
    let redis = Arc::clone(&harness.redis);
    let verdict = lockfast_conformance::main(harness);
    drop(redis.lock().unwrap().take());
    verdict
}
