//! A store in which a lock ends with its holder's connection.

use lockfast_core::Moment;
use lockfast_faults::postgres::Postgres;
use rustix::process::Signal;

use crate::sandbox::{Sandbox, eventually, is_alive};

/// Deaf to TERM, so that it lives until it is killed.
const DEAF: &str = "trap '' TERM; echo $$ > pids; touch started; while :; do sleep 0.01; done";

/// B72: the server saw the death of the wrapper before the guard had stopped the job.
#[test]
fn a_killed_wrapper_does_not_let_the_next_in_before_its_job_is_gone() {
    let postgres = Postgres::start();
    let sandbox = Sandbox::on(&format!("{}?mode=advisory", postgres.url()));
    let wrapper = sandbox.hold(&["job"], DEAF);
    let job = sandbox.pids("pids", 1)[0];
    let script = "kill -0 $(cat pids) 2>/dev/null && touch met; touch entered";
    let next = sandbox.start(["run", "job", "--", "sh", "-c", script]);
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    eventually("the next to wait", || postgres.sql(waits) == "1");
    let killed = Moment::now();
    wrapper.signal(Signal::KILL);
    next.finish().expect(0);
    let took = Moment::now().since(killed);
    assert!(!sandbox.path("met").exists(), "the next one met the job of the first");
    assert!(!is_alive(job));
    // By the end of the job, not by its ttl of 30 s.
    assert!(took.as_secs() < 10, "{took:?}");
    // Nobody else has a connection of ours.
    let sessions = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually("nothing to be left", || postgres.sql(sessions) == "0");
}

/// What the store cannot keep becomes what it can, with one line on standard error; what it lacks
/// is refused before anything is locked.
#[test]
fn a_ttl_that_the_store_does_not_keep_becomes_one_that_it_does() {
    let postgres = Postgres::start();
    let sandbox = Sandbox::on(&format!("{}?mode=advisory", postgres.url()));
    let done = sandbox.run(["run", "job", "--ttl", "500ms", "--", "true"]).expect(0);
    let warning =
        "lockfast: warning: a ttl of 500ms becomes 1s: postgres keeps leases of 1s to 24h";
    assert!(done.stderr.starts_with(warning), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    let done = sandbox.run(["run", "job", "--ttl", "1s", "--", "true"]).expect(0);
    assert_eq!(done.stderr, "");
    let refused = sandbox.run(["acquire", "job", "--ttl", "1m", "--try"]).expect(78);
    assert!(refused.stderr.contains("ends with its connection; use mode=lease"));
}
