//! Processes that are killed or stopped: the job is ended before anybody else gets in.

use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::lateness::Lateness;
use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, eventually, is_alive};

/// A job with descendants in its group, in another group, in another session, daemonised, and
/// deaf to TERM. Each notes its id; the last one says that all are there.
const FAMILY: &str = "trap '' TERM
echo $$ >> pids
sh -c 'echo $$ >> pids; exec sleep 1000' &
bash -c 'set -m; sleep 1000 & echo $! >> pids; wait' &
setsid sh -c 'echo $$ >> pids; sleep 1000; true' &
(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 1; done' &) 
while [ $(wc -l < pids) -lt 5 ]; do sleep 0.01; done
touch started
while :; do sleep 1; done";

/// The next job: notes which of the first one's processes it still meets.
const NEXT: &str = "for pid in $(cat pids); do kill -0 $pid 2>/dev/null && echo $pid >> met; done
touch entered";

fn assert_all_gone(pids: &[Pid]) {
    let alive: Vec<_> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(alive.is_empty(), "still alive: {alive:?}");
}

#[test]
fn a_killed_wrapper_lets_the_next_in_within_a_second_and_not_before_its_job_is_gone() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job"], FAMILY);
    let pids = sandbox.pids("pids", 5);
    let next = sandbox.start(["run", "job", "--", "sh", "-c", NEXT]);
    eventually("the next to queue", || sandbox.waiting("job") == 1);
    let (machine, killed) = (Lateness::watch(), Moment::now());
    wrapper.signal(Signal::KILL);
    eventually("the next to enter", || sandbox.path("entered").exists());
    let entered = Moment::now();
    assert_all_gone(&pids);
    next.finish().expect(0);
    assert_eq!(sandbox.read("met"), "", "processes that the next one met");
    machine.check("to let the next in", Duration::from_secs(1), killed, entered);
}

#[test]
fn a_killed_wrapper_that_has_just_started_its_job_leaves_nothing() {
    // Killed at many moments around the start of guard and command.
    let sandbox = Sandbox::new();
    for delay in (0..40).step_by(2) {
        let name = format!("job{delay}");
        let script = format!("echo $$ >> pids{delay}; sleep 1000");
        let wrapper = sandbox.start(["run", &name, "--", "sh", "-c", &script]);
        std::thread::sleep(Duration::from_millis(delay));
        wrapper.signal(Signal::KILL);
        drop(wrapper);
        sandbox.run(["run", &name, "--wait", "30s", "--", "true"]).expect(0);
        let left: Vec<Pid> = sandbox
            .read(&format!("pids{delay}"))
            .lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect();
        assert_all_gone(&left);
    }
}

#[test]
fn a_stopped_wrapper_loses_its_job_before_the_next_starts() {
    let sandbox = Sandbox::new();
    // The grace is longer than the lease, so that only the deadline ends it.
    let wrapper = sandbox.hold(&["job", "--ttl", "2s", "--grace", "30s"], FAMILY);
    let pids = sandbox.pids("pids", 5);
    let next = sandbox.start(["run", "job", "--", "sh", "-c", NEXT]);
    eventually("the next to queue", || sandbox.waiting("job") == 1);
    wrapper.signal(Signal::STOP);
    eventually("the next to enter", || sandbox.path("entered").exists());
    assert_all_gone(&pids);
    next.finish().expect(0);
    assert_eq!(sandbox.read("met"), "", "processes that the next one met");
    wrapper.signal(Signal::CONT);
    wrapper.finish().expect(120);
}

#[test]
fn a_killed_guard_takes_its_job_along() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job"], FAMILY);
    let pids = sandbox.pids("pids", 5);
    kill_process(wrapper.guard(), Signal::KILL).unwrap();
    let finished = wrapper.finish().expect(125);
    assert!(finished.stderr.contains("guard process died"), "{}", finished.stderr);
    assert_all_gone(&pids);
    sandbox.run(["run", "job", "--try", "--", "true"]).expect(0);
}

/// As when a service manager signals everything in a control group.
#[test]
fn a_guard_does_not_die_of_signals_meant_for_the_job() {
    let sandbox = Sandbox::new();
    let script = "trap 'sleep 0.1; exit 9' TERM; touch started; while :; do sleep 0.01; done";
    let wrapper = sandbox.hold(&["job"], script);
    let guard = wrapper.guard();
    for signal in [Signal::HUP, Signal::INT, Signal::USR1, Signal::TERM] {
        kill_process(guard, signal).unwrap();
    }
    wrapper.signal(Signal::TERM);
    wrapper.finish().expect(9);
}

#[test]
fn a_stopped_guard_does_not_keep_the_job_alive_after_a_loss() {
    let sandbox = Sandbox::new();
    let wrapper = sandbox.hold(&["job", "--grace", "300ms"], FAMILY);
    let pids = sandbox.pids("pids", 5);
    kill_process(wrapper.guard(), Signal::STOP).unwrap();
    sandbox.run(["force-release", "job", "--yes", "--reason", "test"]).expect(0);
    wrapper.finish().expect(120);
    assert_all_gone(&pids);
}

#[test]
fn what_a_job_leaves_behind_is_stopped_before_the_lock_is_released() {
    let sandbox = Sandbox::new();
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 1; done' &)
while ! [ -s pids ]; do sleep 0.01; done
exit 3";
    let finished =
        sandbox.run(["run", "job", "--grace", "200ms", "--", "sh", "-c", script]).expect(3);
    assert!(
        finished.stderr.contains("left 2 process(es) behind")
            || finished.stderr.contains("left 1 process(es) behind"),
        "{}",
        finished.stderr
    );
    assert_all_gone(&sandbox.pids("pids", 1));
}

#[test]
fn the_end_of_a_pipe_may_finish_in_peace() {
    let sandbox = Sandbox::new();
    let script = "(sleep 0.1; echo late >> out) & exit 0";
    let finished = sandbox.run(["run", "job", "--", "sh", "-c", script]).expect(0);
    assert_eq!(sandbox.read("out"), "late\n");
    assert!(!finished.stderr.contains("behind"), "{}", finished.stderr);
}

#[test]
fn children_from_before_are_left_alone() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let mut command = crate::sandbox::undisturbed("sh");
    let script = format!(
        "sleep 1000 > /dev/null 2>&1 & echo $! > stranger; exec {binary} run job -- sh -c 'touch started; sleep 1000'"
    );
    command.args(["-c", &script]).current_dir(sandbox.path("")).env("LOCKFAST_URL", sandbox.url());
    command.stderr(std::process::Stdio::piped());
    let wrapper = crate::sandbox::Running::new(command);
    eventually("the job to start", || sandbox.path("started").exists());
    let stranger = sandbox.pids("stranger", 1)[0];
    kill_process(wrapper.guard(), Signal::KILL).unwrap();
    wrapper.finish().expect(125);
    assert!(is_alive(stranger), "a process that is not ours was killed");
    kill_process(stranger, Signal::KILL).unwrap();
}
