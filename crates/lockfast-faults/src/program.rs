//! Programs that tests start, and where they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where servers are that a user's `PATH` often leaves out.
const FOLDERS_MORE: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Where Debian keeps each version of PostgreSQL.
const POSTGRES_FOLDER: &str = "/usr/lib/postgresql";

/// The path of a program.
///
/// # Panics
/// When it is not installed, saying how to install it.
pub fn find(program: &str) -> PathBuf {
    or_panic(program, locate(program))
}

/// The path of a program, if it is installed.
pub fn locate(program: &str) -> Option<PathBuf> {
    locate_all(program).next()
}

/// Whether a program is installed, for whoever can do without it.
pub fn is_installed(program: &str) -> bool {
    locate(program).is_some()
}

/// All programs of this name, in the order in which they are looked for.
pub(super) fn locate_all(program: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    in_folders(program, folders.into_iter().chain(FOLDERS_MORE.map(PathBuf::from)))
}

/// The path of a program of PostgreSQL's newest version here, which is seldom in `PATH`.
///
/// # Panics
/// When it is not installed, saying how to install it.
pub fn find_postgres(program: &str) -> PathBuf {
    or_panic(program, locate_postgres(program))
}

/// The same, if it is installed.
pub fn locate_postgres(program: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_FOLDER).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(version_of(folder)));
    in_folders(program, folders.into_iter()).next().or_else(|| locate(program))
}

/// The number in `/usr/lib/postgresql/NUMBER/bin`.
fn version_of(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.parse().ok()
}

fn in_folders(
    program: &str,
    folders: impl Iterator<Item = PathBuf>,
) -> impl Iterator<Item = PathBuf> {
    folders.map(move |folder| folder.join(program)).filter(|path| path.is_file())
}

fn or_panic(program: &str, found: Option<PathBuf>) -> PathBuf {
    found.unwrap_or_else(|| panic!("{program} is not installed; run: cargo xtask setup"))
}

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"))
}

/// Runs a program to its end; whether it succeeded, and what it printed on both outputs.
///
/// # Panics
/// When it cannot be started.
pub fn try_run(command: &mut Command) -> (bool, String) {
    let output = run(command);
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said.trim().to_owned())
}

/// Runs a program that must succeed, and returns what it printed.
///
/// # Panics
/// When it cannot be started or fails, with what it said.
pub fn run_well(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
