//! `once`: a scheduled job that all start and one runs.

use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::Signal;

use super::loss::revoke;
use super::{Group, scenario};
use crate::sandbox::{Finished, Running, eventually};
use crate::stage::{FOR_EVER, Stage, UNTIL_GO};

pub(super) const GROUP: Group = Group {
    name: "once",
    scenarios: &[
        scenario("one_of_many_runs_it", one_of_many_runs_it),
        scenario("at_least_is_kept_after_the_end", at_least_is_kept_after_the_end),
        scenario("a_job_that_takes_too_long_is_stopped", a_job_that_takes_too_long_is_stopped),
        scenario("a_job_whose_lock_is_taken_away_is_stopped", a_job_whose_lock_is_taken_away),
        scenario("a_killed_job_is_followed", a_killed_job_is_followed),
        scenario("a_killed_job_keeps_at_least", a_killed_job_keeps_at_least),
        scenario("a_job_killed_with_its_guard_ends_by_itself", a_job_killed_with_its_guard),
    ],
};

/// What a busy machine may add to a bound: processes are started.
const SLACK: Duration = Duration::from_secs(4);

/// A time that does not pass within a scenario, where the store keeps leases of that length.
fn long(stage: &Stage<'_>) -> &'static str {
    if stage.row.has_detached { "60s" } else { "10s" }
}

fn once(stage: &Stage<'_>, options: &[&str], command: &[&str]) -> Finished {
    start(stage, options, command).finish()
}

fn start(stage: &Stage<'_>, options: &[&str], command: &[&str]) -> Running {
    let line = ["once", stage.lock.as_str()].into_iter().chain(options.iter().copied());
    stage.start(line.chain(["--"]).chain(command.iter().copied()))
}

/// A job that runs, once its script wrote `started`.
fn begin(stage: &Stage<'_>, options: &[&str], script: &str) -> Running {
    let job = start(stage, options, &["sh", "-c", script]);
    job.until("the script to start", || stage.sandbox.path("started").exists())
}

/// Tries until somebody else may run it, and tells when that was.
fn until_it_runs_again(stage: &Stage<'_>) -> Moment {
    eventually("the next to run it", || {
        let finished = once(stage, &["--at-most", "10s"], &["true"]);
        assert!([0, 75].contains(&finished.code()), "{finished:?}");
        finished.code() == 0
    });
    Moment::now()
}

fn one_of_many_runs_it(stage: &Stage<'_>) {
    let at_most = ["--at-most", long(stage)];
    let script = format!("echo $LOCKFAST_FENCE >> ran; {UNTIL_GO}; exit 7");
    let first = begin(stage, &[&at_most[..], &["--label", "nightly"]].concat(), &script);
    let others: Vec<_> =
        (0..4).map(|_| start(stage, &at_most, &["sh", "-c", "echo >> ran"])).collect();
    for other in others {
        let skipped = other.finish().expect(75);
        let pid = format!("pid {}", first.pid().as_raw_pid());
        for words in ["skipped:", &stage.lock, &pid, "since 20"] {
            assert!(skipped.stderr.contains(words), "{words}: {}", skipped.stderr);
        }
        assert_eq!(skipped.stdout, "");
    }
    once(stage, &[&at_most[..], &["-E", "0"]].concat(), &["touch", "twice"]).expect(0);
    stage.go();
    first.finish().expect(7);
    assert!(!stage.sandbox.path("twice").exists());
    assert_eq!(stage.sandbox.read("ran").lines().count(), 1, "it ran once");
    // It has ended, and nothing was said about how long to keep it.
    once(stage, &at_most, &["sh", "-c", "exit 3"]).expect(3);
}

/// Where a lock ends with its process, it is refused, and nothing runs.
fn check_refusal(stage: &Stage<'_>) {
    let times = ["--at-most", "10s", "--at-least", "3s"];
    let refused = once(stage, &times, &["touch", "ran"]).expect(125);
    assert!(refused.stderr.contains("no leases that outlive their process"), "{}", refused.stderr);
    assert!(!stage.sandbox.path("ran").exists());
}

fn at_least_is_kept_after_the_end(stage: &Stage<'_>) {
    if !stage.row.has_detached {
        return check_refusal(stage);
    }
    let at_least = Duration::from_secs(3);
    let before = Moment::now();
    once(stage, &["--at-most", "60s", "--at-least", "3s"], &["true"]).expect(0);
    let kept = Moment::now().since(before);
    let shown = stage.run(["show", &stage.lock, "--json"]).expect(0).json();
    let looked = Moment::now().since(before);
    if looked < at_least {
        assert_eq!(shown["held"], true, "free {looked:?} after its start");
        let left = shown["holders"][0]["remaining_ms"].as_u64().unwrap();
        assert!(left <= 4_000, "{left} ms are left of 3 s");
    }
    let again = until_it_runs_again(stage).since(before);
    assert!(again >= at_least, "it ran again after {again:?}");
    assert!(again < kept + at_least + SLACK, "it ran again only after {again:?}");
}

fn a_job_that_takes_too_long_is_stopped(stage: &Stage<'_>) {
    let before = Moment::now();
    let job = begin(stage, &["--at-most", "3s", "--grace", "200ms"], FOR_EVER);
    let finished = job.finish().expect(120);
    let took = Moment::now().since(before);
    assert!(finished.stderr.contains("--at-most"), "{}", finished.stderr);
    stage.check_job_is_gone();
    assert!(took < Duration::from_secs(3) + SLACK, "{took:?}");
    stage.run(["run", &stage.lock, "--wait", "60s", "--", "true"]).expect(0);
}

fn a_job_whose_lock_is_taken_away(stage: &Stage<'_>) {
    let job = begin(stage, &["--at-most", "10s"], FOR_EVER);
    revoke(stage);
    job.finish().expect(120);
    stage.check_job_is_gone();
    stage.try_it().expect(0);
}

/// Its guard stops it, and gives the lock back long before its time.
fn a_killed_job_is_followed(stage: &Stage<'_>) {
    let job = begin(stage, &["--at-most", long(stage)], FOR_EVER);
    let killed = Moment::now();
    job.signal(Signal::KILL);
    let took = until_it_runs_again(stage).since(killed);
    stage.check_job_is_gone();
    // Where a session holds it, that may have to end first.
    let limit = Duration::from_secs(if stage.row.has_detached { 5 } else { 11 });
    assert!(took < limit + SLACK, "{took:?}");
}

fn a_killed_job_keeps_at_least(stage: &Stage<'_>) {
    if !stage.row.has_detached {
        return check_refusal(stage);
    }
    let before = Moment::now();
    let job = begin(stage, &["--at-most", "60s", "--at-least", "4s"], FOR_EVER);
    let started = Moment::now();
    job.signal(Signal::KILL);
    let again = until_it_runs_again(stage);
    stage.check_job_is_gone();
    let kept = again.since(before);
    assert!(kept >= Duration::from_secs(4), "it ran again after {kept:?}");
    let kept = again.since(started);
    assert!(kept < Duration::from_secs(5) + SLACK, "it ran again only after {kept:?}");
}

/// Nobody is left to give the lock back; it is free when `--at-most` is over.
fn a_job_killed_with_its_guard(stage: &Stage<'_>) {
    let before = Moment::now();
    let job = begin(stage, &["--at-most", "4s"], FOR_EVER);
    job.kill_with_guard();
    let started = Moment::now();
    drop(job);
    let again = until_it_runs_again(stage);
    stage.check_job_is_gone();
    if stage.row.has_detached {
        let kept = again.since(before);
        assert!(kept >= Duration::from_secs(4), "it ran again after {kept:?}");
    }
    let kept = again.since(started);
    assert!(kept < Duration::from_secs(5) + SLACK, "it ran again only after {kept:?}");
}
