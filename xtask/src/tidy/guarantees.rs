//! The page of guarantees against the tests: every test that it names exists, in the crate that its
//! column stands for.

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "docs/guarantees.md";

/// Every `file::test` in a table of the page is a function in such a file.
pub(super) fn tests_exist(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Finding::of(PAGE, "is missing")];
    };
    let mut findings = Vec::new();
    let mut columns: Vec<&str> = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        if line.starts_with("|---") {
            continue;
        }
        let Some(cells) = cells(line) else {
            columns.clear();
            continue;
        };
        if columns.is_empty() {
            columns = cells;
            continue;
        }
        for (column, cell) in columns.iter().zip(cells) {
            for test in tests_of(cell).filter(|test| !exists(tree, column, test)) {
                let message = format!("there is no test {test} for {column}");
                findings.push(Finding::on(page, number, message));
            }
        }
    }
    findings
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" |").map(str::trim).collect())
}

/// What is quoted and has a file and a name.
fn tests_of(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains("::"))
}

fn exists(tree: &Tree, column: &str, test: &str) -> bool {
    let folder = match column {
        "the suite" => "crates/lockfast-conformance/src/".to_owned(),
        "the scenarios" => "crates/lockfast-cli/tests/stores/".to_owned(),
        store => format!("crates/lockfast-backend-{store}/tests/"),
    };
    let Some((file, name)) = test.split_once("::") else { return false };
    let (ending, function) = (format!("/{file}.rs"), format!("fn {name}("));
    tree.ending(&ending)
        .any(|found| found.path.starts_with(&folder) && found.text.contains(&function))
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn a_test_that_is_gone_is_found() {
        let test = "crates/lockfast-backend-redis/tests/faults/link.rs";
        let check = |page: &str| {
            shown(&tests_exist(&sample(&[(PAGE, page), (test, "async fn a_cut() {}\n")])))
        };
        let head = "| fault | redis | mysql |\n|---|---|---|\n";
        assert!(check(&format!("{head}| `cut` | `link::a_cut` | — |\n")).is_empty());
        assert_eq!(
            check(&format!("{head}| cut | `link::a_stall` | `link::a_cut` |\n")),
            [
                "docs/guarantees.md:3: there is no test link::a_stall for redis",
                "docs/guarantees.md:3: there is no test link::a_cut for mysql",
            ]
        );
    }
}
