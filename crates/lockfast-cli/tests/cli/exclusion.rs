//! Two jobs under one lock never overlap.

use crate::sandbox::{Sandbox, eventually};

/// Notes its start and its end, and notices anybody else inside by a directory that only one can
/// make.
const VISIT: &str = "mkdir inside || echo $$ >> overlaps
echo start $$ >> visits
sleep 0.01
echo end $$ >> visits
rmdir inside";

#[test]
fn fifty_processes_never_overlap() {
    let sandbox = Sandbox::new();
    let running: Vec<_> =
        (0..50).map(|_| sandbox.start(["run", "job", "--", "sh", "-c", VISIT])).collect();
    for one in running {
        one.finish().expect(0);
    }
    assert_eq!(sandbox.read("overlaps"), "");
    let visits = sandbox.read("visits");
    let lines: Vec<_> = visits.lines().collect();
    assert_eq!(lines.len(), 100);
    for pair in lines.chunks(2) {
        let id = pair[0].strip_prefix("start ").unwrap();
        assert_eq!(pair[1], format!("end {id}"));
    }
}

#[test]
fn a_held_lock_is_refused_at_once_with_its_holder() {
    let sandbox = Sandbox::new();
    let holder = sandbox.hold(&["job", "--label", "nightly"], "touch started; sleep 1000");
    let finished = sandbox.run(["run", "job", "--try", "--", "touch", "ran"]).expect(75);
    let pid = format!("pid {}", holder.pid().as_raw_pid());
    let host = format!("on {}", rustix::system::uname().nodename().to_string_lossy());
    for words in ["\"job\"", "nightly", &pid, &host, "since 20", "left"] {
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
    sandbox.run(["run", "job", "--try", "-E", "9", "--", "touch", "ran"]).expect(9);
    let waited = sandbox.run(["run", "job", "--wait", "150ms", "--", "touch", "ran"]).expect(75);
    assert!(waited.stderr.contains("gave up after"), "{}", waited.stderr);
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn shared_holders_and_permits() {
    let sandbox = Sandbox::new();
    let shared = sandbox.hold(&["s", "--shared"], "touch started; sleep 1000");
    sandbox.run(["run", "s", "--shared", "--try", "--", "true"]).expect(0);
    sandbox.run(["run", "s", "--try", "--", "true"]).expect(75);
    drop(shared);
    std::fs::remove_file(sandbox.path("started")).unwrap();
    let _permit = sandbox.hold(&["p", "--permits", "2"], "touch started; sleep 1000");
    sandbox.run(["run", "p", "--permits", "2", "--try", "--", "true"]).expect(0);
    let one = sandbox.run(["acquire", "p", "--ttl", "60s", "--permits", "2", "--try"]).expect(0);
    assert!(one.stdout.contains("holder="));
    sandbox.run(["run", "p", "--permits", "2", "--try", "--", "true"]).expect(75);
}

#[test]
fn a_nested_run_of_the_same_lock_does_not_wait_for_itself() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let script = format!(
        "echo $LOCKFAST_FENCE > outer
         {binary} run job --try -- {binary} run job --try -- sh -c 'echo $LOCKFAST_FENCE > inner; exit 7'"
    );
    sandbox.run(["run", "job", "--", "sh", "-c", &script]).expect(7);
    assert_eq!(sandbox.read("outer"), sandbox.read("inner"));
    assert_ne!(sandbox.read("inner"), "");
    // Another lock is taken as usual, and both are known further down.
    let script = format!("{binary} run other -- {binary} run job --try -- sh -c 'exit 8'");
    sandbox.run(["run", "job", "--", "sh", "-c", &script]).expect(8);
    // From shared to exclusive would wait for itself for ever, so it is refused.
    let script = format!("{binary} run job -- true");
    let refused = sandbox.run(["run", "job", "--shared", "--", "sh", "-c", &script]).expect(125);
    assert!(refused.stderr.contains("wait for itself"), "{}", refused.stderr);
}

#[test]
fn a_stale_hint_about_an_outer_hold_is_not_believed() {
    let sandbox = Sandbox::new();
    sandbox.run(["run", "job", "--", "sh", "-c", "printf %s \"$LOCKFAST_HELD\" > hint"]).expect(0);
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let mut command = sandbox.command(["run", "job", "--try", "--", "touch", "ran"]);
    command.env("LOCKFAST_HELD", sandbox.read("hint"));
    crate::sandbox::Running::new(command).finish().expect(75);
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn waiters_are_served_in_order() {
    let sandbox = Sandbox::new();
    let holder = sandbox.hold(&["job"], "touch started; while ! [ -e go ]; do sleep 0.01; done");
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            let script = format!("echo {number} >> order");
            let waiter = sandbox.start(["run", "job", "--", "sh", "-c", &script]);
            eventually("the waiter to queue", || sandbox.waiting("job") == number);
            waiter
        })
        .collect();
    std::fs::write(sandbox.path("go"), "").unwrap();
    holder.finish().expect(0);
    for waiter in waiters {
        waiter.finish().expect(0);
    }
    assert_eq!(sandbox.read("order"), "1\n2\n3\n4\n");
}
