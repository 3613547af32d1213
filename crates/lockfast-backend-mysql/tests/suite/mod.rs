//! The suite that every store passes, on one real server. A fresh store is a database that nobody
//! has used; the schema is made by a user who may, the suite runs with the rights that the README
//! names.
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_conformance::fault::mysql::{Flavor, Mysql, Setup};
use lockfast_core::Address;

/// The rights that the README names for whoever makes the schema.
const MAKER_RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, CREATE ROUTINE, \
    ALTER ROUTINE, EXECUTE";

/// A server with the users of the suite.
pub fn start(flavor: Flavor) -> Mysql {
    let server = Setup::new(flavor).option("--max-connections=500").start();
    server.sql("CREATE USER locks IDENTIFIED BY 'word'");
    server.sql("CREATE USER maker IDENTIFIED BY 'word'");
    server
}

/// Creates a database with its schema, and a user who may only use it.
fn prepare(server: &Mysql, database: &str) {
    server.create_database(database);
    server.sql(&format!("GRANT {MAKER_RIGHTS} ON `{database}`.* TO maker"));
    let url = format!("mysql://maker:word@{}/{database}", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = Address::parse(&url).unwrap();
    runtime.block_on(lockfast_backend_mysql::migrate(address)).unwrap();
    server.sql(&format!("GRANT EXECUTE ON `{database}`.* TO locks"));
}

fn fresh_url(server: &Mysql, store: usize) -> String {
    let database = format!("store_{store}");
    // The caller's thread may be in a runtime.
    std::thread::scope(|scope| scope.spawn(|| prepare(server, &database)).join().unwrap());
    format!("mysql://locks:word@{}/{database}", server.address())
}

/// Runs the suite on a server that `start` starts.
pub fn run(name: &'static str, start: fn() -> Mysql) -> ExitCode {
    let connect = lockfast_backend_mysql::connect;
    Suite { name, start, fresh_url, connect, ignored: &[] }.run()
}
