//! `fence`: gates for scripts, in a file and in a database.

use rusqlite::Connection;
use serde_json::json;

use crate::sandbox::{Finished, Running, Sandbox, eventually};

const TABLE: &str = "(resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID";

fn fence(sandbox: &Sandbox, step: &str, place: [&str; 2], number: &str, more: &[&str]) -> Finished {
    let line = ["fence", step, place[0], place[1], "--lock", "a", "--fence", number];
    sandbox.run(line.iter().chain(more))
}

/// The rule, wherever the gate is.
fn check_rule(sandbox: &Sandbox, place: [&str; 2]) {
    for (step, number) in [("open", "41"), ("check", "41"), ("check", "42"), ("open", "42")] {
        let passed = fence(sandbox, step, place, number, &[]).expect(0);
        assert_eq!((passed.stdout.as_str(), passed.stderr.as_str()), ("", ""));
    }
    for step in ["check", "open"] {
        let refused = fence(sandbox, step, place, "41", &[]).expect(75);
        assert_eq!(refused.stdout, "");
        for words in ["lock \"a\"", "fence 41 is stale", "42 was seen"] {
            assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        }
    }
    let refused = fence(sandbox, "check", place, "7", &["--json"]).expect(75);
    let expected = json!({ "lock": "a", "fence": 7, "passed": false, "seen": 42 });
    assert_eq!(refused.json(), expected);
    assert!(refused.stderr.contains("42 was seen"), "{}", refused.stderr);
    let passed = fence(sandbox, "check", place, "43", &["--json"]).expect(0);
    let expected = json!({ "lock": "a", "fence": 43, "passed": true, "seen": 43 });
    assert_eq!(passed.json(), expected);
}

#[test]
fn a_file_refuses_what_is_stale() {
    let sandbox = Sandbox::new();
    check_rule(&sandbox, ["--file", "gate"]);
    assert_eq!(sandbox.read("gate"), "0000000000000043\n");
    assert!(!sandbox.path("store").exists(), "no store was to be touched");
}

#[test]
fn a_table_refuses_what_is_stale() {
    let sandbox = Sandbox::new();
    let database = Connection::open(sandbox.path("app.db")).unwrap();
    let place = ["--sql", "sqlite:app.db"];
    let missing = fence(&sandbox, "check", place, "41", &[]).expect(78);
    let setup = format!("CREATE TABLE IF NOT EXISTS `lockfast_fences` {TABLE}");
    assert!(missing.stderr.contains(&setup), "{}", missing.stderr);
    database.execute(&setup, []).unwrap();
    check_rule(&sandbox, place);
    database.execute(&format!("CREATE TABLE other {TABLE}"), []).unwrap();
    fence(&sandbox, "check", place, "5", &["--table", "other"]).expect(0);
    let seen = |table: &str| -> (String, i64) {
        let sql = format!("SELECT resource, fence FROM {table}");
        database.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!((seen("lockfast_fences"), seen("other")), (("a".into(), 43), ("a".into(), 5)));
}

/// In a job nothing has to be said twice.
#[test]
fn a_job_gives_its_lock_and_fence() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let run = |inner: &str| {
        let script = format!("echo $LOCKFAST_FENCE > fence; exec {binary} fence {inner}");
        sandbox.run(["run", "a", "--", "sh", "-c", &script])
    };
    let said = run("check --file gate --json").expect(0).json();
    assert_eq!(said["lock"], "a");
    assert_eq!(said["fence"].to_string(), sandbox.read("fence").trim());
    run("open --file gate").expect(0);
    run("check --file gate --fence 1").expect(75);
    run("check --file gate --lock a -- true").expect(0);
    // The fence of the job says nothing about another lock.
    let other = run("check --file other --lock b").expect(64);
    for words in ["gate of lock \"b\"", "lock \"a\""] {
        assert!(other.stderr.contains(words), "{words}: {}", other.stderr);
    }
    run("check --file other --lock b --fence 1").expect(0);
}

