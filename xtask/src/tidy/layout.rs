//! Where things are: names that say something, the same files in every backend, and a code map
//! that is true.

use super::Finding;
use crate::tree::Tree;

/// Names under which anything could be hidden.
const NAMES_EMPTY: &[&str] =
    &["common", "helper", "helpers", "internals", "manager", "misc", "util", "utils", "v2"];

/// Files are named for what is in them.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    tree.ending(".rs")
        .filter_map(|file| {
            let path = file.path.trim_end_matches(".rs");
            let empty = path.split(['/', '_', '-']).find(|word| NAMES_EMPTY.contains(word))?;
            let message = format!("{empty:?} says nothing; name the file for what is in it");
            Some(Finding::of(&file.path, message))
        })
        .collect()
}

const BACKEND_FILES: &[&str] = &[
    "README.md",
    "src/lib.rs",
    "src/config.rs",
    "src/backend.rs",
    "src/diagnosis*",
    "src/wire*",
    "tests/conformance*.rs",
    "tests/diagnosis.rs",
];
const BACKEND_HEADINGS: &[&str] =
    &["Guarantees", "Stored as", "Failure modes", "Options", "Versions tested"];

/// Who knows one backend finds the way in all.
pub(super) fn backends(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.folders("crates", "lockfast-backend-") {
        for name in BACKEND_FILES {
            if !tree.has(&format!("{folder}/{name}")) {
                findings.push(Finding::of(&folder, format!("has no {name}")));
            }
        }
        let Some(readme) = tree.file(&format!("{folder}/README.md")) else {
            continue;
        };
        let headings: Vec<&str> = readme
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(str::trim)
            .filter(|heading| BACKEND_HEADINGS.contains(heading))
            .collect();
        if headings != BACKEND_HEADINGS {
            findings.push(Finding::of(
                &readme.path,
                format!("needs these headings in order: {}", BACKEND_HEADINGS.join(", ")),
            ));
        }
    }
    findings
}

/// Every path that the code map names is there.
pub(super) fn code_map(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.file("ARCHITECTURE.md") else {
        return vec![Finding::of("ARCHITECTURE.md", "is missing")];
    };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(map.text.lines()) {
        for path in line.split(|c: char| c.is_whitespace() || "`()[],;|#".contains(c)) {
            let path = path.trim_end_matches(['.', ':']);
            let is_ours = ["crates/", "deploy/", "docs/", "xtask/", ".ci/", ".cargo/"]
                .iter()
                .any(|top| path.starts_with(top));
            if is_ours && !tree.has(path) {
                findings.push(Finding::on(map, number, format!("{path} does not exist")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn empty_names_are_refused() {
        for path in ["src/util.rs", "src/common/mod.rs", "src/lease_manager.rs", "src/wire_v2.rs"] {
            assert_eq!(names(&sample(&[(path, "")])).len(), 1, "{path}");
        }
        for path in ["src/utility_meter.rs", "src/lease.rs", "docs/common.md"] {
            assert!(names(&sample(&[(path, "")])).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_backend_has_all_its_files_and_headings() {
        let page = "# X\n## Guarantees\n## Stored as\n## Failure modes\n## Options\n### Detail\n## Versions tested\n";
        let folder = |name: &str| format!("crates/lockfast-backend-x/{name}");
        let paths: Vec<String> = [
            "README.md",
            "src/lib.rs",
            "src/config.rs",
            "src/backend.rs",
            "src/diagnosis/mod.rs",
            "src/wire*",
            "tests/diagnosis.rs",
            "tests/conformance_x.rs",
        ]
        .map(folder)
        .into();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), page)).collect();
        assert!(backends(&sample(&files)).is_empty());
        assert_eq!(
            shown(&backends(&sample(&files[..7]))),
            ["crates/lockfast-backend-x: has no tests/conformance*.rs"]
        );
        let mut unordered = files.clone();
        unordered[0].1 = "# X\n## Stored as\n## Guarantees\n";
        assert_eq!(backends(&sample(&unordered)).len(), 1);
    }

    #[test]
    fn the_code_map_names_what_is_there() {
        let map = "see `crates/a/src/`, crates/*/src/lib.rs, [x](docs/y.md#z) and crates/b/.\n";
        let tree = sample(&[("ARCHITECTURE.md", map), ("crates/a/src/lib.rs", "")]);
        assert_eq!(
            shown(&code_map(&tree)),
            [
                "ARCHITECTURE.md:1: docs/y.md does not exist",
                "ARCHITECTURE.md:1: crates/b/ does not exist",
            ]
        );
    }
}
