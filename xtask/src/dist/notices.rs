//! The licence texts of what others wrote and we compile in. Most licences ask for them wherever the
//! program goes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::graph::{Component, Graph};

/// How the names of files with such texts start.
const STARTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// All texts, each once, under the packages that carry it.
pub(super) fn write(graph: &Graph) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut page = String::from("Lockfast contains these packages:\n\n");
    for component in graph.components.iter().filter(|component| component.is_foreign) {
        let Component { name, version, licence, folder, .. } = component;
        let found = texts_in(folder).with_context(|| format!("{name} has no source"))?;
        let remark = if found.is_empty() { "; the package carries no text" } else { "" };
        let _ = writeln!(page, "{name} {version}: {licence}{remark}");
        for text in found {
            let owners = texts.entry(text).or_default();
            let owner = format!("{name} {version}");
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
    }
    for (text, owners) in texts {
        let _ =
            write!(page, "\n{}\n{}:\n\n{}\n", "-".repeat(78), owners.join(", "), text.trim_end());
    }
    Ok(page)
}

fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && STARTS.iter().any(|start| name.starts_with(start)) {
            names.push(entry.path());
        }
    }
    names.sort();
    let read = |path| Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned());
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::graph::sample;

    #[test]
    fn texts_of_others_are_carried_and_a_lack_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let serde = folder.path().join("serde");
        std::fs::create_dir(&serde).unwrap();
        let page = write(&sample(folder.path())).unwrap();
        assert!(page.contains("serde 1.2.3: MIT OR Apache-2.0; the package carries no text"));
        std::fs::write(serde.join("license-mit"), "Permission is granted").unwrap();
        std::fs::write(serde.join("lib.rs"), "no licence").unwrap();
        let page = write(&sample(folder.path())).unwrap();
        assert!(page.contains("serde 1.2.3:\n\nPermission is granted\n"), "{page}");
        assert!(!page.contains("no licence") && !page.contains("lockfast"), "{page}");
    }
}
