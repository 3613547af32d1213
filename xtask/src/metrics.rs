//! The reference of metrics: one table, from the list that the library registers. The file with that
//! list is compiled here as it is, so nothing has to be built to read it.

use std::fmt::Write as _;

use anyhow::{Result, bail};

use crate::page;
use crate::tidy::Finding;
use crate::tree::Tree;

#[path = "../../crates/lockfast-core/src/observe.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a part of the library, which uses all of it")]
pub(crate) mod observe;

use observe::{METRICS, MetricKind};

/// The page with the table.
const PAGE: &str = "docs/metrics.md";
const COMMAND: &str = "cargo xtask metrics";

/// Prints the table, or writes it into the page.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let text = table();
    match arguments {
        [] => println!("{text}"),
        [argument] if argument == "--write" => page::write(PAGE, COMMAND, &text)?,
        _ => bail!("metrics takes --write and nothing else"),
    }
    Ok(())
}

/// The page has the table that the list gives.
pub(crate) fn are_documented(tree: &Tree) -> Vec<Finding> {
    let page = tree.file(PAGE).map_or("", |file| &file.text);
    if page::section(page, COMMAND) == Some(&table()) {
        return Vec::new();
    }
    let message = format!("is not what observe.rs says; {COMMAND} --write mends it");
    vec![Finding::of(PAGE, message)]
}

fn table() -> String {
    let mut text = String::from(
        "| metric | kind | label and its values | what it tells |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram, seconds",
        };
        let _ = write!(text, "| `{}` | {kind} |", metric.name);
        if let Some((label, values)) = metric.label {
            let _ = write!(text, " `{label}`: `{}`", values.join("`, `"));
        }
        let _ = writeln!(text, " | {} |", metric.description);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::observe::Metric;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn the_page_of_this_repository_is_the_list() {
        let found = are_documented(&Tree::load().unwrap());
        assert!(found.is_empty(), "{found:?}\n{}", table());
    }

    #[test]
    fn a_page_that_is_not_the_list_is_found() {
        let page = format!("# M\n<!-- begin: {COMMAND} -->\n{}<!-- end: {COMMAND} -->\n", table());
        assert!(are_documented(&sample(&[(PAGE, &page)])).is_empty());
        let edited = page.replace("`revoked`", "`stolen`");
        assert_eq!(are_documented(&sample(&[(PAGE, &edited)])).len(), 1);
        assert_eq!(are_documented(&sample(&[])).len(), 1);
    }

    #[test]
    fn names_follow_the_custom_of_prometheus() {
        for Metric { name, kind, description, .. } in METRICS {
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), *kind == MetricKind::Histogram, "{name}");
            assert!(!description.ends_with('.') && !description.contains('|'), "{description}");
        }
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len(), "each is there once");
    }

    #[test]
    fn options_are_checked() {
        assert!(run(&["--wrtie".into()]).is_err());
    }
}
