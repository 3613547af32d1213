//! Names of all kinds.

use super::{Group, scenario};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "names",
    scenarios: &[
        scenario("of_all_kinds_are_locks_of_their_own", of_all_kinds_are_locks_of_their_own),
        scenario("that_are_none_are_refused", that_are_none_are_refused),
    ],
};

fn of_all_kinds_are_locks_of_their_own(stage: &Stage<'_>) {
    let names = ["a b", "ключ", "名前", "a'b\"c", "a%sb", "-- drop", "a\\b", "*", "a:b", "{a", "é"];
    let prefix = &stage.lock;
    let mut names = names.map(|name| format!("{prefix}/{name}")).to_vec();
    names.push(format!("{prefix}/{}", "x".repeat(stage.row.name_chars - 1 - prefix.len())));
    // All at once: were two of them one lock, the second would be refused.
    let script = "echo \"$LOCKFAST_NAME\" >> seen; while ! [ -e go ]; do sleep 0.01; done";
    let holders: Vec<_> = names
        .iter()
        .map(|name| stage.start(["run", name, "--try", "--", "sh", "-c", script]))
        .collect();
    crate::sandbox::eventually("all to be held", || {
        stage.sandbox.read("seen").lines().count() == names.len()
    });
    let list = stage.run(["list", "--prefix", prefix, "--json"]).expect(0).stdout;
    let listed = list.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut listed: Vec<String> =
        listed.map(|lock| lock["name"].as_str().unwrap().to_owned()).collect();
    stage.go();
    for holder in holders {
        holder.finish().expect(0);
    }
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
}

fn that_are_none_are_refused(stage: &Stage<'_>) {
    for name in ["", "..", "a\nb", &"x".repeat(256), "a\u{1b}b", "a\u{202e}b"] {
        let refused = stage.run(["run", name, "--", "touch", "ran"]).expect(64);
        assert!(refused.stderr.contains("is not a lock name"), "{}", refused.stderr);
        assert!(!refused.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", refused.stderr);
    }
    assert!(!stage.sandbox.path("ran").exists());
}
