//! A wall clock for a server that can be stepped while the server runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use super::program;

/// The shim, compiled once in this process, to where cargo lets tests write.
static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (library, made) = (folder.join("clock_shim.so"), tempfile::tempdir_in(folder).unwrap());
    // Another process may be using the one that is there, so it is not written to but replaced.
    let fresh = made.path().join("clock_shim.so");
    program::run_well(
        Command::new(program::find("cc"))
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&fresh)
            .arg(program::beside("kit/clock_shim.c")),
    );
    std::fs::rename(&fresh, &library).unwrap();
    library
});

/// The clock of one server.
#[derive(Debug)]
pub struct Clock {
    offset: File,
    path: PathBuf,
}

impl Clock {
    /// A clock that is right, with its offset kept in `directory`.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("clock-offset");
        let offset =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let clock = Self { offset, path };
        clock.set(Duration::ZERO, Duration::ZERO);
        clock
    }

    /// Makes a program that is yet to be started see this clock.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &*SHIM).env("LOCKFAST_CLOCK_OFFSET", &self.path);
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
