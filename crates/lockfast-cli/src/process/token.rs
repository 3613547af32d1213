//! Where `run` writes the fence for whoever asked to be told: a file, an open descriptor. Both
//! are checked before the lock is taken, and written before the command starts.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use lockfast::Fence;
use lockfast_core::error::quote;

use super::descriptor;
use crate::exit::{Failure, RUN_FAILED};

/// The flag of a descriptor that is ours: whatever the caller opened for us lacks it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
const ACCESS_MODE: u32 = 0o3;

/// Where the fence goes.
#[derive(Default)]
pub(crate) struct TokenSink {
    file: Option<(PathBuf, File)>,
    descriptor: Option<File>,
    /// The file is new, and is removed again unless the lock is acquired.
    remove: bool,
}

impl TokenSink {
    /// Checks the descriptor that was asked for.
    ///
    /// # Errors
    /// When it is not an open descriptor that can be written.
    pub(crate) fn check(fd: Option<&OsStr>) -> Result<Self, Failure> {
        let Some(typed) = fd else { return Ok(Self::default()) };
        let refuse =
            |flaw: &str| Failure::usage(format!("--fd {} {flaw}", quote(&typed.to_string_lossy())));
        let number = typed
            .to_str()
            .and_then(|text| text.parse::<i32>().ok())
            .filter(|number| *number >= 0)
            .ok_or_else(|| refuse("is not a file descriptor; give a number such as 3"))?;
        let flags = flags_of(number).filter(|flags| flags & CLOSE_ON_EXEC == 0);
        match flags {
            None => Err(refuse("is not open; open it for lockfast, as in: 3>fence.txt")),
            Some(flags) if flags & ACCESS_MODE == 0 => Err(refuse("is not open for writing")),
            Some(_) => {
                let file = descriptor::duplicate_file(number)
                    .map_err(|error| refuse(&format!("cannot be used: {error}")))?;
                Ok(Self { file: None, descriptor: Some(file), remove: false })
            }
        }
    }

    /// Opens the file, without changing it yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn open(&mut self, path: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = path else { return Ok(()) };
        let mut options = OpenOptions::new();
        options.write(true);
        let opened = match options.clone().create_new(true).open(path) {
            Ok(file) => {
                self.remove = true;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
            Err(error) => Err(error),
        };
        match opened {
            Ok(file) => {
                self.file = Some((path.to_owned(), file));
                Ok(())
            }
            Err(error) => Err(Failure::new(
                RUN_FAILED,
                format!(
                    "the token file {} cannot be written: {error}; the lock was not taken",
                    quote(&path.to_string_lossy())
                ),
            )),
        }
    }

    /// Writes the fence everywhere.
    ///
    /// # Errors
    /// When it cannot be written after all.
    pub(crate) fn write(&mut self, fence: Fence) -> Result<(), Failure> {
        self.remove = false;
        let line = format!("{fence}\n");
        let mut result = Ok(());
        if let Some((_, file)) = &mut self.file {
            let regular = file.metadata().is_ok_and(|file| file.is_file());
            result = if regular { file.set_len(0) } else { Ok(()) };
            result = result.and_then(|()| file.write_all(line.as_bytes()));
        }
        if let Some(file) = self.descriptor.take().as_mut() {
            result = result.and_then(|()| file.write_all(line.as_bytes()));
        }
        result.map_err(|error| {
            Failure::new(RUN_FAILED, format!("the fence was not written: {error}"))
        })
    }
}

impl Drop for TokenSink {
    fn drop(&mut self) {
        if let (true, Some((path, _))) = (self.remove, &self.file) {
            // An empty file that stays behind harms nobody.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn flags_of(number: i32) -> Option<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok()
}
