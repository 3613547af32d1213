//! A lease that is lost while the command runs.

use crate::sandbox::{Sandbox, is_alive};

const DEAF: &str = "trap '' TERM; echo $$ > pids; touch started; while :; do sleep 1; done";
const POLITE: &str = "trap 'echo polite > how; exit 3' TERM; echo $$ > pids; touch started
while :; do sleep 0.01; done";

fn revoke(sandbox: &Sandbox) {
    let revoked = sandbox.run(["force-release", "job", "--yes", "--reason", "maintenance"]);
    assert!(revoked.expect(0).stdout.contains("taken from"));
}

#[test]
fn a_job_that_ignores_term_is_killed() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job", "--grace", "200ms"], DEAF);
    let pids = sandbox.pids("pids", 1);
    revoke(&sandbox);
    let finished = wrapper.finish().expect(120);
    assert!(finished.stderr.contains("maintenance"), "{}", finished.stderr);
    assert!(!is_alive(pids[0]));
    assert!(!sandbox.is_held("job"));
}

#[test]
fn a_job_may_stop_in_its_own_way() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job", "--grace", "30s"], POLITE);
    revoke(&sandbox);
    wrapper.finish().expect(120);
    assert_eq!(sandbox.read("how"), "polite\n");
}

#[test]
fn term_only() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job", "--on-lost", "term"], POLITE);
    revoke(&sandbox);
    wrapper.finish().expect(120);
    assert_eq!(sandbox.read("how"), "polite\n");
}

#[test]
fn warn_only() {
    let sandbox = Sandbox::new();
    let script = "touch started; while ! [ -e go ]; do sleep 0.01; done; exit 5";
    let mut wrapper = sandbox.hold(&["job", "--on-lost", "warn"], script);
    revoke(&sandbox);
    let mut stderr = std::io::BufReader::new(wrapper.child().stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("goes on without the lock"), "{line}");
    std::fs::write(sandbox.path("go"), "").unwrap();
    wrapper.finish().expect(5);
}

#[test]
fn the_wrong_fence_does_nothing() {
    let sandbox = Sandbox::new();
    let script = "touch started; while ! [ -e go ]; do sleep 0.01; done";
    let wrapper = sandbox.hold(&["job"], script);
    let arguments = ["force-release", "job", "--yes", "--reason", "r", "--expect-fence", "5"];
    let refused = sandbox.run(arguments).expect(75);
    assert!(refused.stderr.contains("expected 5; nothing was done"), "{}", refused.stderr);
    std::fs::write(sandbox.path("go"), "").unwrap();
    wrapper.finish().expect(0);
    let free = sandbox.run(["force-release", "job", "--yes", "--reason", "r"]).expect(75);
    assert!(free.stderr.contains("is not held"), "{}", free.stderr);
}
