//! The files of the repository, read once, so that every check is a function of a value and can
//! be tested on a made-up tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The root of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as cargo xtask")?;
    let root = Path::new(&package).parent();
    Ok(root.context("xtask is not in a workspace")?.to_owned())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(own.unwrap_or(root()?.join("target")))
}

/// Removes a folder that an earlier run may have left.
pub(crate) fn remove_if_there(folder: &Path) -> Result<()> {
    if folder.exists() { Ok(fs::remove_dir_all(folder)?) } else { Ok(()) }
}

/// All files, by path from the root in byte order, with `/` between the parts.
pub(crate) struct Tree {
    files: Vec<File>,
}

/// One file; the text of one that is not UTF-8 is empty.
pub(crate) struct File {
    /// The path from the root.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

impl Tree {
    /// Reads the repository, without what git and cargo keep in it.
    pub(crate) fn load() -> Result<Self> {
        let root = root()?;
        let mut files = Vec::new();
        read_directory(&root, "", &mut files)?;
        Ok(Self::new(files))
    }

    /// A tree of these files.
    pub(crate) fn new(mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files }
    }

    /// All files.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// The file at this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// All files whose name ends so.
    pub(crate) fn ending(&self, end: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }

    /// Whether a file or folder is there; a `*` stands for anything but `/`.
    pub(crate) fn has(&self, pattern: &str) -> bool {
        let parts: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
        self.files.iter().any(|file| {
            let mut found = file.path.split('/');
            parts.iter().all(|part| found.next().is_some_and(|name| matches(part, name)))
        })
    }

    /// The folders directly under `folder` whose name starts so, by path from the root.
    pub(crate) fn folders(&self, folder: &str, start: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for file in &self.files {
            let Some(rest) = file.path.strip_prefix(&format!("{folder}/")) else {
                continue;
            };
            if let Some((name, _)) = rest.split_once('/')
                && name.starts_with(start)
            {
                found.push(format!("{folder}/{name}"));
            }
        }
        found.dedup();
        found
    }
}

/// Whether a name fits a pattern with at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

fn read_directory(directory: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("{} is unreadable", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A folder, but a file in a further work tree.
        if name == ".git" {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if name != "target" && !name.starts_with("target-") {
                read_directory(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("{path} is unreadable"))?;
            let text = String::from_utf8(bytes).unwrap_or_default();
            files.push(File { path, text });
        }
    }
    Ok(())
}

/// A tree of paths with texts, for tests.
#[cfg(test)]
pub(crate) fn sample(files: &[(&str, &str)]) -> Tree {
    let file =
        |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
    Tree::new(files.iter().map(file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_patterns_are_found() {
        let tree = sample(&[("crates/a-x/src/lib.rs", ""), ("crates/b/src/wire.rs", "")]);
        for there in ["crates/a-x", "crates/a-x/", "crates/*/src/wire.rs", "crates/a-*"] {
            assert!(tree.has(there), "{there}");
        }
        for missing in ["crates/a", "crates/a-*/src/wire.rs", "src/lib.rs", "crates/*x*"] {
            assert!(!tree.has(missing), "{missing}");
        }
        assert_eq!(tree.folders("crates", "a"), ["crates/a-x"]);
    }

    #[test]
    fn this_repository_can_be_read() {
        let tree = Tree::load().unwrap();
        assert!(tree.file("xtask/src/tree.rs").is_some());
        assert!(!tree.has(".git"));
    }
}