#[test]
fn a_command_runs_only_when_its_fence_passes() {
    let sandbox = Sandbox::new();
    let place = ["--file", "gate"];
    let run = |number: &str, script: &str| {
        fence(&sandbox, "check", place, number, &["--json", "--", "sh", "-c", script])
    };
    let ran = run("42", "echo out; echo err >&2; exit 7").expect(7);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    let refused = run("41", "touch ran").expect(75);
    let expected = json!({ "lock": "a", "fence": 41, "passed": false, "seen": 42 });
    assert_eq!(refused.json(), expected);
    assert!(!sandbox.path("ran").exists());
    // Nothing was checked for a command that is not there.
    let missing = fence(&sandbox, "check", place, "50", &["--", "no-such-command"]).expect(127);
    assert!(missing.stderr.contains("nothing was checked"), "{}", missing.stderr);
    fence(&sandbox, "check", place, "50", &["--", "/"]).expect(126);
    fence(&sandbox, "check", place, "42", &[]).expect(0);
    std::fs::write(sandbox.path("gate"), "42\n").unwrap();
    fence(&sandbox, "check", place, "50", &["--", "touch", "ran"]).expect(125);
    assert!(!sandbox.path("ran").exists());
}

/// Also by what the command left behind, and whatever becomes of the command.
#[test]
fn the_gate_is_held_until_nothing_of_the_command_is_left() {
    let sandbox = Sandbox::new();
    let arguments = |number, script| {
        let line = ["fence", "check", "--file", "gate", "--lock", "a", "--fence", number];
        line.into_iter().chain(["--", "sh", "-c", script])
    };
    let script = "touch started; while ! [ -e go ]; do sleep 0.01; done; echo first >> log";
    let left = format!("({script}) >/dev/null 2>&1 & kill -KILL $$");
    let first = sandbox.start(arguments("1", &left));
    let first = first.finish().status;
    assert_eq!(first.code(), None, "it was killed");
    eventually("the rest to start", || sandbox.path("started").exists());
    let second = sandbox.start(arguments("2", "echo second >> log"));
    let is_waiting = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let pid = format!(" {} ", second.pid().as_raw_pid());
        locks.lines().any(|line| line.contains("->") && line.contains(&pid))
    };
    eventually("the second to wait", is_waiting);
    std::fs::write(sandbox.path("go"), "").unwrap();
    second.finish().expect(0);
    assert_eq!(sandbox.read("log"), "first\nsecond\n");
}

#[test]
fn concurrent_writers_pass_one_by_one_in_order() {
    let sandbox = Sandbox::new();
    let script = "mkdir inside || touch met; echo $1 >> log; rmdir inside";
    let writers: Vec<Running> = (1..=24)
        .map(|number: u32| {
            let number = number.to_string();
            let line = ["fence", "check", "--file", "gate", "--lock", "a", "--fence", &number];
            let command = ["--", "sh", "-c", script, "sh", &number];
            sandbox.start(line.iter().chain(&command))
        })
        .collect();
    let codes: Vec<i32> = writers.into_iter().map(|writer| writer.finish().code()).collect();
    assert!(codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}");
    assert!(!sandbox.path("met").exists(), "two wrote at once");
    let log = sandbox.read("log");
    let log: Vec<u32> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(log.is_sorted(), "a lower fence wrote after a higher one: {log:?}");
    assert_eq!(log.len(), codes.iter().filter(|code| **code == 0).count());
    assert_eq!(log.last(), Some(&24));
}

#[test]
fn what_is_no_gate_is_told() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("text"), "something else, and long enough").unwrap();
    let table: [(&str, &str, i32, &str); 8] = [
        ("--file", "no/gate", 78, "a directory that is there"),
        ("--file", "/dev/null", 78, "regular file"),
        ("--file", "text", 78, "16 digits"),
        ("--sql", "sqlite:no.db", 78, "no.db"),
        ("--sql", "sqlite:text", 78, "not a database"),
        ("--sql", "sqlite:", 78, "sqlite:PATH"),
        ("--sql", "app.db", 78, "sqlite:PATH"),
        ("--sql", "postgres://me:geheim@h/db", 78, "transaction that writes"),
    ];
    for (option, place, code, words) in table {
        let refused = fence(&sandbox, "check", [option, place], "5", &[]).expect(code);
        assert!(refused.stderr.contains(words), "{place}: {}", refused.stderr);
        assert!(!refused.stderr.contains("geheim"), "{}", refused.stderr);
    }
    assert!(!sandbox.path("no.db").exists());
    let place = ["--sql", "sqlite:text"];
    fence(&sandbox, "check", place, "5", &["--table", "a b"]).expect(64);
    let refused = fence(&sandbox, "check", place, "5", &["--", "true"]).expect(64);
    assert!(refused.stderr.contains("transaction that writes"), "{}", refused.stderr);
}
