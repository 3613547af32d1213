//! Exit codes.

use super::{Group, scenario};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "exits",
    scenarios: &[
        scenario("are_the_commands_own", are_the_commands_own),
        scenario("of_a_command_that_cannot_run", of_a_command_that_cannot_run),
        scenario("of_a_lock_that_is_taken", of_a_lock_that_is_taken),
    ],
};

fn are_the_commands_own(stage: &Stage<'_>) {
    let table = [("exit 0", 0), ("exit 7", 7), ("exit 75", 75), ("exit 120", 120)];
    let signals = [("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)];
    for (script, code) in table.into_iter().chain(signals) {
        stage.run(["run", &stage.lock, "--", "sh", "-c", script]).expect(code);
    }
}

/// Found out before the lock is taken: nobody waits for a typing error.
fn of_a_command_that_cannot_run(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    for (command, code) in [("no-such-command", 127), ("/etc/passwd", 126), ("/", 126)] {
        let finished = stage.run(["run", &stage.lock, "--", command]).expect(code);
        assert!(finished.stderr.contains("was not taken"), "{}", finished.stderr);
    }
    stage.go();
    holder.finish().expect(0);
}

fn of_a_lock_that_is_taken(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    for (options, code) in [
        (["--try", "-E75"].as_slice(), 75),
        (&["--try", "-E", "0"], 0),
        (&["--wait", "100ms", "-E", "9"], 9),
    ] {
        let line = ["run", stage.lock.as_str()].into_iter().chain(options.iter().copied());
        stage.run(line.chain(["--", "touch", "ran"])).expect(code);
    }
    stage.go();
    holder.finish().expect(0);
    assert!(!stage.sandbox.path("ran").exists());
}
