//! `doctor` on a store that is in use.

use super::{Group, scenario};
use crate::row::SECRET;
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "doctor",
    scenarios: &[scenario("it_looks_and_leaves_locks_alone", it_looks_and_leaves_locks_alone)],
};

/// What the store is like is not asked here, but that it can be told: without a password, with the
/// exit code that goes with it, and with every lock as it was. What it does not look at is refused.
fn it_looks_and_leaves_locks_alone(stage: &Stage<'_>) {
    let name = stage.lock.as_str();
    let holder = stage.hold_until_go(&[]);
    let seen = stage.run(["show", name, "--json"]).expect(0).json();
    let finished = stage.run(["doctor", "--json"]);
    if !stage.row.has_doctor {
        let refused = finished.expect(78);
        assert!(refused.stderr.contains("leave out mode="), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
        stage.go();
        return drop(holder.finish().expect(0));
    }
    let value = finished.json();
    let code = match value["worst"].as_str().unwrap() {
        "ok" | "unknown" => 0,
        "warn" => 1,
        "unsafe" => 2,
        other => panic!("{other} is no severity"),
    };
    let said = finished.expect(code);
    assert!(!said.stdout.contains(SECRET) && !said.stderr.contains(SECRET), "{}", said.stdout);
    let findings = value["findings"].as_array().unwrap();
    let of_client = |finding: &serde_json::Value| {
        finding["check"].as_str().is_some_and(|check| check.starts_with("client-"))
    };
    assert!(findings.iter().any(of_client), "nothing about this machine: {value}");
    assert!(!findings.iter().all(of_client), "nothing about the store: {value}");
    let shown = stage.run(["show", name, "--json"]).expect(0).json();
    assert!(seen["holders"][0]["fence"].is_u64(), "{seen}");
    assert_eq!(shown["holders"][0]["fence"], seen["holders"][0]["fence"]);
    stage.go();
    holder.finish().expect(0);
}
