//! Holders and waiters that are killed or stopped.

use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::{Signal, kill_process};

use super::{Group, scenario};
use crate::sandbox::{eventually, is_alive, state_of};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "crash",
    scenarios: &[
        scenario("a_dead_first_waiter_delays_nobody", a_dead_first_waiter_delays_nobody),
        scenario("a_killed_holder_is_followed_in_time", a_killed_holder_is_followed_in_time),
        scenario("a_dead_waiter_is_passed_over", a_dead_waiter_is_passed_over),
        scenario("a_waiter_that_was_stopped_waits_on", a_waiter_that_was_stopped_waits_on),
        scenario(
            "a_waiter_that_was_passed_over_has_a_new_fence",
            a_waiter_that_was_passed_over_has_a_new_fence,
        ),
        scenario("a_waiter_stopped_beyond_its_wait", a_waiter_stopped_beyond_its_wait),
        scenario(
            "a_stopped_holder_loses_its_job_before_the_next_starts",
            a_stopped_holder_loses_its_job_before_the_next_starts,
        ),
        scenario("a_killed_guard_takes_its_job_along", a_killed_guard_takes_its_job_along),
        scenario("wrapper_and_guard_are_killed_at_once", wrapper_and_guard_are_killed_at_once),
    ],
};

/// A lease that is short, and what a busy machine may add to every bound: processes are started.
const TTL: &str = "3s";
const TTL_TIME: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(2);
/// P9: after the ttl, and for each dead waiter.
const AFTER_TTL: Duration = Duration::from_secs(1);
const DEAD_WAITER: Duration = Duration::from_secs(2);

fn a_killed_holder_is_followed_in_time(stage: &Stage<'_>) {
    let holder = stage.hold_for_ever(&["--ttl", TTL]);
    let next =
        stage.queue(&["--wait", "60s"], "kill -0 $(cat pids) && touch met; touch entered", 1);
    let killed = Moment::now();
    holder.signal(Signal::KILL);
    let took = stage.time_until("entered", killed);
    next.finish().expect(0);
    stage.check_job_is_gone();
    assert!(!stage.sandbox.path("met").exists(), "the next one met the job of the first");
    assert!(took < TTL_TIME + AFTER_TTL + SLACK, "{took:?}");
}

/// B19: only the first in the queue looked at the holder's expiry.
fn a_dead_first_waiter_delays_nobody(stage: &Stage<'_>) {
    let holder = stage.hold_for_ever(&["--ttl", TTL]);
    let first = stage.queue(&["--ttl", TTL, "--wait", "60s"], "touch first", 1);
    let second = stage.queue(&["--ttl", TTL, "--wait", "60s"], "touch entered", 2);
    first.signal(Signal::KILL);
    let killed = Moment::now();
    holder.kill_with_guard();
    let took = stage.time_until("entered", killed);
    second.finish().expect(0);
    assert!(!stage.sandbox.path("first").exists());
    assert!(took < TTL_TIME + AFTER_TTL + DEAD_WAITER + SLACK / 2, "{took:?}");
}

fn a_dead_waiter_is_passed_over(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let first = stage.queue(&["--wait", "60s"], "touch first", 1);
    let second = stage.queue(&["--wait", "60s"], "touch entered", 2);
    first.signal(Signal::KILL);
    stage.go();
    holder.finish().expect(0);
    let took = stage.time_until("entered", Moment::now());
    second.finish().expect(0);
    assert!(!stage.sandbox.path("first").exists());
    assert!(took < DEAD_WAITER + SLACK, "{took:?}");
}

/// B20: it ended with "granted too late" although it may wait for ever.
fn a_waiter_that_was_stopped_waits_on(stage: &Stage<'_>) {
    let holder = stage.hold_until_go(&[]);
    let waiter = stage.queue(&[], "touch entered", 1);
    waiter.signal(Signal::STOP);
    stage.go();
    holder.finish().expect(0);
    // Longer than a lock is handed over for.
    std::thread::sleep(Duration::from_millis(2_500));
    waiter.signal(Signal::CONT);
    waiter.finish().expect(0);
    assert!(stage.sandbox.path("entered").exists());
}

