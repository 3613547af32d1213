//! Fresh data directories that take a server seconds to make: made once, beside the test binary,
//! and copied from then on.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::program;

/// The directory of that name. `make` fills a new one when it is not there; the name therefore
/// holds the version of whatever fills it.
pub(super) fn prepare(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let place = binary.with_file_name(format!("lockfast-template-{name}"));
    if !place.is_dir() {
        // Not where it will be: servers that are not root's may not get there.
        let made = tempfile::tempdir().unwrap();
        make(made.path());
        let near = tempfile::tempdir_in(binary.parent().unwrap()).unwrap();
        let whole = near.path().join("whole");
        copy(made.path(), &whole);
        // Another process may have been faster, and its directory is as good.
        let renamed = std::fs::rename(&whole, &place);
        assert!(renamed.is_ok() || place.is_dir(), "cannot keep a template: {renamed:?}");
    }
    place
}

/// Copies a directory to a place where there is nothing yet.
pub(super) fn copy(from: &Path, to: &Path) {
    program::run_well(Command::new("cp").arg("-r").arg("--").arg(from).arg(to));
}
