//! Figures that are compared across stores: they say with which command and when they were made, or
//! that nobody has made them yet.

use super::Finding;
use crate::tree::Tree;
use crate::{bench, choose, page};

/// Every such section is there, and is measured or says how to do it.
pub(super) fn are_dated(tree: &Tree) -> Vec<Finding> {
    let sections = [(choose::PAGE, choose::COMMAND), (bench::PAGE, bench::OPTIMISTIC)];
    let mut findings = Vec::new();
    for (path, command) in sections {
        let text = tree.file(path).and_then(|file| page::section(&file.text, command));
        let is_good = |text: &str| {
            page::is_measured(text, command) || text.starts_with(&page::not_measured(command))
        };
        if !text.is_some_and(is_good) {
            let message = format!("does not say when {command} was run, nor that it is to be run");
            findings.push(Finding::of(path, message));
        }
    }
    if let Some(text) =
        tree.file(choose::PAGE).and_then(|it| page::section(&it.text, choose::COMMAND))
    {
        let missing = choose::missing_from(text);
        findings.extend(missing.map(|store| {
            let message =
                format!("has no row for `{store}`, or with another text than the command's");
            Finding::of(choose::PAGE, message)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn a_page_has_figures_or_says_how_to_make_them() {
        let marked = |command: &str, text: &str| {
            format!("# P\n<!-- begin: {command} -->\n{text}<!-- end: {command} -->\n")
        };
        let check = |choosing: &str, optimistic: &str| {
            let choosing = marked(choose::COMMAND, choosing);
            let optimistic = marked(bench::OPTIMISTIC, optimistic);
            shown(&are_dated(&sample(&[(choose::PAGE, &choosing), (bench::PAGE, &optimistic)])))
        };
        let blank = choose::blank();
        let measured = page::measured(bench::OPTIMISTIC).unwrap();
        assert!(check(&blank, &page::not_measured(bench::OPTIMISTIC)).is_empty());
        assert!(check(&blank, &measured).is_empty());
        assert_eq!(check(&blank, "| a | 17 |\n").len(), 1);
        let edited = blank.replace("one more process", "nothing");
        assert_ne!(blank, edited);
        assert!(!check(&edited, &measured).is_empty());
        assert_eq!(are_dated(&sample(&[])).len(), 2);
    }
}
