//! The commands other than `run`.

use std::io::{BufRead as _, BufReader};

use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{Running, Sandbox, eventually};

fn acquire(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.run(["acquire", name, "--ttl", "60s", "--try", "--json"]).expect(0).json()
}

#[test]
fn lists_are_literal_and_complete() {
    let sandbox = Sandbox::new();
    for name in ["a*", "a/b", "ab", "b", "[", "é x"] {
        acquire(&sandbox, name);
    }
    let names = |arguments: &[&str]| -> Vec<String> {
        let finished = sandbox.run(["list", "--json"].iter().chain(arguments)).expect(0);
        let values =
            finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        values.map(|value| value["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["[", "a*", "a/b", "ab", "b", "é x"]);
    assert_eq!(names(&["--prefix", "*"]), [""; 0]);
    assert_eq!(names(&["--prefix", "["]), ["["]);
    assert_eq!(names(&["--prefix", "a*"]), ["a*"]);
    assert_eq!(names(&["--prefix", "a", "--limit", "2"]), ["a*", "a/b"]);
    assert_eq!(names(&["--limit", "0"]), [""; 0]);
    let table = sandbox.run(["list"]).expect(0).stdout;
    assert!(table.contains("NAME") && table.contains("é x"), "{table}");
}

#[test]
fn long_lists_come_in_pages() {
    let sandbox = Sandbox::new();
    // More than one page, held by one process.
    let bench = sandbox.start(["bench", "renew", "--leases", "1203", "--seconds", "3600"]);
    eventually("all leases", || {
        sandbox.run(["list", "--json"]).expect(0).stdout.lines().count() == 1203
    });
    let limited = sandbox.run(["list", "--json", "--limit", "700"]).expect(0);
    assert_eq!(limited.stdout.lines().count(), 700);
    bench.signal(Signal::KILL);
    drop(bench);
}

#[test]
fn a_locale_without_utf_8_gets_ascii() {
    let sandbox = Sandbox::new();
    acquire(&sandbox, "é");
    for command in [vec!["show", "é"], vec!["list"]] {
        let mut command = sandbox.command(command);
        command.env("LANG", "C").env("TERM", "dumb").env("NO_COLOR", "?");
        let finished = Running::new(command).finish().expect(0);
        assert!(
            finished.stdout.is_ascii() && finished.stdout.contains("\\u{e9}"),
            "{}",
            finished.stdout
        );
    }
    let json = sandbox.run(["show", "é", "--json"]).expect(0).json();
    assert_eq!(json["name"], "é");
}

#[test]
fn watch_tells_what_happens() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.start(["watch", "a", "--json"]);
    let mut lines = BufReader::new(watch.child().stdout.take().unwrap()).lines();
    // It watches from some moment on; make events until one is seen.
    let (sender, seen) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.by_ref() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    let mut events = Vec::new();
    eventually("events", || {
        sandbox.run(["run", "b", "--", "true"]).expect(0);
        sandbox.run(["run", "a", "--", "true"]).expect(0);
        events.extend(seen.try_iter());
        let kinds: Vec<_> = events.iter().map(|event: &Value| event["event"].clone()).collect();
        kinds.contains(&"granted".into()) && kinds.contains(&"released".into())
    });
    assert!(events.iter().all(|event| event["name"] == "a"), "{events:?}");
    assert!(events.iter().any(|event| event["fence"].as_u64().is_some()));
    watch.signal(Signal::INT);
    watch.finish().expect(130);
    reader.join().unwrap();
}

#[test]
fn benchmarks_print_their_numbers() {
    let sandbox = Sandbox::new();
    let table: [(&[&str], &[&str]); 3] = [
        (&["cycle", "--tasks", "4"], &["cycles_per_s", "p50_us", "p99_us"]),
        (
            &["handover", "--waiters", "3"],
            &["handovers_per_s", "p50_us", "p99_us", "most_over_least"],
        ),
        (&["renew", "--leases", "20"], &["renewals_per_s", "cpu_ms_per_10k", "core_percent"]),
    ];
    for (arguments, keys) in table {
        let fixed = ["--seconds", "1", "--json"];
        let value = sandbox.run(["bench"].iter().chain(arguments).chain(&fixed)).expect(0).json();
        for key in keys {
            assert!(value[key].is_number(), "{key}: {value}");
        }
    }
    assert_eq!(sandbox.run(["list"]).expect(0).stdout, "");
}

#[test]
fn a_store_without_a_schema_has_nothing_to_migrate() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(["migrate"]).expect(0).stdout;
    assert_eq!(said, "nothing to migrate: this store needs no schema\n");
    let value = sandbox.run(["migrate", "--json"]).expect(0).json();
    assert_eq!(value, serde_json::json!({ "changed": false, "from": null, "version": null }));
    assert!(!sandbox.path("store").exists(), "it was not to be touched");
    sandbox.run(["migrate", "nightly"]).expect(64);
    let unknown = sandbox.run(["migrate", "--on", "oracle://h"]).expect(78);
    assert!(unknown.stderr.contains("embedded:"), "{}", unknown.stderr);
}

#[test]
fn completions_render() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sandbox.run(["completions", shell]).expect(0).stdout;
        assert!(script.contains("force-release") && script.contains("migrate"), "{shell}");
        assert!(!script.contains("__guard"), "{shell}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(["--help"]).expect(0).stdout.contains("force-release"));
    assert!(sandbox.run(["run", "--help"]).expect(0).stdout.contains("120 the lease was"));
    assert!(sandbox.run(["--version"]).expect(0).stdout.starts_with("lockfast "));
}

#[test]
fn memory_reaches_nobody_else_and_says_so() {
    let sandbox = Sandbox::new();
    let finished =
        sandbox.run(["run", "a", "--on", "memory:", "--", "sh", "-c", "exit 2"]).expect(2);
    assert!(finished.stderr.contains("keeps nobody else out"), "{}", finished.stderr);
}

#[test]
fn logs_appear_when_asked_for() {
    let sandbox = Sandbox::new();
    let log = |options: &[&str], filter: Option<&str>| {
        let mut command = sandbox.command(options.iter().chain(&["run", "a", "true"]));
        filter.map(|filter| command.env("RUST_LOG", filter));
        let finished = Running::new(command).finish().expect(0);
        assert_eq!(finished.stdout, "");
        finished.stderr
    };
    assert_eq!(log(&[], None), "");
    let (once, twice) = (log(&["-v"], None), log(&["-vv"], None));
    for line in [" granted ", " released "] {
        assert!(once.contains(line) && twice.contains(line), "{line}: {once} {twice}");
    }
    // The second level tells each step and how long it took.
    assert!(!once.contains("time.busy") && twice.contains("time.busy"), "{once} {twice}");
    assert!(log(&["-vvv"], None).lines().count() >= twice.lines().count());
    // The variable counts when nothing was typed.
    assert!(log(&[], Some("lockfast=debug")).contains(" granted "));
    for nothing in ["off", "lockfast=error", ""] {
        assert_eq!(log(&[], Some(nothing)), "", "{nothing}");
    }
    assert!(log(&["-v"], Some("off")).contains(" granted "));
    let wrong = log(&[], Some("lockfast=loud"));
    assert!(wrong.contains("warning: RUST_LOG is not used: \"lockfast=loud\""), "{wrong}");
}

/// B47: also when what was typed is wrong. Programs that read JSON get nothing.
#[test]
fn every_failure_makes_a_shell_fail() {
    let sandbox = Sandbox::new();
    acquire(&sandbox, "taken");
    let id = "0".repeat(32);
    for (line, code, is_evaluated) in [
        ("acquire taken --ttl 9s --try", 75, true),
        ("acquire taken --ttl 9s --wait 10ms", 75, true),
        ("acquire x --tll 9s", 64, true),
        ("acquire x --ttl 9", 64, true),
        ("acquire", 64, true),
        ("--on foo://x acquire x --ttl 9s", 78, true),
        ("--on redis://127.0.0.1:1 acquire x --ttl 9s", 69, true),
        (&format!("renew taken --ttl 9s --holder {id}"), 75, true),
        ("renew taken --holder", 64, true),
        ("acquire taken --ttl 9s --try --json", 75, false),
        ("acquire x --tll 9s --json", 64, false),
        ("--format json acquire x --tll 9s", 64, false),
        ("run acquire --tll 9s", 64, false),
        ("show acquire --tll", 64, false),
        ("acquire --help", 0, false),
    ] {
        let finished = sandbox.run(line.split(' ')).expect(code);
        let expected = if is_evaluated { format!("(exit {code})\n") } else { String::new() };
        assert!(finished.stdout == expected || code == 0, "{line}: {:?}", finished.stdout);
    }
}
