//! Finding the command before the lock is taken, as `execvp` would.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;
use rustix::fs::{Access, access};

use super::interpreter;
use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// Where the system looks when there is no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// How many interpreters the kernel follows, each that of the one before.
const INTERPRETERS_MAX: usize = 5;

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
            Some(Flaw::Unusable(code, why)) => Err(unusable(code, &shown, &why, undone)),
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
            Some(Flaw::Unusable(code, why)) => hindrance = hindrance.or(Some((code, why))),
        }
    }
    Err(match hindrance {
        Some((code, why)) => unusable(code, &shown, &why, undone),
        None => {
            Failure::new(NOT_FOUND, format!("the command {shown} was not found in $PATH; {undone}"))
        }
    })
}

enum Flaw {
    Missing,
    /// With this exit code, and for this reason.
    Unusable(u8, String),
}

fn unusable(code: u8, shown: &str, why: &str, undone: &str) -> Failure {
    Failure::new(code, format!("the command {shown} cannot be executed: {why}; {undone}"))
}

/// What hinders the kernel from executing a file, and from executing its interpreter, which may be a
/// script as well.
fn flaw(path: &Path) -> Option<Flaw> {
    if let Some(flaw) = flaw_of_file(path) {
        return Some(flaw);
    }
    let mut script = path.to_owned();
    for _ in 0..INTERPRETERS_MAX {
        let interpreter = interpreter::of(&script)?;
        let shown = quote(&interpreter.to_string_lossy());
        match flaw_of_file(&interpreter) {
            None => script = interpreter,
            Some(Flaw::Missing) => {
                let why = format!("its interpreter {shown} was not found");
                return Some(Flaw::Unusable(NOT_FOUND, why));
            }
            Some(Flaw::Unusable(code, why)) => {
                let why = format!("its interpreter {shown} cannot be executed: {why}");
                return Some(Flaw::Unusable(code, why));
            }
        }
    }
    interpreter::of(&script)?;
    let why = format!("more than {INTERPRETERS_MAX} scripts are interpreters of each other");
    Some(Flaw::Unusable(NOT_EXECUTABLE, why))
}

fn flaw_of_file(path: &Path) -> Option<Flaw> {
    let not_executable = |why: &str| Some(Flaw::Unusable(NOT_EXECUTABLE, why.to_owned()));
    match path.metadata() {
        Ok(file) if file.is_dir() => not_executable("it is a directory"),
        Ok(file) if !file.is_file() => not_executable("it is no regular file"),
        Ok(_) => {
            let denied = access(path, Access::EXEC_OK).err();
            denied.and_then(|error| not_executable(&error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            not_executable(&error.to_string())
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
