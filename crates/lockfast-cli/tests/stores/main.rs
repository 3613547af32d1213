//! The command on every store, as its users run it: one table of scenarios × one table of stores,
//! with real servers and real processes. Each cell is a test, `<store>::<group>::<scenario>`.
//!
//! | to add | do |
//! |---|---|
//! | a store | one row in [`row::ROWS`]; a scheme that `lockfast` knows and no row has fails |
//! | a scenario | a function in a file of `scenario/`, and its line in that file's `GROUP` |
//!
//! A mode that a store does not have is not skipped: its scenario checks that it is refused clearly.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod row;
#[path = "../sandbox/mod.rs"]
mod sandbox;
mod scenario;
mod stage;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use row::Site;
use scenario::Scenario;
use stage::Stage;

/// Scenarios wait most of the time, so more of them than cores can run at once.
const CELLS_AT_ONCE: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CELLS_AT_ONCE);
    let sites: Vec<Arc<Site>> = row::ROWS.iter().map(|row| Arc::new(Site::new(row))).collect();
    let mut trials = vec![Trial::test("table::every_scheme_has_a_row", || {
        row::check_schemes();
        Ok(())
    })];
    // Stores take turns, so that none has all the load at once.
    for (group, scenario) in scenario::all() {
        for site in &sites {
            trials.push(cell(site, group, scenario));
        }
    }
    let verdict = libtest_mimic::run(&arguments, trials);
    for site in sites {
        site.stop();
    }
    verdict.exit_code()
}

fn cell(site: &Arc<Site>, group: &'static str, scenario: &'static Scenario) -> Trial {
    let site = Arc::clone(site);
    let name = format!("{}::{group}::{}", site.row.name, scenario.name);
    Trial::test(name, move || {
        let stage = Stage::new(&site, group, scenario.name);
        (scenario.play)(&stage);
        stage.check_nothing_is_left();
        Ok(())
    })
}
