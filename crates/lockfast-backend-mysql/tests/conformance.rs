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

use lockfast_conformance::Suite;
use lockfast_conformance::fault::mariadb::{MariaDb, Setup};
use lockfast_core::Address;

/// The rights that the README names for whoever makes the schema.
const MAKER_RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, CREATE ROUTINE, \
    ALTER ROUTINE, EXECUTE";

fn start() -> MariaDb {
    let mariadb = Setup::new().option("--max-connections=500").start();
    mariadb.sql("CREATE USER locks IDENTIFIED BY 'word'");
    mariadb.sql("CREATE USER maker IDENTIFIED BY 'word'");
    mariadb
}

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

fn fresh_url(mariadb: &MariaDb, store: usize) -> String {
    let database = format!("store_{store}");
    // The caller's thread may be in a runtime.
    std::thread::scope(|scope| scope.spawn(|| prepare(mariadb, &database)).join().unwrap());
    format!("mysql://locks:word@{}/{database}", mariadb.address())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_mysql::connect;
    Suite { name: "mysql", start, fresh_url, connect, ignored: &[] }.run()
}
