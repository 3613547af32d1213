//! What grows must be cut before it is too big to read. Tests, comments and blank lines are free.

use super::Finding;
use super::source::Source;
use crate::tree::Tree;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 400;
const README_LINES_MAX: usize = 200;
/// Files through which everything passes, and which would otherwise take everything in.
const FILES_SMALLER: &[(&str, usize)] = &[("crates/lockfast/src/lease/driver.rs", 250)];

/// No function is longer than a screen.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs") {
        let source = Source::new(&file.path, &file.text);
        let lines: Vec<usize> = source.lines().map(|(number, _)| number).collect();
        for (name, first, last) in source.functions() {
            let count = lines.iter().filter(|n| (first..=last).contains(*n)).count();
            if count > FUNCTION_LINES_MAX {
                let message = format!("fn {name} has {count} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::on(file, first, message));
            }
        }
    }
    findings
}

/// No file is longer than can be kept in mind.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    tree.ending(".rs")
        .filter_map(|file| {
            let count = Source::new(&file.path, &file.text).lines().count();
            let max = FILES_SMALLER
                .iter()
                .find(|(path, _)| *path == file.path)
                .map_or(FILE_LINES_MAX, |(_, max)| *max);
            (count > max).then(|| {
                Finding::of(
                    &file.path,
                    format!("{count} lines of code, at most {max}; split it by what it is about"),
                )
            })
        })
        .collect()
}

/// The first page stays a page.
pub(super) fn readme(tree: &Tree) -> Vec<Finding> {
    let lines = tree.file("README.md").map(|file| file.text.lines().count());
    match lines {
        None => vec![Finding::of("README.md", "is missing")],
        Some(count) if count > README_LINES_MAX => vec![Finding::of(
            "README.md",
            format!("{count} lines, at most {README_LINES_MAX}; move detail to docs/"),
        )],
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn a_function_may_fill_a_screen() {
        let of = |lines: usize| format!("fn f() {{\n// why\n{}}}\n", "    a();\n".repeat(lines));
        assert!(functions(&sample(&[("src/a.rs", &of(68))])).is_empty());
        let long = of(69);
        let found = functions(&sample(&[("src/a.rs", &long), ("tests/a.rs", &long)]));
        assert_eq!(shown(&found), ["src/a.rs:1: fn f has 71 lines, at most 70"]);
    }

    #[test]
    fn a_file_is_measured_without_its_tests() {
        let code = "const A: u8 = 0;\n".repeat(400);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(files(&sample(&[("src/a.rs", &format!("{code}//!\n{tests}"))])).is_empty());
        let found = files(&sample(&[("src/a.rs", &format!("{code}use b;\n"))]));
        assert!(shown(&found)[0].starts_with("src/a.rs: 401 lines of code, at most 400"));
        let found = files(&sample(&[("crates/lockfast/src/lease/driver.rs", &code)]));
        assert!(shown(&found)[0].contains("400 lines of code, at most 250"));
    }

    #[test]
    fn the_readme_is_there_and_short() {
        assert_eq!(readme(&sample(&[])).len(), 1);
        assert!(readme(&sample(&[("README.md", &"a\n".repeat(200))])).is_empty());
        assert_eq!(readme(&sample(&[("README.md", &"a\n".repeat(201))])).len(), 1);
    }
}
