//! A wall clock for a server that can be stepped while the server runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::program;

/// What makes a program see another clock, one that uses the C library and one that does not; see
/// there.
const SHIM: &str = include_str!("clock_shim.c");
const TRACER: &str = include_str!("clock_tracer.c");

/// The clock of one server.
#[derive(Debug)]
pub struct Clock {
    offset: File,
    directory: PathBuf,
}

const OFFSET: &str = "clock-offset";
const OFFSET_VARIABLE: &str = "LOCKFAST_CLOCK_OFFSET";

/// The compiler that makes a clock.
pub const COMPILER: &str = "cc";

impl Clock {
    /// A clock that is right, with its offset kept in `directory`.
    pub fn new(directory: &Path) -> Self {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let offset = options.open(directory.join(OFFSET)).unwrap();
        let clock = Self { offset, directory: directory.to_owned() };
        clock.set(Duration::ZERO, Duration::ZERO);
        clock
    }

    /// Makes a program that is yet to be started see this clock. It must get the time from the C
    /// library.
    pub fn preload(&self, command: &mut Command) {
        let shim = compile(&self.directory, "clock_shim", SHIM, &["-shared", "-fPIC"]);
        command.env("LD_PRELOAD", shim).env(OFFSET_VARIABLE, self.directory.join(OFFSET));
    }

    /// A command that runs a program which sees this clock, wherever it gets the time from. It runs
    /// slower. Its arguments are still to be added.
    pub fn trace(&self, program: &Path) -> Command {
        let mut command = Command::new(compile(&self.directory, "clock_tracer", TRACER, &[]));
        command.env(OFFSET_VARIABLE, self.directory.join(OFFSET)).arg(program);
        command
    }

    /// Moves the clock ahead of the real one.
    pub fn step_forward(&self, span: Duration) {
        self.set(span, Duration::ZERO);
    }

    /// Moves the clock behind the real one.
    pub fn step_back(&self, span: Duration) {
        self.set(Duration::ZERO, span);
    }

    fn set(&self, ahead: Duration, behind: Duration) {
        for (span, place) in [(ahead, 0), (behind, 8)] {
            let us = i64::try_from(span.as_micros()).unwrap();
            self.offset.write_all_at(&us.to_ne_bytes(), place).unwrap();
        }
    }
}

/// Compiles a source into the directory, unless that was done.
fn compile(directory: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (path, program) = (directory.join(name).with_extension("c"), directory.join(name));
    if !program.exists() {
        std::fs::write(&path, source).unwrap();
        let mut command = Command::new(program::find(COMPILER));
        command.arg("-O1").args(options).arg("-o").arg(&program).arg(&path);
        program::run_well(&mut command);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// The time of day that a program tells which was started so, in seconds.
    fn told(mut command: Command) -> f64 {
        program::run_well(command.args(["-c", "import time; print(time.time())"])).parse().unwrap()
    }

    #[test]
    fn clocks_are_stepped() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::new(directory.path());
        let python = program::find("python3");
        let ask = || {
            let mut preloaded = Command::new(&python);
            clock.preload(&mut preloaded);
            [told(preloaded), told(clock.trace(&python))]
        };
        let right = told(Command::new(&python));
        clock.step_forward(DAY);
        let ahead = ask();
        clock.step_back(DAY);
        let behind = ask();
        let (day, slack) = (DAY.as_secs_f64(), 60.0);
        assert!(ahead.iter().all(|it| (it - right - day).abs() < slack), "{right} {ahead:?}");
        assert!(behind.iter().all(|it| (it - right + day).abs() < slack), "{right} {behind:?}");
    }

    /// What waits, is paused and is ended is the program, not what traces it.
    #[test]
    fn a_traced_program_has_the_pid_of_its_command() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::new(directory.path());
        let mut command = clock.trace(&program::find("sh"));
        let mut child = command.args(["-c", "kill -TERM $$; sleep 60"]).spawn().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
    }
}
