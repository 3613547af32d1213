//! The suite that every store passes, through a real PgBouncer that gives each transaction another
//! connection: nothing may depend on the server's session, and nothing can be pushed.

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
use lockfast_conformance::fault::pgbouncer::PgBouncer;
use lockfast_conformance::fault::postgres::Postgres;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

#[derive(Clone, Default)]
struct OneServer {
    /// Started when it is first needed: the suite's child processes use that of their parent.
    servers: Arc<Mutex<Option<(PgBouncer, Postgres)>>>,
    stores: Arc<AtomicUsize>,
}

fn start() -> (PgBouncer, Postgres) {
    let postgres = Postgres::start();
    kit::create_role(&postgres);
    (PgBouncer::start(&postgres, 8), postgres)
}

impl Harness for OneServer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn fresh_url(&self) -> String {
        let schema = format!("store_{}", self.stores.fetch_add(1, Ordering::Relaxed));
        let mut servers = self.servers.lock().unwrap();
        let (pooler, postgres) = servers.get_or_insert_with(start);
        kit::make_schema(postgres, &schema);
        format!("{}?schema={schema}", pooler.url_as(kit::ROLE, "postgres"))
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
    let servers = Arc::clone(&harness.servers);
    let verdict = lockfast_conformance::main(harness);
    drop(servers.lock().unwrap().take());
    verdict
}
