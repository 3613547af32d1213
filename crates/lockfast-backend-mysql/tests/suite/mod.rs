//! The suite that every store passes, on one real server. A fresh store is a database that nobody
//! has used; the schema is made by a user who may, the suite runs with the rights that the README
//! names.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::mysql::Mysql;

use crate::kit;

/// A server with the users of the suite.
pub fn start() -> Mysql {
    let server = kit::setup().option("--max-connections=500").start();
    server.sql("CREATE USER locks IDENTIFIED BY 'word'");
    server.sql("CREATE USER maker IDENTIFIED BY 'word'");
    server
}

/// Creates a database with its schema, and a user who may only use it.
fn prepare(server: &Mysql, database: &str) {
    server.create_database(database);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(kit::make_schema(server, database));
}

fn fresh_url(server: &Mysql, store: usize) -> String {
    let database = format!("store_{store}");
    // The caller's thread may be in a runtime.
    std::thread::scope(|scope| scope.spawn(|| prepare(server, &database)).join().unwrap());
    format!("mysql://locks:word@{}/{database}", server.address())
}

/// The suite on a server that `start` starts.
pub fn of(name: &'static str, start: fn() -> Mysql) -> Suite<Mysql> {
    let connect = lockfast_backend_mysql::connect;
    Suite { name, start, fresh_url, connect, ignored: &[] }
}

/// Runs it.
pub fn run(name: &'static str, start: fn() -> Mysql) -> ExitCode {
    of(name, start).run()
}
