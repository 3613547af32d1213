//! A test process that dies by a signal leaves no server behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "a child tells its parent by lines")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockfast_faults::child::Child;
use lockfast_faults::postgres::Postgres;
use lockfast_faults::redis::Redis;
use lockfast_faults::server::Server as _;
use lockfast_faults::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};

const BOUND: Duration = Duration::from_secs(60);
const CHILD: &str = "LOCKFAST_REAPER_CHILD";

/// The process that is killed: this binary, started by the test below.
#[test]
fn a_process_with_servers() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (redis, postgres) = (Redis::start(), Postgres::start());
    // One that cannot act, and one in a directory of another user.
    redis.pause();
    println!("\nports {} {}", redis.port(), postgres.port());
    println!("directory {}", redis.data().parent().unwrap().display());
    println!("directory {}", postgres.socket_directory().display());
    std::thread::sleep(BOUND);
}

#[test]
fn servers_end_with_the_process_that_started_them() {
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,TERM").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_with_servers", "--nocapture"]).env(CHILD, "1");
        let child = Child::spawn(&mut command).unwrap();
        let ports = child.wait_for("ports", BOUND).unwrap();
        let directories = [(); 2].map(|()| child.wait_for("directory", BOUND).unwrap());
        let is_listening = |port: &str| {
            std::net::TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).is_ok()
        };
        assert!(ports.split(' ').all(is_listening), "the servers listen");
        let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
        wait_until("the servers to end", BOUND, || !ports.split(' ').any(is_listening));
        wait_until("their directories to go", BOUND, || {
            !directories.iter().any(|path| Path::new(path).exists())
        });
    }
}
