//! Being refused, waiting, and giving up.

use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::Signal;

use super::{Group, scenario};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "waiting",
    scenarios: &[
        scenario("a_job_after_a_wait_runs_to_its_end", a_job_after_a_wait_runs_to_its_end),
        scenario("a_held_lock_is_refused_at_once", a_held_lock_is_refused_at_once),
        scenario("a_wait_that_runs_out", a_wait_that_runs_out),
        scenario("waiters_are_served_in_order", waiters_are_served_in_order),
        scenario("waiters_that_give_up_leave_nothing", waiters_that_give_up_leave_nothing),
        scenario("an_interrupted_wait_leaves_nothing", an_interrupted_wait_leaves_nothing),
    ],
};

/// B13: it runs longer than a lock is handed over for.
fn a_job_after_a_wait_runs_to_its_end(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let next = stage.queue(&["--wait", "60s", "-q"], "sleep 3; echo done; exit 7", 1);
    stage.go();
    holder.finish().expect(0);
    let finished = next.finish().expect(7);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("done\n", ""));
}

fn a_held_lock_is_refused_at_once(stage: &Stage<'_>) {
    let holder = stage.hold_for_ever(&["--label", "nightly"]);
    let pid = holder.pid().as_raw_pid();
    let host = format!("on {}", rustix::system::uname().nodename().to_string_lossy());
    let asked = Moment::now();
    let refused = stage.try_it().expect(75);
    let took = Moment::now().since(asked);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let (label, end) = match stage.row.is_session {
        true => ("lockfast", "without an end"),
        false => ("nightly", "left"),
    };
    for words in [&stage.lock, label, &format!("pid {pid}"), &host, "since 20", end] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    let shown = stage.run(["show", &stage.lock, "--json"]).expect(0).json();
    assert_eq!(shown["holders"][0]["pid"], pid);
    if !stage.row.is_session {
        assert_eq!(shown["holders"][0]["label"], "nightly");
    }
    holder.signal(Signal::TERM);
    holder.finish().expect(143);
    stage.try_it().expect(0);
}

fn a_wait_that_runs_out(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let asked = Moment::now();
    let refused = stage.run(["run", &stage.lock, "--wait", "1s", "--", "touch", "ran"]).expect(75);
    let took = Moment::now().since(asked);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(6), "{took:?}");
    assert!(refused.stderr.contains("gave up after 1."), "{}", refused.stderr);
    assert_eq!(stage.sandbox.waiting(&stage.lock), 0);
    stage.go();
    holder.finish().expect(0);
    assert!(!stage.sandbox.path("ran").exists());
}

/// Where the store keeps no order, all of them are served all the same.
fn waiters_are_served_in_order(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let waiters: Vec<_> = (1..=4)
        .map(|number| stage.queue(&[], &format!("echo {number} >> order"), number))
        .collect();
    stage.go();
    holder.finish().expect(0);
    for waiter in waiters {
        waiter.finish().expect(0);
    }
    let order = stage.sandbox.read("order");
    let mut order: Vec<&str> = order.lines().collect();
    if !stage.row.is_fair {
        order.sort_unstable();
    }
    assert_eq!(order, ["1", "2", "3", "4"]);
}

/// Some of them while the lock is passed on.
fn waiters_that_give_up_leave_nothing(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let crowd = stage.crowd();
    let waiters: Vec<_> =
        (0..12).map(|_| stage.start(stage.visit(&stage.lock, "place", &[]))).collect();
    crate::sandbox::eventually("all to queue", || stage.has_joined(crowd, 12, 12));
    for (number, waiter) in waiters.iter().enumerate().filter(|(number, _)| number % 2 == 1) {
        if number == 5 {
            stage.go();
        }
        waiter.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(37));
    }
    holder.finish().expect(0);
    let mut visits = 0;
    for (number, waiter) in waiters.into_iter().enumerate() {
        let finished = waiter.finish();
        let (code, interrupted) = (finished.code(), number % 2 == 1);
        assert!(code == 0 || (interrupted && code == 130), "{number}: {code} {}", finished.stderr);
        visits += usize::from(code == 0);
    }
    stage.check_visits("place", visits, 0);
    stage.try_it().expect(0);
}

fn an_interrupted_wait_leaves_nothing(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiter = stage.queue(&[], "touch ran", 1);
        waiter.signal(signal);
        waiter.finish().expect(code);
        assert_eq!(stage.sandbox.waiting(&stage.lock), 0);
    }
    stage.go();
    holder.finish().expect(0);
    stage.try_it().expect(0);
    assert!(!stage.sandbox.path("ran").exists());
}
