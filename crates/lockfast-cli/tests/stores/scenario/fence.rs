//! `fence`: what a job writes is refused when a later holder was there before.

use super::loss::revoke;
use super::{Group, scenario};
use crate::sandbox::Running;
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "fence",
    scenarios: &[
        scenario("a_late_writer_is_refused", a_late_writer_is_refused),
        scenario("holders_pass_in_order", holders_pass_in_order),
    ],
};

const BINARY: &str = env!("CARGO_BIN_EXE_lockfast");

/// It has lost the lock and does not stop; its write comes after the next holder's open step.
fn a_late_writer_is_refused(stage: &Stage<'_>) {
    let script = format!(
        "{BINARY} fence open --file gate || exit
         touch started; while ! [ -e go ]; do sleep 0.01; done
         {BINARY} fence check --file gate -- touch late"
    );
    let first = stage.hold(&["--on-lost", "warn"], &script);
    revoke(stage);
    let next = [BINARY, "fence", "check", "--file", "gate", "--", "touch", "written"];
    stage.run(["run", &stage.lock, "--"].iter().chain(&next)).expect(0);
    stage.go();
    let refused = first.finish().expect(75);
    assert!(refused.stderr.contains("is stale"), "{}", refused.stderr);
    assert!(stage.sandbox.path("written").exists() && !stage.sandbox.path("late").exists());
}

fn holders_pass_in_order(stage: &Stage<'_>) {
    let script = format!(
        "{BINARY} fence open --file gate &&
         exec {BINARY} fence check --file gate -- sh -c 'echo $LOCKFAST_FENCE >> log'"
    );
    let line = ["run", &stage.lock, "--wait", "60s", "--", "sh", "-c", &script];
    let holders: Vec<Running> = (0..3).map(|_| stage.start(line)).collect();
    for holder in holders {
        holder.finish().expect(0);
    }
    let log = stage.sandbox.read("log");
    let log: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(log.len() == 3 && log.is_sorted_by(|one, next| one < next), "{log:?}");
}
