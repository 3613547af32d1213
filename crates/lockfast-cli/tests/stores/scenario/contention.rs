//! Many processes at once, with default and other times.

use std::collections::VecDeque;

use super::{Group, scenario};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "contention",
    scenarios: &[
        scenario("with_default_times", with_default_times),
        scenario("with_every_lease_time", with_every_lease_time),
        scenario("fences_rise", fences_rise),
    ],
};

/// B13: whoever had to wait on a server was stopped by its own guard.
fn with_default_times(stage: &Stage<'_>) {
    for _ in 0..2 {
        let all: Vec<_> =
            (0..8).map(|_| stage.start(stage.visit(&stage.lock, "place", &[]))).collect();
        for one in all {
            one.finish().expect(0);
        }
    }
    stage.check_visits("place", 16, 0);
}

/// B13 with the times at which it was seen, and others.
fn with_every_lease_time(stage: &Stage<'_>) {
    for ttl in ["1s", "4s", "10s", "3m", "1h"] {
        let lock = format!("{}-{ttl}", stage.lock);
        let start = || stage.start(stage.visit(&lock, ttl, &["--ttl", ttl]));
        let mut all: VecDeque<_> = (0..3).map(|_| start()).collect();
        let mut losses = 0;
        while let Some(one) = all.pop_front() {
            let finished = one.finish();
            if finished.code() == 120 && is_lost_to_load(ttl, &finished.stderr) && losses < 20 {
                // It is told, and its user runs it again.
                losses += 1;
                all.push_back(start());
            } else {
                finished.expect(0);
            }
        }
        stage.check_visits(ttl, 3, losses);
    }
}

/// A busy machine may lose a lease of few seconds: the store does not answer in time, or the shortest
/// one ends before this process has its turn.
fn is_lost_to_load(ttl: &str, stderr: &str) -> bool {
    ttl == "1s" || (ttl == "4s" && stderr.contains("the lease cannot be renewed"))
}

fn fences_rise(stage: &Stage<'_>) {
    let script = "echo $LOCKFAST_FENCE >> fences; echo $LOCKFAST_FENCE";
    let waiters: Vec<_> = (0..4)
        .map(|_| stage.start(["run", &stage.lock, "--wait", "60s", "--", "sh", "-c", script]))
        .collect();
    for waiter in waiters {
        waiter.finish().expect(0);
    }
    let fences = stage.sandbox.read("fences");
    let fences: Vec<u64> = fences.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), 4);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}
