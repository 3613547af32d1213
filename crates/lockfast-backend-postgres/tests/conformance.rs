//! The suite that every store passes, on one real server, by a role with no more than the rights
//! that the README names. A fresh store is a schema that nobody has used.

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

use lockfast_conformance::Harness;
use lockfast_conformance::fault::postgres::{Postgres, Setup};
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

#[derive(Clone, Default)]
struct OneServer {
    /// Started when it is first needed: the suite's child processes use that of their parent.
    postgres: Arc<Mutex<Option<Postgres>>>,
    stores: Arc<AtomicUsize>,
}

fn start() -> Postgres {
    let postgres = Setup::new().set("max_connections", "400").start();
    kit::create_role(&postgres);
    postgres
}

impl Harness for OneServer {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn fresh_url(&self) -> String {
        let schema = format!("store_{}", self.stores.fetch_add(1, Ordering::Relaxed));
        let mut postgres = self.postgres.lock().unwrap();
        let postgres = postgres.get_or_insert_with(start);
        kit::make_schema(postgres, &schema);
        format!("{}?schema={schema}", postgres.url_as(kit::ROLE, None))
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_postgres::connect(address, context)
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
    let postgres = Arc::clone(&harness.postgres);
    let verdict = lockfast_conformance::main(harness);
    drop(postgres.lock().unwrap().take());
    verdict
}
