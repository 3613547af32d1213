//! Programs that these tests start, and where they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where servers are that a user's `PATH` often leaves out.
const FOLDERS_MORE: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The path of a program.
///
/// # Panics
/// When it is not installed, saying how to install it.
pub fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS_MORE.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{program} is not installed; run: cargo xtask setup"))
}

/// A file that `cargo xtask setup` makes under `target/foreign-clients/`.
///
/// # Panics
/// When it is not there.
pub fn find_foreign(file: &str) -> PathBuf {
    let path = root().join("target/foreign-clients").join(file);
    assert!(path.exists(), "{} is missing; run: cargo xtask setup", path.display());
    path
}

/// A file beside these tests.
pub fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"))
}

/// Runs a program that must succeed, and returns what it printed.
pub fn run_well(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} failed: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
