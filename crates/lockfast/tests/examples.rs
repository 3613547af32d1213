//! The examples do what they are there to show.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "a process tells the test that started it")]

use std::process::Command;

use lockfast::{ErrorKind, LossCause};

#[path = "../examples/any_store.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod any_store;
#[path = "../examples/batch_job.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod batch_job;
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
#[path = "../examples/order_service.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod order_service;
#[path = "../examples/tested_worker.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod tested_worker;

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

#[tokio::test]
async fn one_program_serves_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("embedded:{}", directory.path().display());
    for (url, name) in [("memory:", "memory: fence "), (&embedded, "embedded: fence ")] {
        let said = any_store::take_one(url).await.unwrap();
        assert!(said.starts_with(name), "{said}");
    }
    let error = any_store::take_one("nowhere://localhost").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
}

#[tokio::test]
async fn a_service_says_that_an_order_is_busy() {
    let [busy, shipped] = order_service::ship_two().await.unwrap();
    assert!(busy.starts_with("HTTP/1.1 409 "), "{busy}");
    assert!(shipped.starts_with("HTTP/1.1 200 "), "{shipped}");
    assert!(shipped.contains("order 8 shipped with fence "), "{shipped}");
}

#[tokio::test]
async fn a_batch_that_was_stopped_goes_on_where_it_stopped() {
    let (stopped, rest, all) = batch_job::send_in_two_runs().await.unwrap();
    assert_eq!(stopped.kind(), ErrorKind::Lost, "{stopped}");
    assert_eq!(rest, 3);
    assert_eq!(all, ["2041", "2042", "2043", "2044", "2045"]);
}

#[tokio::test]
async fn a_worker_is_tested_without_waiting() {
    use tested_worker::Run;
    let [taken_away, cut_off, skipped, done] = tested_worker::try_everything().await.unwrap();
    assert!(matches!(taken_away, Run::Stopped(LossCause::Revoked { .. })), "{taken_away:?}");
    assert!(matches!(cut_off, Run::Stopped(LossCause::Expired { .. })), "{cut_off:?}");
    assert_eq!([skipped, done], [Run::Skipped, Run::Done]);
}
