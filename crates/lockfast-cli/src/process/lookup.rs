//! Finding the command before the lock is taken, as `execvp` would.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;
use rustix::fs::{Access, access};

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// Where the system looks when there is no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// The file that a command names; `undone` says what was not done when there is none.
///
/// # Errors
/// With 127 when there is none, with 126 when there is one that cannot be executed.
pub(crate) fn find(
    command: &OsStr,
    search_path: Option<&OsStr>,
    undone: &str,
) -> Result<PathBuf, Failure> {
    let shown = quote(&command.to_string_lossy());
    if command.is_empty() {
        return Err(Failure::usage("the command is empty; write it after --, as in -- make"));
    }
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match flaw(&path) {
            None => Ok(path),
            Some(Flaw::Missing) => {
                Err(Failure::new(NOT_FOUND, format!("the command {shown} was not found; {undone}")))
            }
            Some(Flaw::NotExecutable(why)) => Err(not_executable(&shown, &why, undone)),
        };
    }
    let search_path = search_path.unwrap_or(OsStr::new(PATH_DEFAULT));
    let mut hindrance = None;
    for directory in std::env::split_paths(search_path) {
        // An empty entry means the current directory.
        let path = Path::new(".").join(directory).join(command);
        match flaw(&path) {
            None => return Ok(path),
            Some(Flaw::Missing) => {}
            Some(Flaw::NotExecutable(why)) => hindrance = hindrance.or(Some(why)),
        }
    }
    Err(match hindrance {
        Some(why) => not_executable(&shown, &why, undone),
        None => {
            Failure::new(NOT_FOUND, format!("the command {shown} was not found in $PATH; {undone}"))
        }
    })
}

enum Flaw {
    Missing,
    NotExecutable(String),
}

fn not_executable(shown: &str, why: &str, undone: &str) -> Failure {
    Failure::new(NOT_EXECUTABLE, format!("the command {shown} cannot be executed: {why}; {undone}"))
}

fn flaw(path: &Path) -> Option<Flaw> {
    match path.metadata() {
        Ok(file) if file.is_dir() => Some(Flaw::NotExecutable("it is a directory".into())),
        Ok(_) => {
            access(path, Access::EXEC_OK).err().map(|error| Flaw::NotExecutable(error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(Flaw::NotExecutable(error.to_string()))
        }
        Err(_) => Some(Flaw::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_or_explained() {
        let path = Some(OsStr::new("/nowhere:/bin:/usr/bin"));
        assert!(find(OsStr::new("sh"), path, "").unwrap().ends_with("sh"));
        assert!(find(OsStr::new("/bin/sh"), None, "").is_ok());
        let table =
            [("", 64), ("no-such-command", 127), ("/", 126), ("/etc/passwd", 126), ("/x", 127)];
        for (command, code) in table {
            assert_eq!(find(OsStr::new(command), path, "").unwrap_err().code(), code, "{command}");
        }
    }
}
