//! Messages as JSON: with `--json` each line of ours on standard error is an object.

use std::io::{BufRead as _, BufReader};

use serde_json::Value;

use crate::sandbox::{Finished, Sandbox};

fn messages(finished: &Finished) -> Vec<Value> {
    let lines = finished.stderr.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[test]
fn every_error_is_one_object() {
    let sandbox = Sandbox::new();
    sandbox.run(["acquire", "taken", "--ttl", "60s"]).expect(0);
    let holder = "0".repeat(32);
    for (line, code, word, said) in [
        ("run taken -n true", 75, "taken", "is held by"),
        ("run taken -n -E 3 true", 3, "taken", "is held by"),
        ("run taken -w 10ms true", 75, "taken", "gave up after"),
        ("once taken --at-most 5m true", 75, "taken", "skipped: lock"),
        ("acquire taken --ttl 5s -n", 75, "taken", "is held by"),
        (&format!("release taken --holder {holder}"), 75, "not_held", "is not held by this holder"),
        ("show", 64, "usage", "<NAME>"),
        ("show x --tll", 64, "usage", "'--tll'"),
        ("--format yaml show x", 64, "usage", "human, json"),
        ("run x --ttl 10 true", 64, "usage", "10s or 10ms"),
        ("run x", 64, "usage", "the command is missing"),
        ("show x --on foo:", 78, "configuration", "foo"),
        ("run x --on foo: true", 125, "configuration", "foo"),
        ("show x --on redis://127.0.0.1:1", 69, "unreachable", "connection refused: 127.0.0.1:1"),
        ("run x --on redis://127.0.0.1:1 true", 125, "unreachable", "connection refused"),
        ("run x no-such-command", 127, "not_found", "was not taken"),
        ("run x /etc/passwd", 126, "not_executable", "was not taken"),
        ("fence open --file gate --lock x --fence a", 64, "usage", "digits only"),
    ] {
        let finished = sandbox.run(["--json"].into_iter().chain(line.split(' '))).expect(code);
        let messages = messages(&finished);
        let [error] = &*messages else { panic!("{line}: {messages:?}") };
        assert_eq!((&error["level"], &error["error"]), (&"error".into(), &word.into()), "{line}");
        assert_eq!(error["exit_code"], code, "{line}");
        assert!(error["message"].as_str().unwrap().contains(said), "{line}: {error}");
        assert_eq!(finished.stdout, "", "{line}");
        if word == "taken" {
            assert_eq!(error["lock"]["name"], "taken", "{line}");
            assert!(error["lock"]["holders"][0]["pid"].is_number(), "{line}: {error}");
            let waits = line.contains(" -w ");
            assert_eq!(error["lock"]["waited_ms"] != 0, waits, "{line}: {error}");
        }
    }
}

/// A program for this machine that only the kernel finds to be of no use, because what is to load it is
/// not there.
fn program_without_loader() -> Vec<u8> {
    let loader = b"/no/such/loader\0";
    let mut program = std::fs::read("/proc/self/exe").unwrap();
    program.truncate(64);
    program[32..40].copy_from_slice(&64_u64.to_ne_bytes()); // where the program headers are
    program[40..48].copy_from_slice(&0_u64.to_ne_bytes()); // no sections
    program[56..58].copy_from_slice(&1_u16.to_ne_bytes()); // one program header
    program[60..64].fill(0);
    program.extend([3_u32, 4].map(u32::to_ne_bytes).concat()); // PT_INTERP, readable
    let length = loader.len() as u64;
    program.extend([120, 0, 0, length, length, 1_u64].map(u64::to_ne_bytes).concat());
    program.extend(loader);
    program
}

/// B242: what the guard and the process that becomes the command told was prose, whatever was asked for.
#[test]
fn so_are_those_of_the_processes_below() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("program"), program_without_loader()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("program"), mode).unwrap();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let inside = format!("run refresh:x --json {binary} refresh x --for 5s --json ./program");
    for (line, code, word, said) in [
        ("run x --json ./program", 127, "not_found", "cannot be executed"),
        ("refresh x --for 5s --json ./program", 127, "not_found", "cannot be executed"),
        (&inside, 127, "not_found", "cannot be executed"),
        ("__guard json", 70, "internal", "the guard process failed"),
    ] {
        let finished = sandbox.run(line.split(' ')).expect(code);
        let messages = messages(&finished);
        assert_eq!(messages[0]["error"], word, "{line}: {messages:?}");
        assert_eq!(messages[0]["exit_code"], code, "{line}: {messages:?}");
        assert!(messages[0]["message"].as_str().unwrap().contains(said), "{line}: {messages:?}");
    }
    let plain = sandbox.run(["run", "x", "./program"]).expect(127);
    assert!(plain.stderr.starts_with("lockfast: the command"), "{}", plain.stderr);
}

#[test]
fn warnings_and_notes_are_objects_too() {
    let sandbox = Sandbox::new();
    let warned = sandbox.run(["run", "x", "--on", "memory:", "--json", "true"]).expect(0);
    assert_eq!(messages(&warned)[0]["level"], "warning");
    let elected = sandbox.run(["elect", "x", "--json", "true"]).expect(0);
    assert_eq!(messages(&elected)[0]["level"], "note");
    let _holder = sandbox.hold(&["x"], "touch started; sleep 1000");
    let mut waiter = sandbox.start(["run", "x", "--json", "true"]);
    let mut said = BufReader::new(waiter.child().stderr.take().unwrap()).lines();
    let note: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    assert!(note["message"].as_str().unwrap().starts_with("waiting for x: "), "{note}");
}

/// What the command prints is its own, whatever form our messages have.
#[test]
fn json_does_not_change_the_command() {
    let sandbox = Sandbox::new();
    let finished = sandbox.run(["run", "x", "--json", "-c", "echo out; echo err >&2"]).expect(0);
    assert_eq!((&*finished.stdout, &*finished.stderr), ("out\n", "err\n"));
}
