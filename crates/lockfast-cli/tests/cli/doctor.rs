//! `doctor`: its output, its exit codes, and the page that lists its checks.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use lockfast_faults::redis::{Redis, Setup};
use lockfast_faults::server::Server as _;

use crate::sandbox::{Finished, Running, Sandbox, undisturbed};

const PAGE: &str = include_str!("../../../../docs/guides/doctor.md");

fn doctor(url: &str, arguments: &[&str]) -> Finished {
    Sandbox::on(url).run([&["doctor"], arguments].concat())
}

/// The exit code that goes with the worst finding.
fn code_of(worst: &str) -> i32 {
    match worst {
        "ok" | "unknown" => 0,
        "warn" => 1,
        "unsafe" => 2,
        other => panic!("{other} is no severity"),
    }
}

/// One object with names that do not change; the exit code says the worst of it. Whatever this
/// machine is like, the store is good.
#[test]
fn findings_as_json() {
    let sandbox = Sandbox::new();
    let finished = sandbox.run(["doctor", "--json"]);
    let value = finished.json();
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["because", "findings", "guarantee", "store", "unchecked", "worst"];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!(value["store"], sandbox.url());
    assert_eq!(value["guarantee"], "correctness");
    assert_eq!(finished.code(), code_of(value["worst"].as_str().unwrap()), "{value}");
    let known = lockfast::known_checks();
    let mut unchecked = 0;
    for finding in value["findings"].as_array().unwrap() {
        let keys: BTreeSet<&str> =
            finding.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = ["check", "fact", "fix", "meaning", "server", "severity"];
        assert_eq!(keys, BTreeSet::from(expected));
        let check = finding["check"].as_str().unwrap();
        assert!(known.iter().any(|(_, known)| *known == check), "{finding}");
        assert!(!finding["fact"].as_str().unwrap().is_empty(), "{finding}");
        let is_ok = finding["severity"] == "ok";
        for field in ["meaning", "fix"] {
            assert_eq!(finding[field].as_str().unwrap().is_empty(), is_ok, "{finding}");
        }
        unchecked += u64::from(finding["severity"] == "unknown");
    }
    assert_eq!(value["unchecked"].as_u64(), Some(unchecked));
    // To look leaves no trace: the directory is not made.
    assert!(!sandbox.path("store").exists());
}

/// One line for each check, what it means below, the guarantee at the end; without colours, which
/// are for terminals.
#[test]
fn findings_for_people() {
    let sandbox = Sandbox::new();
    sandbox.run(["run", "x", "--", "true"]).expect(0);
    let store = sandbox.path("store");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o777)).unwrap();
    let said = sandbox.run(["doctor"]).expect(2).stdout;
    let line = said.lines().find(|line| line.starts_with("unsafe")).unwrap();
    assert!(line.contains("owner") && line.contains("its mode is 0777"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("ok ") && line.contains("reach")), "{said}");
    for part in ["\nowner\n", "\n  means  others could forge grants", "\n  fix    ", "chmod go-w"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert!(said.contains("\nguarantee: efficiency, because owner is unsafe: "), "{said}");
    assert!(said.contains("\nchecks: ") && said.contains(" could not be made\n"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let quiet = sandbox.run(["doctor", "--quiet"]).expect(2).stdout;
    assert!(!quiet.lines().any(|line| line.starts_with("ok")), "{quiet}");
    assert!(quiet.contains("unsafe") && quiet.contains("\nguarantee: "), "{quiet}");
    let value = sandbox.run(["doctor", "--quiet", "--json"]).expect(2).json();
    let findings = value["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["severity"] != "ok"), "{value}");
    assert_eq!(value["worst"], "unsafe");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let sandbox = Sandbox::on("memory:");
    for (wanted, variable) in [(true, ""), (false, "1")] {
        let line = format!("{} doctor", env!("CARGO_BIN_EXE_lockfast"));
        let mut command = undisturbed("script");
        command
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("LOCKFAST_URL", sandbox.url())
            .env("TERM", "xterm")
            .env("NO_COLOR", variable)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let finished = Running::new(command).finish();
        assert!(finished.stdout.contains("no other process is kept out"), "{}", finished.stdout);
        let painted = finished.stdout.contains("\u{1b}[33mwarn        \u{1b}[0m  reach");
        assert_eq!(painted, wanted, "{:?}", finished.stdout);
    }
}

/// 69 for a server that is not there, 77 for one that does not let us in, 78 for a wrong address,
/// 64 for a wrong option; and no password in any of it.
#[test]
fn what_keeps_it_from_looking() {
    let mut redis = Setup::new().password("hunter2").start();
    let url = redis.url();
    let wrong = url.replace("hunter2", "hunter3");
    let refused = doctor(&wrong, &[]).expect(77);
    redis.kill();
    let gone = doctor(&url, &["--json"]).expect(69);
    assert!(gone.stdout.is_empty(), "{}", gone.stdout);
    for finished in [refused, gone] {
        assert!(!finished.stderr.contains("hunter"), "{}", finished.stderr);
        assert!(!finished.stderr.is_empty());
    }
    doctor("oracle://h", &[]).expect(78);
    doctor("memory:", &["nightly"]).expect(64);
}

/// A server of which each line is named, and which is unsafe: it forgets everything.
#[test]
fn a_server_that_forgets() {
    let redis = Redis::start();
    let finished = doctor(&redis.url(), &["--json"]).expect(2);
    let value = finished.json();
    let find = |check: &str| {
        let findings = value["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).cloned().unwrap()
    };
    assert_eq!(find("persistence")["severity"], "unsafe");
    assert_eq!(find("role")["severity"], "ok");
    assert_eq!(value["guarantee"], "efficiency");
    assert!(value["because"].as_str().unwrap().starts_with("persistence is unsafe"), "{value}");
}

/// The sections of the page that have the checks of a store.
fn sections(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "client" => &["This machine"],
        "memory" => &["memory: and embedded:"],
        "redis" => &["Redis"],
        "redlock" => &["Redlock", "Redis"],
        "postgres" => &["PostgreSQL"],
        "mysql" => &["MySQL and MariaDB"],
        "etcd" => &["etcd"],
        "zookeeper" => &["ZooKeeper"],
        other => panic!("the page has no section for {other}:"),
    }
}

/// The page has a row for each check of each store in its section, and none for what there is not.
#[test]
fn the_page_lists_every_check() {
    let mut section = "";
    let mut listed = BTreeSet::new();
    for line in PAGE.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let row = line.strip_prefix("| `").and_then(|row| row.split_once("` |"));
        listed.extend(row.map(|(check, _)| (section, check)));
    }
    let mut stale = listed.clone();
    let mut missing = Vec::new();
    for (scheme, check) in lockfast::known_checks() {
        let rows: Vec<_> = sections(scheme).iter().map(|section| (*section, check)).collect();
        if !rows.iter().any(|row| listed.contains(row)) {
            missing.push((scheme, check));
        }
        stale.retain(|row| !rows.contains(row));
    }
    assert!(missing.is_empty() && stale.is_empty(), "missing {missing:?}, stale {stale:?}");
}
