//! A server of any kind that can be broken, and its process: started, waited for until it answers,
//! paused and ended, by its pid.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::{Pid, Signal, kill_process};

use super::clock::Clock;
use super::{pause, reaper};

/// A server answers within this, also on a busy machine.
pub const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Between two looks at a server that is starting or ending.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// After this a server that was asked to end is killed.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A server of any kind. Each kind says where it keeps its process and how it starts.
pub trait Server: Send + fmt::Debug {
    /// Its process, while it runs.
    fn process(&self) -> Option<&Process>;

    /// Where it keeps its process.
    fn process_mut(&mut self) -> &mut Option<Process>;

    /// Starts it, which does not run, where it was before and with what it has stored. It answers
    /// when this returns.
    ///
    /// # Panics
    /// When it does not.
    fn launch(&mut self);

    /// What ends it in order.
    fn end_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Its wall clock, if it was set up with one that can be stepped.
    fn own_clock(&self) -> Option<&Clock> {
        None
    }

    /// Its wall clock, which can be stepped.
    ///
    /// # Panics
    /// When it was not set up with one.
    fn clock(&self) -> &Clock {
        self.own_clock().expect("Setup::clock was not asked for")
    }

    /// Kills it (SIGKILL) with all its processes, if it runs, and waits for its end.
    fn kill(&mut self) {
        if let Some(process) = self.process_mut().take() {
            process.kill();
        }
    }

    /// Ends it in order, if it runs: it stores what it has, and disconnects its clients.
    fn shut_down(&mut self) {
        let signal = self.end_signal();
        if let Some(process) = self.process_mut().take() {
            process.end_by(signal);
        }
    }

    /// Kills it, if it runs, and starts it again where it was and with what it had stored.
    ///
    /// # Panics
    /// When it does not start.
    fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Stops all its processes (SIGSTOP): it accepts connections and answers nothing.
    ///
    /// # Panics
    /// When it does not run.
    fn pause(&self) {
        self.process().expect("it runs").pause();
    }

    /// Lets it continue (SIGCONT).
    ///
    /// # Panics
    /// When it does not run.
    fn resume(&self) {
        self.process().expect("it runs").resume();
    }
}

/// The running process of a server. Dropping it kills it, and so does the end of this process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    _ward: reaper::Ward,
}

impl Process {
    /// Starts it with its output in the file `log`, which may have other lines already and is in the
    /// server's directory.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let ward = reaper::watch(child.id(), log.parent());
        Self { child, log: log.to_owned(), _ward: ward }
    }

    /// Waits until it answers, as `answers` finds out.
    ///
    /// # Panics
    /// When it ends instead or takes too long, with the last that it said.
    pub fn wait_until_it(&mut self, answers: impl Fn() -> bool) {
        let start = Moment::now();
        while !answers() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "the server ended with {status} instead of answering: {}",
                    self.last_words()
                );
            }
            let waited = Moment::now().since(start);
            assert!(waited < START_TIME_MAX, "the server does not answer: {}", self.last_words());
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what it wrote.
    pub fn last_words(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(8)..].join(" | ")
    }

    /// Stops it (SIGSTOP) with its child processes, and returns when all have stopped: it accepts
    /// connections and answers nothing.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&self) {
        pause::stop(self.pid()).unwrap();
        // Nobody waits for these now, so their pids stay theirs; but they may have ended before.
        for child in self.children() {
            let _ = pause::stop(child);
        }
    }

    /// Lets it and its child processes continue (SIGCONT).
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&self) {
        for child in self.children() {
            let _ = pause::resume(child);
        }
        pause::resume(self.pid()).unwrap();
    }

    /// Kills it (SIGKILL) and its child processes, and waits until all have ended.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end by a signal and waits for it; kills it when that takes too long.
    pub fn end_by(mut self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let start = Moment::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Moment::now().since(start) > END_TIME_MAX {
                return self.end();
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    fn end(&mut self) {
        // It is stopped first, so that it starts no more children that could be missed.
        let is_stopped = pause::stop(self.pid()).is_ok();
        let children = if is_stopped { self.children() } else { Vec::new() };
        for child in &children {
            if let Some(pid) = i32::try_from(*child).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // It has ended already, or there is nothing more to be done about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let start = Moment::now();
        while children.iter().any(|child| is_running(*child)) {
            if Moment::now().since(start) > END_TIME_MAX {
                return;
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    /// The processes that it has started and not yet waited for.
    fn children(&self) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| stat_of(*pid).is_some_and(|(_, parent)| parent == self.pid())).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `kill` and `end_by` nothing is left of it, and its pid may be another's.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.end();
        }
    }
}

fn is_running(pid: u32) -> bool {
    stat_of(pid).is_some_and(|(state, _)| state != 'Z')
}

/// The state of a process and its parent.
fn stat_of(pid: u32) -> Option<(char, u32)> {
    let fields = fields_of(pid)?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// When a process started, in clock ticks since boot: tells it from a later one with its pid.
pub(super) fn start_time_of(pid: u32) -> Option<u64> {
    fields_of(pid)?.split(' ').nth(19)?.parse().ok()
}

/// What the kernel tells of a process after the program's name, which may hold anything but ends
/// with the last ")".
fn fields_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
