//! The suite that every store passes, on one real server. A fresh store is a database that nobody
//! has used; the schema is made by a user who may, the suite runs with the rights that the README
//! names.
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::mysql::Mysql;

use crate::kit;

const NO_DOWNGRADE: &str = "it has no step that makes a reader of a writer";

const IGNORED: &[(&str, &str)] = &[
    ("downgrade::keeps_the_fence_and_the_lease", NO_DOWNGRADE),
    ("downgrade::does_not_prolong_the_lease", NO_DOWNGRADE),
    ("downgrade::lets_readers_in_up_to_the_next_writer", NO_DOWNGRADE),
    ("downgrade::lets_nobody_overtake_a_writer_that_waits", NO_DOWNGRADE),
    ("downgrade::never_lets_a_writer_in_beside_readers", NO_DOWNGRADE),
    ("downgrade::can_be_repeated", NO_DOWNGRADE),
    ("downgrade::is_how_it_is_held_from_then_on", NO_DOWNGRADE),
    ("downgrade::by_another_holder_changes_nothing", NO_DOWNGRADE),
    ("downgrade::after_the_end_changes_nothing", NO_DOWNGRADE),
    ("downgrade::is_refused_where_permits_are_used", NO_DOWNGRADE),
    ("downgrade::leaves_a_lease_that_can_be_revoked", NO_DOWNGRADE),
    ("writer::becomes_a_reader", NO_DOWNGRADE),
    ("writer::that_became_a_reader_is_kept", NO_DOWNGRADE),
    ("writer::without_an_answer_asks_again", NO_DOWNGRADE),
    ("writer::that_stops_asking_leaves_nothing", NO_DOWNGRADE),
    ("writer::is_checked_before_anything_is_touched", NO_DOWNGRADE),
    ("writer::with_other_guards_stays_one", NO_DOWNGRADE),
    ("writer::that_has_lost_its_lease_asks_nothing", NO_DOWNGRADE),
];

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

/// Runs the suite on a server that `start` starts.
pub fn run(name: &'static str, start: fn() -> Mysql) -> ExitCode {
    let connect = lockfast_backend_mysql::connect;
    Suite { name, start, fresh_url, connect, ignored: IGNORED }.run()
}
