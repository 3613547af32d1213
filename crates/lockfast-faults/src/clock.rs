//! A wall clock for a server that can be stepped while the server runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::program;

/// What makes a program see another clock; see there.
const SHIM: &str = include_str!("clock_shim.c");

/// The clock of one server.
#[derive(Debug)]
pub struct Clock {
    offset: File,
    path: PathBuf,
    shim: PathBuf,
}

/// The compiler that makes a clock.
pub const COMPILER: &str = "cc";

impl Clock {
    /// A clock that is right, with its offset and the shim kept in `directory`.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("clock-offset");
        let offset =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let clock = Self { offset, path, shim: compile(directory) };
        clock.set(Duration::ZERO, Duration::ZERO);
        clock
    }

    /// Makes a program that is yet to be started see this clock.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.shim).env("LOCKFAST_CLOCK_OFFSET", &self.path);
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

fn compile(directory: &Path) -> PathBuf {
    let (source, shim) = (directory.join("clock_shim.c"), directory.join("clock_shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let mut command = Command::new(program::find(COMPILER));
    command.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&shim).arg(&source);
    program::run_well(&mut command);
    shim
}
