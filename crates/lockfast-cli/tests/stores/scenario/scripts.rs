//! `acquire`, `renew` and `release`, for scripts.

use std::time::Duration;

use lockfast_core::Moment;

use super::{Group, scenario};
use crate::sandbox::{Finished, Running};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "scripts",
    scenarios: &[
        scenario("acquire_renew_release", acquire_renew_release),
        scenario("an_acquired_lock_outlives_its_command", an_acquired_lock_outlives_its_command),
        scenario(
            "a_shell_does_not_go_on_without_the_lock",
            a_shell_does_not_go_on_without_the_lock,
        ),
    ],
};

/// Where a lock ends with its process, nothing is taken, and it is said what to do.
fn check_refusal(stage: &Stage<'_>) {
    let refused = stage.run(["acquire", &stage.lock, "--ttl", "60s", "--try", "--json"]).expect(78);
    let advice = match stage.row.is_session {
        true => "use mode=lease",
        false => "use a store that keeps leases by their ttl",
    };
    let words = ["no leases that outlive their process", advice];
    assert!(words.iter().all(|word| refused.stderr.contains(word)), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert!(!stage.sandbox.is_held(&stage.lock));
}

fn acquire_renew_release(stage: &Stage<'_>) {
    if !stage.row.has_detached {
        return check_refusal(stage);
    }
    let name = stage.lock.as_str();
    let acquire = ["acquire", name, "--ttl", "60s", "--try", "--json"];
    let lease = stage.run(acquire).expect(0).json();
    let holder = lease["holder"].as_str().unwrap();
    assert_eq!(holder.len(), 32);
    assert!(lease["fence"].as_u64().unwrap() > 0);
    assert!(lease["remaining_ms"].as_u64().unwrap() > 50_000);
    let refused = stage.run(acquire).expect(75);
    assert_eq!(refused.stdout, "", "data for programs, of which there is none");
    let other = "0".repeat(32);
    for arguments in [
        vec!["release", name, "--holder", &other],
        vec!["renew", name, "--ttl", "90s", "--holder", &other],
    ] {
        let refused = stage.run(arguments).expect(75);
        assert!(refused.stderr.contains("not held by this holder"), "{}", refused.stderr);
    }
    let renewed = stage.run(["renew", name, "--ttl", "90s", "--holder", holder, "--json"]);
    assert!(renewed.expect(0).json()["remaining_ms"].as_u64().unwrap() > 80_000);
    let shown = stage.run(["show", name, "--json"]).expect(0);
    assert!(!shown.stdout.contains(holder), "a listing shows the holder id");
    assert_eq!(shown.json()["holders"][0]["fence"], lease["fence"]);
    stage.run(["release", name, "--holder", holder]).expect(0);
    stage.run(["release", name, "--holder", holder]).expect(75);
    let next = stage.run(acquire).expect(0).json();
    assert!(next["fence"].as_u64().unwrap() > lease["fence"].as_u64().unwrap());
    stage.run(["release", name, "--holder", next["holder"].as_str().unwrap()]).expect(0);
}

/// And then expires.
fn an_acquired_lock_outlives_its_command(stage: &Stage<'_>) {
    if !stage.row.has_detached {
        return check_refusal(stage);
    }
    stage.run(["acquire", &stage.lock, "--ttl", "3s"]).expect(0);
    assert!(stage.sandbox.is_held(&stage.lock));
    let asked = Moment::now();
    stage.run(["run", &stage.lock, "--wait", "60s", "--", "true"]).expect(0);
    let took = Moment::now().since(asked);
    assert!(took < Duration::from_secs(7), "{took:?}");
}

fn run_shell(stage: &Stage<'_>, script: &str) -> Finished {
    let mut command = stage.sandbox.shell(script);
    command.env("LOCK", &stage.lock);
    Running::new(command).finish()
}

/// B47: evaluating nothing is a success, so that a script went on while somebody else had the lock.
fn a_shell_does_not_go_on_without_the_lock(stage: &Stage<'_>) {
    let ways = [
        "eval \"$(lockfast acquire $LOCK --ttl 10m --try)\" || exit; touch went-on",
        "out=$(lockfast acquire $LOCK --ttl 10m --try) || exit; eval \"$out\"; touch went-on",
        "set -e; eval \"$(lockfast acquire $LOCK --ttl 10m --try)\"; touch went-on",
        "if eval \"$(lockfast acquire $LOCK --ttl 10m --try)\"; then touch went-on; else exit 75; fi",
    ];
    let holder = stage.hold_until_go(&[]);
    // Where a lock ends with its process, none of this can work, and it ends at once, too.
    let code = if stage.row.has_detached { 75 } else { 78 };
    for way in ways {
        // The last one has a code of its own.
        let code = if way.contains("exit 75") { 75 } else { code };
        let refused = run_shell(stage, way).expect(code);
        assert_eq!(refused.stdout, "", "{way}");
        assert!(!stage.sandbox.path("went-on").exists(), "{way}");
    }
    stage.go();
    holder.finish().expect(0);
    for way in ways.into_iter().filter(|_| stage.row.has_detached) {
        let release = "echo $holder | lockfast release $LOCK --holder - && echo $fence";
        let granted = run_shell(stage, &format!("{way}; {release}")).expect(0);
        assert!(granted.stdout.trim().parse::<u64>().is_ok(), "{way}: {}", granted.stdout);
        std::fs::remove_file(stage.sandbox.path("went-on")).unwrap();
    }
}
