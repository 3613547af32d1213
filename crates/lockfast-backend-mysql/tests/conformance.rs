//! The suite that every store passes, on one real MariaDB. A fresh store is a database that nobody
//! has used; the schema is made by a user who may, the suite runs with the rights that the README
//! names.

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
use lockfast_conformance::fault::mariadb::{MariaDb, Setup};
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// The rights that the README names for whoever makes the schema.
const MAKER_RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, CREATE ROUTINE, \
    ALTER ROUTINE, EXECUTE";

#[derive(Clone, Default)]
struct OneServer {
    /// Started when it is first needed: the suite's child processes use that of their parent.
    mariadb: Arc<Mutex<Option<MariaDb>>>,
    stores: Arc<AtomicUsize>,
}

impl OneServer {
    /// Creates a database with its schema, and a user who may only use it.
    fn prepare(mariadb: &MariaDb, database: &str) {
        mariadb.create_database(database);
        mariadb.sql(&format!("GRANT {MAKER_RIGHTS} ON `{database}`.* TO maker"));
        let url = format!("mysql://maker:word@{}/{database}", mariadb.address());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = Address::parse(&url).unwrap();
        runtime.block_on(lockfast_backend_mysql::migrate(address)).unwrap();
        mariadb.sql(&format!("GRANT EXECUTE ON `{database}`.* TO locks"));
    }
}

impl Harness for OneServer {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn fresh_url(&self) -> String {
        let database = format!("store_{}", self.stores.fetch_add(1, Ordering::Relaxed));
        let mut mariadb = self.mariadb.lock().unwrap();
        let mariadb = mariadb.get_or_insert_with(|| {
            let mariadb = Setup::new().option("--max-connections=500").start();
            mariadb.sql("CREATE USER locks IDENTIFIED BY 'word'");
            mariadb.sql("CREATE USER maker IDENTIFIED BY 'word'");
            mariadb
        });
        std::thread::scope(|scope| {
            scope.spawn(|| Self::prepare(mariadb, &database)).join().unwrap();
        });
        format!("mysql://locks:word@{}/{database}", mariadb.address())
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_mysql::connect(address, context)
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
    let mariadb = Arc::clone(&harness.mariadb);
    let verdict = lockfast_conformance::main(harness);
    drop(mariadb.lock().unwrap().take());
    verdict
}
