//! A lease that is lost while the command runs.

use super::{Group, scenario};
use crate::sandbox::eventually;
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "loss",
    scenarios: &[
        scenario("a_job_that_ignores_term_is_killed", a_job_that_ignores_term_is_killed),
        scenario("a_job_may_stop_in_its_own_way", a_job_may_stop_in_its_own_way),
        scenario("only_a_warning", only_a_warning),
        scenario("the_wrong_fence_does_nothing", the_wrong_fence_does_nothing),
    ],
};

pub(super) fn revoke(stage: &Stage<'_>) {
    revoke_lock(stage, &stage.lock);
}

pub(super) fn revoke_lock(stage: &Stage<'_>, lock: &str) {
    let line = ["force-release", lock, "--yes", "--reason", "maintenance"];
    let revoked = stage.run(line);
    if revoked.code() == 69 && revoked.stderr.contains("try again") {
        // Where several nodes decide, a busy machine can make some of them late.
        eventually("it to be taken away", || stage.run(line).code() != 69);
    } else {
        assert!(revoked.expect(0).stdout.contains("taken from"));
    }
}

fn a_job_that_ignores_term_is_killed(stage: &Stage<'_>) {
    let deaf = "trap '' TERM; echo $$ > pids; touch started; while :; do sleep 1; done";
    let holder = stage.hold(&["--grace", "200ms"], deaf);
    revoke(stage);
    let finished = holder.finish().expect(120);
    let reason = if stage.row.is_session { "ended the session" } else { "maintenance" };
    assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    stage.check_job_is_gone();
    stage.try_it().expect(0);
}

fn a_job_may_stop_in_its_own_way(stage: &Stage<'_>) {
    let polite = "trap 'echo polite >> how; exit 3' TERM; touch started
while :; do sleep 0.01; done";
    for on_lost in ["kill", "term"] {
        let holder = stage.hold(&["--grace", "30s", "--on-lost", on_lost], polite);
        revoke(stage);
        holder.finish().expect(120);
        std::fs::remove_file(stage.sandbox.path("started")).unwrap();
    }
    assert_eq!(stage.sandbox.read("how"), "polite\npolite\n");
}

fn only_a_warning(stage: &Stage<'_>) {
    let script = "touch started; while ! [ -e go ]; do sleep 0.01; done; exit 5";
    let mut holder = stage.hold(&["--on-lost", "warn"], script);
    revoke(stage);
    let mut stderr = std::io::BufReader::new(holder.child().stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("goes on without the lock"), "{line}");
    stage.go();
    holder.finish().expect(5);
}

fn the_wrong_fence_does_nothing(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let reason = ["--yes", "--reason", "r"];
    let wrong = ["--expect-fence", "5"];
    let line = ["force-release", &stage.lock];
    let refused = stage.run(line.iter().chain(&reason).chain(&wrong)).expect(75);
    assert!(refused.stderr.contains("expected 5; nothing was done"), "{}", refused.stderr);
    stage.go();
    holder.finish().expect(0);
    let free = stage.run(line.iter().chain(&reason)).expect(75);
    assert!(free.stderr.contains("is not held"), "{}", free.stderr);
}
