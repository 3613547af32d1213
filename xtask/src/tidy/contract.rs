//! The contract's table of tests against the suite, in both directions: a group that it names for
//! a promise has a case that quotes the promise, and every group that has one is named.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "docs/contract.md";
const SUITE: [&str; 2] =
    ["crates/lockfast-conformance/src/cases/", "crates/lockfast-conformance/src/scenarios/"];

type Groups = BTreeMap<u32, BTreeSet<String>>;

/// The table says which groups of the suite hold which promise.
pub(super) fn promises(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Finding::of(PAGE, "is missing")];
    };
    let quoted = quoted(tree);
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        let Some((promise, groups)) = row(line) else { continue };
        named.insert(promise);
        let expected = quoted.get(&promise).cloned().unwrap_or_default();
        if groups != expected {
            let expected = Vec::from_iter(expected).join(", ");
            let message = format!("P{promise} is quoted by the groups: {expected}");
            findings.push(Finding::on(page, number, message));
        }
    }
    for promise in quoted.keys().filter(|promise| !named.contains(promise)) {
        findings.push(Finding::of(PAGE, format!("the table has no row for P{promise}")));
    }
    findings
}

/// Which groups have a case whose doc comment starts with the promise.
fn quoted(tree: &Tree) -> Groups {
    let mut found = Groups::new();
    for file in tree.ending(".rs") {
        let group = SUITE.iter().find_map(|folder| file.path.strip_prefix(folder));
        let Some(group) = group.and_then(|name| name.strip_suffix(".rs")) else { continue };
        for line in file.text.lines() {
            let promise = line.strip_prefix("/// P").and_then(|rest| rest.split_once(':'));
            if let Some(promise) = promise.and_then(|(number, _)| number.parse().ok()) {
                found.entry(promise).or_default().insert(group.to_owned());
            }
        }
    }
    found
}

/// A row `| P3 | `loss`, `revoke` | … |`: the promise, and the groups of the second column.
fn row(line: &str) -> Option<(u32, BTreeSet<String>)> {
    let mut cells = line.strip_prefix("| P")?.split(" |");
    let promise = cells.next()?.trim().parse().ok()?;
    let groups = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((promise, groups))
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn the_table_and_the_suite_agree() {
        let suite = "crates/lockfast-conformance/src/cases/queue.rs";
        let cases = "/// P1: one.\nfn a() {}\n/// P10: order.\nfn b() {}\n/// P2 is not quoted.\n";
        let check = |page: &str| shown(&promises(&sample(&[(PAGE, page), (suite, cases)])));
        assert!(
            check("| P1 | `queue` | more |\n| P10 | `queue` | |\n| P13 | | types |\n").is_empty()
        );
        assert_eq!(
            check("| P1 | `queue`, `gone` | |\n"),
            [
                "docs/contract.md:1: P1 is quoted by the groups: queue",
                "docs/contract.md: the table has no row for P10",
            ]
        );
        assert_eq!(check("| P1 | | |\n| P10 | `queue` | |\n").len(), 1);
    }
}
