//! Stopping and continuing a process by its pid.

use std::io;
use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::{Pid, Signal, kill_process};

/// Stopping is done by the kernel as soon as every thread is interrupted.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// Stops a child of this process (SIGSTOP) and returns when all its threads have stopped. The
/// child must not have been waited for, so that its pid is still its own.
pub(super) fn stop(pid: u32) -> io::Result<()> {
    signal(pid, Signal::STOP)?;
    let start = Moment::now();
    while !is_stopped(pid)? {
        if Moment::now().since(start) > STOP_TIME_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Lets a child of this process continue (SIGCONT).
pub(super) fn resume(pid: u32) -> io::Result<()> {
    signal(pid, Signal::CONT)
}

fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

fn is_stopped(pid: u32) -> io::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        // The state follows the thread's name, which may hold anything but ends with the last ")".
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        // A thread that has ended does nothing more either, and is there until it is waited for.
        if !state.is_some_and(|state| state.starts_with(['T', 'Z', 'X'])) {
            return Ok(false);
        }
    }
    Ok(true)
}
