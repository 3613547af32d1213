//! A run inside a run.

use super::loss::revoke;
use super::modes::check_refusal;
use super::{Group, scenario};
use crate::row::SECRET;
use crate::sandbox::{Running, eventually};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "nesting",
    scenarios: &[
        scenario("does_not_wait_for_itself", does_not_wait_for_itself),
        scenario("of_another_lock_is_on_the_same_store", of_another_lock_is_on_the_same_store),
        scenario("from_shared_to_exclusive_is_refused", from_shared_to_exclusive_is_refused),
        scenario("under_a_job_that_survives_a_loss", under_a_job_that_survives_a_loss),
        scenario("counts_for_a_daemon_of_the_job", counts_for_a_daemon_of_the_job),
        scenario("does_not_count_outside_of_the_job", does_not_count_outside_of_the_job),
    ],
};

const BINARY: &str = env!("CARGO_BIN_EXE_lockfast");

fn does_not_wait_for_itself(stage: &Stage<'_>) {
    let lock = &stage.lock;
    let script = format!(
        "echo $LOCKFAST_FENCE > outer
         {BINARY} run {lock} --try -- {BINARY} run {lock} --try -- \
         sh -c 'echo $LOCKFAST_FENCE > inner; exit 7'"
    );
    stage.run(["run", lock, "--", "sh", "-c", &script]).expect(7);
    assert_eq!(stage.sandbox.read("outer"), stage.sandbox.read("inner"));
    assert_ne!(stage.sandbox.read("inner"), "");
}

/// B28: a URL with a password is kept from the job, and the inner run fell back to another store.
fn of_another_lock_is_on_the_same_store(stage: &Stage<'_>) {
    let (lock, other) = (&stage.lock, format!("{}-other", stage.lock));
    let inner = format!("{BINARY} run {other} --try -- {BINARY} run {lock} --try -- touch entered");
    if stage.sandbox.url().contains(SECRET) {
        let refused = stage.run(["run", lock, "--", "sh", "-c", &inner]).expect(125);
        assert!(refused.stderr.contains("not known here"), "{}", refused.stderr);
        assert!(!stage.sandbox.path("entered").exists());
    }
    // A job that has the URL from somewhere else can use it.
    std::fs::write(stage.sandbox.path("url"), stage.sandbox.url()).unwrap();
    let told = format!("export LOCKFAST_URL=$(cat url); {inner}");
    let outer = stage.run(["run", lock, "--", "sh", "-c", &format!("{told}; {BINARY} list")]);
    assert!(outer.expect(0).stdout.contains(lock));
    assert!(stage.sandbox.path("entered").exists());
}

/// Living under such a job is no sign of holding its lock: the store must be asked, or it is refused.
fn under_a_job_that_survives_a_loss(stage: &Stage<'_>) {
    let lock = &stage.lock;
    let is_secret = stage.sandbox.url().contains(SECRET);
    let script = format!(
        "touch started; while ! [ -e go ]; do sleep 0.01; done
         {BINARY} run {lock} --try -- touch entered"
    );
    for (is_lost, code) in
        [(false, if is_secret { 125 } else { 0 }), (true, if is_secret { 125 } else { 75 })]
    {
        let outer = stage.hold(&["--on-lost", "warn"], &script);
        let mut next = None;
        if is_lost {
            revoke(stage);
            next = Some(stage.start(["run", lock, "--", "sh", "-c", "touch next; sleep 1000"]));
            eventually("the next to start", || stage.sandbox.path("next").exists());
        }
        stage.go();
        let finished = outer.finish().expect(code);
        if is_secret {
            assert!(finished.stderr.contains("not known here"), "{}", finished.stderr);
        }
        assert_eq!(stage.sandbox.path("entered").exists(), code == 0);
        for file in ["started", "go", "entered"] {
            let _ = std::fs::remove_file(stage.sandbox.path(file));
        }
        drop(next);
    }
}

/// It would wait for itself for ever.
fn from_shared_to_exclusive_is_refused(stage: &Stage<'_>) {
    if !stage.row.has_shared {
        return check_refusal(stage, &["--shared"]);
    }
    let script = format!("{BINARY} run {} -- true", stage.lock);
    let refused =
        stage.run(["run", &stage.lock, "--shared", "--", "sh", "-c", &script]).expect(125);
    assert!(refused.stderr.contains("wait for itself"), "{}", refused.stderr);
}

/// Its parent has ended, and the guard has taken its place.
fn counts_for_a_daemon_of_the_job(stage: &Stage<'_>) {
    let daemon = format!("{BINARY} run {} --try -- touch entered; echo $? > code", stage.lock);
    let script = format!("(setsid sh -c '{daemon}' &); while ! [ -s code ]; do sleep 0.01; done");
    stage.run(["run", &stage.lock, "--", "sh", "-c", &script]).expect(0);
    assert_eq!(stage.sandbox.read("code"), "0\n");
    assert!(stage.sandbox.path("entered").exists());
}

/// B29: whoever had a copy of the variable ran without the lock.
fn does_not_count_outside_of_the_job(stage: &Stage<'_>) {
    let script = "printf %s \"$LOCKFAST_HELD\" > hint; touch started
while ! [ -e go ]; do sleep 0.01; done";
    let holder = stage.hold(&[], script);
    let mut command =
        stage.sandbox.command(["run", &stage.lock, "--try", "--", "touch", "entered"]);
    command.env("LOCKFAST_HELD", stage.sandbox.read("hint"));
    Running::new(command).finish().expect(75);
    assert!(!stage.sandbox.path("entered").exists());
    stage.go();
    holder.finish().expect(0);
}
