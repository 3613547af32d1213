//! `refresh`, as far as it does not depend on the store.

use serde_json::json;

use crate::sandbox::{Finished, Running, Sandbox};

/// The longest value that can be stored.
const BYTES_MAX: usize = 64 * 1024 - 17;

fn refresh(sandbox: &Sandbox, name: &str, options: &[&str], script: &str) -> Finished {
    let line = ["refresh", name, "--for", "1h"].into_iter().chain(options.iter().copied());
    sandbox.run(line.chain(["--", "sh", "-c", script]))
}

#[test]
fn json_says_what_it_is() {
    let sandbox = Sandbox::new();
    for computed in [true, false] {
        let value = refresh(&sandbox, "text", &["--json"], "printf 'é\n'").expect(0).json();
        let expected =
            json!({ "name": "text", "value": "é\n", "encoding": "utf-8", "computed": computed });
        assert_eq!(value, expected);
        let value = refresh(&sandbox, "bytes", &["--json"], "printf '\\377\\376'").expect(0).json();
        let expected =
            json!({ "name": "bytes", "value": "//4=", "encoding": "base64", "computed": computed });
        assert_eq!(value, expected);
    }
    let failed = refresh(&sandbox, "none", &["--json"], "echo half; exit 9").expect(9);
    assert_eq!(failed.stdout, "");
}

#[test]
fn bytes_are_printed_as_they_are() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    for file in ["computed", "read"] {
        let script = format!(
            "{binary} refresh x --for 1h -- sh -c 'printf \"\\000\\377\\n\\n\"; : > /dev/stdout' > {file}"
        );
        Running::new(sandbox.shell(&script)).finish().expect(0);
        assert_eq!(std::fs::read(sandbox.path(file)).unwrap(), b"\0\xff\n\n", "{file}");
    }
    assert_eq!(refresh(&sandbox, "nothing", &[], "true").expect(0).stdout, "");
    assert_eq!(refresh(&sandbox, "nothing", &[], "echo something").expect(0).stdout, "");
}

#[test]
fn what_is_too_long_is_not_stored() {
    let sandbox = Sandbox::new();
    let print = |count: usize| format!("head -c {count} /dev/zero");
    let whole = refresh(&sandbox, "whole", &[], &print(BYTES_MAX)).expect(0);
    assert_eq!(whole.stdout.len(), BYTES_MAX);
    assert_eq!(refresh(&sandbox, "whole", &[], "false").expect(0).stdout, whole.stdout);
    // Also one that would never end, and one that does not care.
    for script in [&print(BYTES_MAX + 1), "yes", "trap '' PIPE; yes 2>/dev/null; exit 3"] {
        let refused = refresh(&sandbox, "long", &[], script).expect(125);
        assert!(refused.stderr.contains("more than the 65519 bytes"), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
    assert_eq!(refresh(&sandbox, "long", &[], "echo short").expect(0).stdout, "short\n");
    let inner = format!("{} refresh in --for 1h -- yes", env!("CARGO_BIN_EXE_lockfast"));
    let refused = refresh(&sandbox, "in", &[], &inner).expect(125);
    assert!(refused.stderr.contains("more than the 65519 bytes"), "{}", refused.stderr);
}

#[test]
fn the_command_is_run_as_run_does() {
    let sandbox = Sandbox::new();
    let script = "echo \"$A $LOCKFAST_NAME\"; echo \"$LOCKFAST_FENCE\" >&2";
    let finished = refresh(&sandbox, "job", &["--env", "A=b"], script).expect(0);
    assert_eq!(finished.stdout, "b refresh:job\n");
    assert!(finished.stderr.trim().parse::<u64>().unwrap() > 0);
    refresh(&sandbox, "signal", &[], "kill -SEGV $$").expect(139);
    let missing = sandbox.run(["refresh", "x", "--for", "1h", "--", "no-such-command"]).expect(127);
    assert!(missing.stderr.contains("was not taken"), "{}", missing.stderr);
}

/// Inside a job that has the lock by other means.
#[test]
fn a_job_may_hold_the_lock_itself() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let inner = format!("{binary} refresh x --for 1h --json -- printf 7");
    let finished = sandbox.run(["run", "refresh:x", "--", "sh", "-c", &inner]).expect(0);
    let expected = json!({ "name": "x", "value": "7", "encoding": "utf-8", "computed": true });
    assert_eq!(finished.json(), expected);
    // Storing it was left to the job around it.
    assert_eq!(refresh(&sandbox, "x", &[], "echo 8").expect(0).stdout, "8\n");
}

/// What cannot be printed was computed all the same.
#[test]
fn an_output_that_cannot_be_written_is_told() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let script = format!("{binary} refresh x --for 1h -- echo 7 > /dev/full");
    let finished = Running::new(sandbox.shell(&script)).finish().expect(125);
    assert!(finished.stderr.contains("No space left"), "{}", finished.stderr);
    assert_eq!(refresh(&sandbox, "x", &[], "echo 8").expect(0).stdout, "7\n");
}
