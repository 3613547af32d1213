//! The examples do what they are there to show.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "a process tells the test that started it")]

use std::process::Command;

use lockfast::ErrorKind;

#[path = "../examples/cache_refresh.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod cache_refresh;
#[path = "../examples/cron_job.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod cron_job;
#[path = "../examples/elected_worker.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod elected_worker;
#[path = "../examples/fenced_writer.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod fenced_writer;
#[path = "../examples/limited_pool.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod limited_pool;

/// The variable that makes this test the job of a crontab: the store.
const STORE: &str = "LOCKFAST_TEST_CRON_STORE";

#[test]
fn one_of_three_processes_runs_the_cron_job() {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let job = |store: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", "cron_job_process", "--nocapture"]).env(STORE, store);
        command
    };
    let said = cron_job::start_three(directory.path(), job).unwrap();
    let count = |words: &str| said.iter().filter(|said| said.contains(words)).count();
    assert_eq!((count("written with fence"), count("skipped: ")), (1, 2), "{said:#?}");
}

/// No test but what the one above starts: without its store it does nothing.
#[test]
fn cron_job_process() {
    let Ok(store) = std::env::var(STORE) else { return };
    println!("\n{}", cron_job::report(&store).unwrap());
}

#[tokio::test]
async fn the_next_worker_takes_over_with_a_higher_term() {
    let directory = tempfile::tempdir().unwrap();
    let done = elected_worker::work_in_turns(directory.path()).await.unwrap();
    let of = |name: &str| done.iter().filter(|(by, _)| *by == name).count();
    assert_eq!((of("one"), of("other")), (3, 3), "{done:?}");
    let terms: Vec<u64> = done.iter().map(|(_, term)| term.get()).collect();
    assert!(terms.is_sorted() && terms.first() < terms.last(), "{done:?}");
}

#[test]
fn no_more_are_served_at_once_than_there_are_permits() {
    let directory = tempfile::tempdir().unwrap();
    let service = limited_pool::serve_all(directory.path()).unwrap();
    assert_eq!(service.served.into_inner(), 12);
    let most = service.most.into_inner();
    assert!((1..=limited_pool::PERMITS as usize).contains(&most), "{most} at once");
}

#[tokio::test]
async fn a_late_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (refused, balance) =
        fenced_writer::write_late(&directory.path().join("bank.db")).await.unwrap();
    assert_eq!(refused.kind(), ErrorKind::StaleFence, "{refused}");
    assert_eq!(balance, 150);
}

#[tokio::test]
async fn a_value_is_computed_once_for_all_readers() {
    let [first, again, after] = cache_refresh::read_three_times().await.unwrap();
    assert_eq!(first, ["rates no. 1"]);
    assert_eq!(again, first);
    assert_eq!(after, ["rates no. 2"]);
}
