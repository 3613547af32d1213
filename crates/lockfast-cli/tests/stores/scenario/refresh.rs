//! `refresh`: a value that one computes and all print.

use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::Signal;

use super::loss::revoke_lock;
use super::{Group, scenario};
use crate::sandbox::{BOUND, Finished, Running, eventually};
use crate::stage::{FOR_EVER, Stage, UNTIL_GO};

pub(super) const GROUP: Group = Group {
    name: "refresh",
    scenarios: &[
        scenario("one_of_many_computes", |stage| play(stage, one_of_many_computes)),
        scenario("a_failure_is_told_to_those_who_wait", |stage| play(stage, a_failure_is_told)),
        scenario("the_last_value_is_good_enough", |stage| play(stage, the_last_is_good_enough)),
        scenario("a_killed_computation_is_followed", |stage| play(stage, a_killed_is_followed)),
        scenario("an_interrupted_one_is_followed", |stage| play(stage, an_interrupted_one)),
        scenario("a_loss_stops_it", |stage| play(stage, a_loss_stops_it)),
        scenario("inside_itself_does_not_wait", |stage| play(stage, inside_itself)),
    ],
};

/// Longer than any scenario.
const LONG: [&str; 2] = ["--for", "1h"];

/// Plays it where there are values that end by themselves; elsewhere it is refused, and nothing runs.
fn play(stage: &Stage<'_>, scenario: fn(&Stage<'_>)) {
    if stage.row.has_refresh {
        scenario(stage);
        let lock = lock(stage);
        eventually("the lock to be free", || {
            !stage.sandbox.is_held(&lock) && stage.sandbox.waiting(&lock) == 0
        });
        return;
    }
    let refused = refresh(stage, &LONG, "touch ran").expect(125);
    assert!(refused.stderr.contains("has no"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert!(!stage.sandbox.path("ran").exists());
}

fn lock(stage: &Stage<'_>) -> String {
    format!("refresh:{}", stage.lock)
}

fn start(stage: &Stage<'_>, options: &[&str], script: &str) -> Running {
    let line = ["refresh", stage.lock.as_str()].into_iter().chain(options.iter().copied());
    stage.start(line.chain(["--", "sh", "-c", script]))
}

fn refresh(stage: &Stage<'_>, options: &[&str], script: &str) -> Finished {
    start(stage, options, script).finish()
}

/// One that computes, once its script wrote `started`.
fn begin(stage: &Stage<'_>, script: &str) -> Running {
    let computing = start(stage, &LONG, script);
    computing.until("the script to start", || stage.sandbox.path("started").exists())
}

/// One that waits as number `place`, and would run the script.
fn wait(stage: &Stage<'_>, script: &str, place: u64) -> Running {
    let waiter = start(stage, &LONG, script);
    let lock = lock(stage);
    waiter.until("the waiter to queue", || stage.sandbox.waiting(&lock) >= place)
}

fn one_of_many_computes(stage: &Stage<'_>) {
    let script = format!("echo $LOCKFAST_NAME >> ran; echo heard >&2; {UNTIL_GO}; echo value");
    let first = begin(stage, &script);
    let others: Vec<_> = (1..=3).map(|place| wait(stage, "echo >> ran", place)).collect();
    stage.go();
    let first = first.finish().expect(0);
    assert_eq!((first.stdout.as_str(), first.stderr.as_str()), ("value\n", "heard\n"));
    for other in others {
        let other = other.finish().expect(0);
        let is_told = |line: &str| line.starts_with("lockfast: waiting for ");
        assert!(other.stderr.lines().all(is_told), "{}", other.stderr);
        assert_eq!(other.stdout, "value\n");
    }
    assert_eq!(refresh(stage, &LONG, "echo >> ran").expect(0).stdout, "value\n");
    assert_eq!(stage.sandbox.read("ran"), format!("{}\n", lock(stage)), "it ran once");
}

fn a_failure_is_told(stage: &Stage<'_>) {
    let first = begin(stage, &format!("echo half; {UNTIL_GO}; exit 3"));
    let waiter = wait(stage, "touch ran", 1);
    stage.go();
    let first = first.finish().expect(3);
    assert_eq!(first.stdout, "", "half a value");
    let told = waiter.finish().expect(75);
    for words in ["the command of lockfast (pid ", "ended with exit code 3", &lock(stage)] {
        assert!(told.stderr.contains(words), "{words}: {}", told.stderr);
    }
    assert_eq!(told.stdout, "");
    assert!(!stage.sandbox.path("ran").exists());
    // Nothing was stored, and whoever asks afterwards computes.
    assert_eq!(refresh(stage, &LONG, "echo next").expect(0).stdout, "next\n");
}

fn the_last_is_good_enough(stage: &Stage<'_>) {
    let times = ["--for", "100ms", "--stale-for", "1h"];
    assert_eq!(refresh(stage, &times, "echo old").expect(0).stdout, "old\n");
    // Until it is not fresh any more, nothing is run.
    let begun = Moment::now();
    let computing = loop {
        assert!(Moment::now().since(begun) < BOUND, "still fresh");
        let mut one = start(stage, &times, &format!("{UNTIL_GO}; echo new"));
        while !stage.sandbox.path("started").exists() && one.child().try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        if stage.sandbox.path("started").exists() {
            break one;
        }
        assert_eq!(one.finish().expect(0).stdout, "old\n");
    };
    for _ in 0..2 {
        assert_eq!(refresh(stage, &times, "touch twice").expect(0).stdout, "old\n");
    }
    stage.go();
    assert_eq!(computing.finish().expect(0).stdout, "new\n");
    assert!(!stage.sandbox.path("twice").exists());
}

/// Its guard stops it and gives the lock back, and one who waited computes.
fn a_killed_is_followed(stage: &Stage<'_>) {
    let first = begin(stage, FOR_EVER);
    let waiter = wait(stage, "echo next", 1);
    first.signal(Signal::KILL);
    assert_eq!(waiter.finish().expect(0).stdout, "next\n");
    stage.check_job_is_gone();
}

/// That somebody ended it says nothing about the value.
fn an_interrupted_one(stage: &Stage<'_>) {
    let first = begin(stage, &format!("echo half; {FOR_EVER}"));
    let waiter = wait(stage, "echo next", 1);
    first.signal(Signal::TERM);
    assert_eq!(first.finish().expect(143).stdout, "");
    assert_eq!(waiter.finish().expect(0).stdout, "next\n");
    stage.check_job_is_gone();
}

fn a_loss_stops_it(stage: &Stage<'_>) {
    let first = begin(stage, &format!("echo half; {FOR_EVER}"));
    revoke_lock(stage, &lock(stage));
    let first = first.finish().expect(120);
    assert!(first.stderr.contains("maintenance"), "{}", first.stderr);
    assert_eq!(first.stdout, "");
    stage.check_job_is_gone();
    assert_eq!(refresh(stage, &LONG, "echo next").expect(0).stdout, "next\n");
}

/// Also where the job does not know the URL of the store.
fn inside_itself(stage: &Stage<'_>) {
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let inner = |script: &str| format!("{binary} refresh {} --for 1h -- {script}", stage.lock);
    let failed = refresh(stage, &LONG, &inner("sh -c 'echo half; exit 4'")).expect(4);
    assert_eq!(failed.stdout, "");
    let script = format!("printf 'outer '; {}", inner("echo inner"));
    assert_eq!(refresh(stage, &LONG, &script).expect(0).stdout, "outer inner\n");
    // What the outer one printed was stored.
    assert_eq!(refresh(stage, &LONG, "touch ran").expect(0).stdout, "outer inner\n");
    assert!(!stage.sandbox.path("ran").exists());
}
