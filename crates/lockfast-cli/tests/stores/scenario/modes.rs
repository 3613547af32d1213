//! Shared locks and permits; where a store does not have them, that it says so.

use crate::sandbox::Finished;
use crate::stage::Stage;

use super::{Group, scenario};

pub(super) const GROUP: Group = Group {
    name: "modes",
    scenarios: &[
        scenario("readers_share_and_a_writer_waits", readers_share_and_a_writer_waits),
        scenario("permits_are_kept", permits_are_kept),
        scenario("another_number_of_permits_is_no_busy_lock", another_number_of_permits),
    ],
};

/// A store without this mode says so before anything runs, and names what would do.
pub(super) fn check_refusal(stage: &Stage<'_>, mode: &[&str]) {
    let line = ["run", stage.lock.as_str()].into_iter().chain(mode.iter().copied());
    // A busy code must not hide that it can never work.
    let Finished { stderr, .. } =
        stage.run(line.chain(["-E", "0", "--try", "--", "touch", "ran"])).expect(125);
    let words = [stage.row.schemes[0], stage.row.advice];
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    assert!(!stage.sandbox.path("ran").exists());
}

fn readers_share_and_a_writer_waits(stage: &Stage<'_>) {
    if !stage.row.has_shared {
        return check_refusal(stage, &["--shared"]);
    }
    let reader = stage.hold_until_go(&["--shared"]);
    stage.run(["run", &stage.lock, "--shared", "--try", "--", "true"]).expect(0);
    stage.try_it().expect(75);
    let writer = stage.queue(&["--wait", "60s"], "[ -e go ] && touch entered", 1);
    // Readers that come later do not overtake it.
    stage.run(["run", &stage.lock, "--shared", "--try", "--", "true"]).expect(75);
    stage.go();
    reader.finish().expect(0);
    writer.finish().expect(0);
    assert!(stage.sandbox.path("entered").exists());
}

fn permits_are_kept(stage: &Stage<'_>) {
    if !stage.row.has_permits {
        return check_refusal(stage, &["--permits", "2"]);
    }
    std::fs::create_dir(stage.sandbox.path("inside")).unwrap();
    let script = "touch inside/$$; ls inside | wc -l >> seen; sleep 0.2; rm inside/$$";
    let line = ["run", &stage.lock, "--permits", "2", "--wait", "60s", "--", "sh", "-c", script];
    let all: Vec<_> = (0..6).map(|_| stage.start(line)).collect();
    for one in all {
        one.finish().expect(0);
    }
    let seen = stage.sandbox.read("seen");
    let seen: Vec<u32> = seen.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|inside| *inside <= 2), "{seen:?}");
}

/// B49: it counted as taken, so that `-E 0` hid it.
fn another_number_of_permits(stage: &Stage<'_>) {
    if !stage.row.has_permits {
        return check_refusal(stage, &["--permits", "3"]);
    }
    let holder = stage.hold_until_go(&["--permits", "2"]);
    let other = ["--permits", "3", "-E", "0", "--try", "--", "touch", "ran"];
    let line = ["run", stage.lock.as_str()].into_iter().chain(other);
    let refused = stage.run(line).expect(125);
    assert!(refused.stderr.contains("limit 3, stored 2"), "{}", refused.stderr);
    let acquire = ["acquire", &stage.lock, "--ttl", "9s", "--permits", "3", "--try"];
    stage.run(acquire).expect(78);
    stage.go();
    holder.finish().expect(0);
    assert!(!stage.sandbox.path("ran").exists());
}
