//! Signals to `lockfast run`, before and while it holds the lock.

use std::io::BufRead as _;

use rustix::process::Signal;

use crate::sandbox::{Running, Sandbox, eventually};

#[test]
fn the_exit_code_is_the_commands() {
    let sandbox = Sandbox::new();
    for code in [0, 1, 7, 75, 120, 255] {
        let script = format!("exit {code}");
        sandbox.run(["run", "job", "--", "sh", "-c", &script]).expect(code);
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        let script = format!("kill -{signal} $$");
        sandbox.run(["run", "job", "--", "sh", "-c", &script]).expect(code);
    }
    assert!(!sandbox.is_held("job"));
}

#[test]
fn signals_are_passed_on() {
    let table = [
        (Signal::TERM, "TERM", 143),
        (Signal::INT, "INT", 130),
        (Signal::HUP, "HUP", 129),
        (Signal::QUIT, "QUIT", 131),
        (Signal::USR1, "USR1", 138),
        (Signal::USR2, "USR2", 140),
    ];
    for (signal, name, code) in table {
        let sandbox = Sandbox::new();
        let script = format!(
            "trap 'echo {name} > got; trap - {name}; kill -{name} $$' {name}; touch started
             while :; do sleep 0.01; done"
        );
        let wrapper = sandbox.hold(&["job"], &script);
        wrapper.signal(signal);
        wrapper.finish().expect(code);
        assert_eq!(sandbox.read("got"), format!("{name}\n"));
        assert!(!sandbox.is_held("job"), "{name}");
    }
}

#[test]
fn a_command_may_survive_a_signal() {
    let sandbox = Sandbox::new();
    let script = "trap 'exit 4' TERM; touch started; while :; do sleep 0.01; done";
    let wrapper = sandbox.hold(&["job"], script);
    wrapper.signal(Signal::TERM);
    wrapper.finish().expect(4);
}

#[test]
fn an_interrupted_wait_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let sandbox = Sandbox::new();
        let holder = sandbox.hold(&["job"], "touch started; sleep 1000");
        let waiter = sandbox.start(["run", "job", "--", "touch", "ran"]);
        eventually("the waiter to queue", || sandbox.waiting("job") == 1);
        waiter.signal(signal);
        waiter.finish().expect(code);
        assert_eq!(sandbox.waiting("job"), 0);
        drop(holder);
        sandbox.run(["run", "job", "--wait", "10s", "--", "true"]).expect(0);
        assert!(!sandbox.path("ran").exists());
    }
}

#[test]
fn a_second_interrupt_does_not_wait_for_a_store_that_hangs() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let mut waiter = sandbox.start(["run", "job", "--", "true"]);
    eventually("the waiter to queue", || sandbox.waiting("job") == 1);
    // Whoever has this file locked keeps every other process from writing.
    let stalled = std::fs::File::options().write(true).open(sandbox.path("store/write.lock"));
    let stalled = stalled.unwrap();
    stalled.lock().unwrap();
    let stderr = waiter.child().stderr.take().unwrap();
    let mut said = std::io::BufReader::new(stderr).lines().map(Result::unwrap);
    waiter.signal(Signal::INT);
    assert!(said.next().unwrap().contains("giving the claim back"));
    waiter.signal(Signal::INT);
    waiter.finish().expect(130);
    assert!(said.next().unwrap().contains("left to expire"));
}

#[test]
fn an_interrupted_acquire_leaves_nothing() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let waiter = sandbox.start(["acquire", "job", "--ttl", "60s"]);
    eventually("the waiter to queue", || sandbox.waiting("job") == 1);
    waiter.signal(Signal::INT);
    let finished = waiter.finish().expect(130);
    assert_eq!(finished.stdout, "");
    assert_eq!(sandbox.waiting("job"), 0);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let mut command = crate::sandbox::undisturbed("sh");
    let script = format!(
        "trap '' HUP; exec {binary} run job -- sh -c 'grep SigIgn /proc/self/status > mask; touch started
         while ! [ -e go ]; do sleep 0.01; done'"
    );
    command.args(["-c", &script]).current_dir(sandbox.path("")).env("LOCKFAST_URL", sandbox.url());
    let wrapper = Running::new(command);
    eventually("the job to start", || sandbox.path("started").exists());
    wrapper.signal(Signal::HUP);
    std::fs::write(sandbox.path("go"), "").unwrap();
    wrapper.finish().expect(0);
    let mask = sandbox.read("mask");
    let mask = u64::from_str_radix(mask.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "HUP is not ignored in the command");
}
