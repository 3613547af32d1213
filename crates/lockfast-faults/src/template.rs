//! Fresh data directories that take a server seconds to make: made once, beside the test binary,
//! and copied from then on.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::program;

/// What cargo puts into its target directory: whatever is below it can be made again.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// A data directory that nobody uses, to be copied.
pub(super) enum Template {
    /// It is kept for others.
    Kept(PathBuf),
    /// This one only.
    Once(TempDir),
}

impl Template {
    /// Copies it to a place where there is nothing yet.
    pub(super) fn copy_to(&self, to: &Path) {
        let from = match self {
            Self::Kept(path) => path,
            Self::Once(directory) => directory.path(),
        };
        copy(from, to);
    }
}

/// The directory of that name. `make` fills a new one when it is not there; the name therefore
/// holds the version of whatever fills it. A program that was installed keeps none.
pub(super) fn prepare(name: &str, make: impl FnOnce(&Path)) -> Template {
    let binary = std::env::current_exe().unwrap();
    let place = binary.with_file_name(format!("lockfast-template-{name}"));
    if !place.is_dir() {
        // Not where it will be: servers that are not root's may not get there.
        let made = tempfile::tempdir().unwrap();
        make(made.path());
        if !is_built_there(&binary) {
            return Template::Once(made);
        }
        let near = tempfile::tempdir_in(binary.parent().unwrap()).unwrap();
        let whole = near.path().join("whole");
        copy(made.path(), &whole);
        // Another process may have been faster, and its directory is as good.
        let renamed = std::fs::rename(&whole, &place);
        assert!(renamed.is_ok() || place.is_dir(), "cannot keep a template: {renamed:?}");
    }
    Template::Kept(place)
}

/// Whether a program is where cargo built it.
fn is_built_there(binary: &Path) -> bool {
    binary.ancestors().any(|folder| folder.join(CACHE_TAG).is_file())
}

fn copy(from: &Path, to: &Path) {
    program::run_well(Command::new("cp").arg("-r").arg("--").arg(from).arg(to));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cargo_builds_keeps_templates() {
        assert!(is_built_there(&std::env::current_exe().unwrap()));
        assert!(!is_built_there(Path::new("/usr/local/bin/lockfast")));
    }
}
