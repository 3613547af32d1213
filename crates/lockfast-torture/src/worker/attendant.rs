//! Starts a `lockfast run`, sometimes kills it, and sees what is left of it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::seed::{Dice, Seed};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::job;
use crate::history::{Event, Mode, What};
use crate::recorder::Recorder;

/// The hidden command by which it is started.
pub const COMMAND: &str = "__torture-run";

/// How long a `run` or its command may take to end when it should, beyond the ttl.
const END_MAX: Duration = Duration::from_secs(10);

/// Between two looks whether something has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The exit code of a `run` when the lock was not granted.
const NOT_ACQUIRED: i32 = 75;

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    pub(super) claim: u64,
    pub(super) lock: String,
    pub(super) directory: PathBuf,
    pub(super) ttl: u64,
    pub(super) chance: u64,
}

/// The process of an attendant.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match work(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &[OsString]) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "not started by a worker");
    let [errand] = arguments else { return Err(wrong()) };
    let errand: Errand = serde_json::from_str(errand.to_str().ok_or_else(wrong)?)?;
    let (end, ending) = channel();
    std::thread::spawn(move || {
        // Nothing is ever said: the input ends with the worker.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = end.send(());
    });
    let recorder = Recorder::open(&errand.directory, &file_name(errand.claim), None)?;
    errand.run(&recorder, &ending);
    recorder.finish()
}

impl Errand {
    fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl)
    }

    fn run(&self, recorder: &Recorder, ending: &Receiver<()>) {
        let mut dice = Seed(self.chance).dice();
        let (claim, wait) = (self.claim, self.ttl() * 2);
        recorder.record(What::Asked {
            claim,
            lock: self.lock.clone(),
            mode: Mode::Exclusive,
            wait: Some(wait.as_nanos() as u64),
        });
        let refuse = |why: String| recorder.record(What::NotGranted { claim, why });
        let mut child = match self.start(wait, &mut dice) {
            Ok(child) => child,
            Err(error) => return refuse(format!("run: {error}")),
        };
        let code = self.attend(&mut child, ending, &mut dice);
        let pid = match job::pid_of(&self.directory, claim) {
            // Whoever outlives it may be about to start the command, or to find that it must not.
            None if code.is_none() => {
                std::thread::sleep(self.ttl());
                job::pid_of(&self.directory, claim)
            }
            found => found,
        };
        match (pid, code) {
            (Some(pid), _) => {
                if self.wait_for_end(pid) {
                    recorder.record(What::RunEnded { claim });
                }
            }
            (None, Some(NOT_ACQUIRED)) => refuse("taken".into()),
            (None, Some(code)) => refuse(format!("run: code {code}")),
            (None, None) => refuse("killed".into()),
        }
    }

    fn start(&self, wait: Duration, dice: &mut Dice) -> io::Result<Child> {
        let executable = std::env::current_exe()?;
        let ttl = self.ttl();
        let held = match dice.below(10) {
            0..7 => dice.time_below(ttl / 4),
            _ => dice.time_below(ttl * 3 / 2),
        };
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        let mut command = Command::new(&executable);
        command.args(["run", &self.lock, "--ttl", &millis(ttl), "--wait", &millis(wait)]);
        command.args(["--grace", &millis(ttl / 4), "--"]).arg(executable).arg(job::COMMAND);
        command.arg(&self.directory);
        let numbers = [self.claim, self.ttl, held.as_nanos() as u64];
        command.args(numbers.map(|number| number.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    }

    /// Waits for the end of a `run`, or kills it at a random moment; its code, unless it was killed.
    fn attend(&self, child: &mut Child, ending: &Receiver<()>, dice: &mut Dice) -> Option<i32> {
        let start = Moment::now();
        let kill_after = dice.one_in(3).then(|| dice.time_below(self.ttl()));
        let mut told = None;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return status.code();
            }
            let now = Moment::now();
            let is_late = told.is_some_and(|told| now.since(told) > self.ttl() + END_MAX);
            if is_late || kill_after.is_some_and(|after| now.since(start) > after) {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            match ending.recv_timeout(LOOK_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) => {
                    told = Some(now);
                    // It has not been waited for, so the pid is still its own.
                    let _ = kill_process(Pid::from_child(child), Signal::TERM);
                }
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Waits until the command of a `run` that has ended is gone too, and says whether it is. One
    /// that stays is found when the fleet has ended.
    fn wait_for_end(&self, pid: u32) -> bool {
        let start = Moment::now();
        while job::is_running(pid, self.claim) {
            if Moment::now().since(start) > self.ttl() + END_MAX {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }
}

/// Whether an attendant that records in this file has seen the end of its `run`.
pub(crate) fn has_ended(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let last = text.lines().last().and_then(|line| serde_json::from_str::<Event>(line).ok());
    last.is_some_and(|event| matches!(event.what, What::RunEnded { .. } | What::NotGranted { .. }))
}

fn file_name(claim: u64) -> String {
    format!("run-{claim}.jsonl")
}
