//! Signals to `lockfast run`, before and while it holds the lock.

use std::io::BufRead as _;

use rustix::process::Signal;

use crate::sandbox::{Running, Sandbox, eventually};

#[test]
fn a_second_interrupt_does_not_wait_for_a_store_that_hangs() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let mut waiter = sandbox.start(["-v", "run", "job", "--", "true"]);
    eventually("the waiter to queue", || sandbox.waiting("job") == 1);
    // Whoever has this file locked keeps every other process from writing.
    let stalled = std::fs::File::options().write(true).open(sandbox.path("store/write.lock"));
    let stalled = stalled.unwrap();
    stalled.lock().unwrap();
    let stderr = waiter.child().stderr.take().unwrap();
    let mut said = std::io::BufReader::new(stderr).lines().map(Result::unwrap);
    waiter.signal(Signal::INT);
    assert!(said.any(|line| line.contains("acquisition cancelled")));
    waiter.signal(Signal::INT);
    waiter.finish().expect(130);
    assert!(said.any(|line| line.contains("interrupted again; the claim is left to expire")));
}

#[test]
fn an_interrupted_wait_leaves_the_queue_and_says_so() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let waiter = sandbox.start(["run", "job", "true"]);
    eventually("the waiter to queue", || sandbox.waiting("job") == 1);
    waiter.signal(Signal::INT);
    let finished = waiter.finish().expect(130);
    assert!(
        finished.stderr.contains("interrupted by SIGINT; left the queue"),
        "{}",
        finished.stderr
    );
    assert_eq!(sandbox.waiting("job"), 0);
}

#[test]
fn an_interrupted_acquire_leaves_nothing() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let waiter = sandbox.start(["acquire", "job", "--ttl", "60s"]);
    eventually("the waiter to queue", || sandbox.waiting("job") == 1);
    waiter.signal(Signal::INT);
    let finished = waiter.finish().expect(130);
    assert_eq!(finished.stdout, "(exit 130)\n", "for a shell that evaluates it");
    assert_eq!(sandbox.waiting("job"), 0);
}

/// B47: also while it connects, here to a server that never answers.
#[test]
fn an_interrupted_connect_makes_a_shell_fail() {
    let sandbox = Sandbox::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?request_timeout=60s", silent.local_addr().unwrap());
    let acquire = sandbox.start(["acquire", "job", "--ttl", "60s", "--on", &url]);
    let _connection = silent.accept().unwrap();
    acquire.signal(Signal::TERM);
    let finished = acquire.finish().expect(143);
    assert_eq!(finished.stdout, "(exit 143)\n");
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