/// P4: what it hears of its first turn, when it goes on, is over.
fn a_waiter_that_was_passed_over_has_a_new_fence(stage: &Stage<'_>) {
    let note = "echo $LOCKFAST_FENCE >> fences";
    let holder = stage.hold_until_go(&[]);
    let waiter = stage.queue(&[], note, 1);
    let next = stage.queue(&[], note, 2);
    waiter.signal(Signal::STOP);
    stage.go();
    holder.finish().expect(0);
    if stage.row.is_session {
        // A session has its turn whatever its process does.
        waiter.signal(Signal::CONT);
        waiter.finish().expect(0);
        next.finish().expect(0);
    } else {
        next.finish().expect(0);
        // Now it is the other's turn again.
        std::thread::sleep(Duration::from_millis(200));
        waiter.signal(Signal::CONT);
        waiter.finish().expect(0);
    }
    let fences = std::fs::read_to_string(stage.sandbox.path("fences")).unwrap();
    let fences: Vec<u64> = fences.lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}

/// B87: it ended with 125, "no answer" or "granted too late", as if the store had failed.
fn a_waiter_stopped_beyond_its_wait(stage: &Stage<'_>) {
    // A sixth of the ttl after that it would not wait for an answer any more.
    let options = ["--ttl", TTL, "--wait", "5s"];
    let beyond = Duration::from_secs(7);
    let holder = stage.hold_until_go(&[]);
    for (is_taken, code) in [(true, 75), (false, 0)] {
        let asked = Moment::now();
        let waiter = stage.queue(&options, "touch entered", 1);
        waiter.signal(Signal::STOP);
        if !is_taken {
            stage.go();
        }
        std::thread::sleep((asked + beyond).remaining(Moment::now()));
        waiter.signal(Signal::CONT);
        let finished = waiter.finish().expect(code);
        assert_eq!(finished.stderr.contains("gave up after"), is_taken, "{}", finished.stderr);
        assert_eq!(stage.sandbox.path("entered").exists(), !is_taken);
    }
    holder.finish().expect(0);
}

fn a_stopped_holder_loses_its_job_before_the_next_starts(stage: &Stage<'_>) {
    // The grace is longer than the lease, so that only the deadline ends it.
    let options = ["--ttl", TTL, "--grace", "30s"];
    let deaf = "trap '' TERM; echo $$ > pids; touch started; while :; do sleep 1; done";
    let holder = stage.hold(&options, deaf);
    let next = stage.queue(
        &["--ttl", TTL, "--wait", "60s"],
        "kill -0 $(cat pids) 2>/dev/null && touch met; touch entered",
        1,
    );
    holder.signal(Signal::STOP);
    if stage.row.is_session {
        // No ttl ends it, but the job does not outlive the lease of its own holder.
        let job = stage.job();
        eventually("the job to be gone", || !is_alive(job));
        stage.try_it().expect(75);
        holder.signal(Signal::CONT);
        holder.finish().expect(120);
        next.finish().expect(0);
    } else {
        next.finish().expect(0);
        stage.check_job_is_gone();
        holder.signal(Signal::CONT);
        holder.finish().expect(120);
    }
    assert!(!stage.sandbox.path("met").exists(), "the next one met the job of the first");
}

fn a_killed_guard_takes_its_job_along(stage: &Stage<'_>) {
    let holder = stage.hold_for_ever(&[]);
    kill_process(holder.guard(), Signal::KILL).unwrap();
    let finished = holder.finish().expect(125);
    assert!(finished.stderr.contains("guard process died"), "{}", finished.stderr);
    stage.check_job_is_gone();
    stage.try_it().expect(0);
}

/// B30: what the command has started lives on, and the lock was free at once on the embedded store.
/// There the lock is held while any of that lives, and elsewhere for its ttl, as nobody renews it; but
/// where a session holds it, it ended with both processes that had that.
fn wrapper_and_guard_are_killed_at_once(stage: &Stage<'_>) {
    let script = "sh -c 'echo $$ > pids; touch started; exec sleep 100' > /dev/null 2>&1 & wait";
    let holder = stage.hold(&["--ttl", "6s"], script);
    let orphan = stage.job();
    let killed = Moment::now();
    holder.kill_with_guard();
    drop(holder);
    while !stage.row.is_session && Moment::now().since(killed) < Duration::from_secs(2) {
        stage.try_it().expect(75);
    }
    assert!(is_alive(orphan), "{:?}", state_of(orphan));
    kill_process(orphan, Signal::KILL).unwrap();
    if stage.row.sees_processes {
        eventually("the lock to be free", || stage.try_it().code() == 0);
        let took = Moment::now().since(killed);
        assert!(took < Duration::from_secs(5), "{took:?}: by the ttl, not by the death");
    }
    stage.run(["run", &stage.lock, "--wait", "60s", "--", "true"]).expect(0);
}
