//! The times of a hand-over on Redis as a picture, against other libraries. It is drawn from the table
//! on the page, so it never shows anything else.

use anyhow::{Context as _, Result, bail};

use super::PAGE;
use super::plot::{Line, Panel, plot};
use crate::page;
use crate::tidy::Finding;
use crate::tree::{self, Tree};

/// The picture.
pub(super) const PICTURE: &str = "docs/img/hand-over.svg";
/// What the marks of the section with the table say.
pub(super) const REDIS: &str = "cargo xtask bench redis";
const COMMAND: &str = "cargo xtask chart";
const TITLE: &str = "Hand-over of a lock on Redis in ms, by the number of waiters";
/// How the row with the names of the libraries starts.
const HEAD: &str = "| waiters | Lockfast | ";

/// Prints the picture, or writes it beside the page.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let picture = drawn(&Tree::load()?)?;
    match arguments {
        [] => println!("{picture}"),
        [argument] if argument == "--write" => {
            std::fs::write(tree::root()?.join(PICTURE), picture)?;
            println!("written to {PICTURE}");
        }
        _ => bail!("chart takes --write and nothing else"),
    }
    Ok(())
}

/// The picture shows the figures of the page.
pub(crate) fn is_true(tree: &Tree) -> Vec<Finding> {
    let there = tree.file(PICTURE).map(|file| &file.text);
    match drawn(tree) {
        Ok(picture) if there == Some(&picture) => Vec::new(),
        Ok(_) => {
            let message = format!("is not what {PAGE} says; {COMMAND} --write mends it");
            vec![Finding::of(PICTURE, message)]
        }
        Err(error) => vec![Finding::of(PAGE, format!("cannot be drawn: {error}"))],
    }
}

fn drawn(tree: &Tree) -> Result<String> {
    let page = tree.file(PAGE).with_context(|| format!("{PAGE} is not there"))?;
    picture(page::section(&page.text, REDIS).with_context(|| format!("it lacks {REDIS}"))?)
}

/// A panel for each other library, with ours in all of them.
pub(super) fn picture(section: &str) -> Result<String> {
    let (names, rows) = table(section)?;
    let waiters: Vec<usize> = rows.iter().map(|row| row[0].parse()).collect::<Result<_, _>>()?;
    let ours = column(&rows, 1)?;
    let mut panels = Vec::new();
    for (at, name) in names.iter().enumerate().skip(2) {
        if name.contains("ratio") {
            continue;
        }
        let theirs = column(&rows, at)?;
        let line = |class, dashed, points: &[f64]| Line { class, dashed, points: points.to_vec() };
        panels.push(Panel {
            title: (*name).to_owned(),
            lines: vec![
                line("second", false, &theirs.0),
                line("second", true, &theirs.1),
                line("first", false, &ours.0),
                line("first", true, &ours.1),
            ],
        });
    }
    let legend = [
        ("first", false, "Lockfast, median"),
        ("second", false, "the other, median"),
        ("first", true, "Lockfast, 99th percentile"),
        ("second", true, "the other, 99th percentile"),
    ];
    Ok(plot(TITLE, &waiters, &legend, &panels))
}

/// The heads and the rows of the table.
fn table(section: &str) -> Result<(Vec<&str>, Vec<Vec<&str>>)> {
    let mut lines = section.lines().skip_while(|line| !line.starts_with(HEAD));
    let names = lines.next().with_context(|| format!("no table starts with {HEAD:?}"))?;
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect();
    Ok((cells(names), rows))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The medians and the 99th percentiles of a column.
fn column(rows: &[Vec<&str>], at: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let pair = |row: &Vec<&str>| {
        let cell = row.get(at).copied().unwrap_or_default();
        let (p50, p99) = cell.split_once(" / ").with_context(|| format!("{cell:?} is no pair"))?;
        Ok((p50.parse::<f64>()?, p99.parse::<f64>()?))
    };
    Ok(rows.iter().map(pair).collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::sample;

    const TABLE: &str = "Free locks:\n\n| case | Lockfast |\n|---|---|\n| 1 task | 7 |\n\n\
        | waiters | Lockfast | probe | p50 ratio, target ≤ 1.5 | other |\n|---|---|---|---|---|\n\
        | 1 | 0.20 / 0.50 | 0.10 / 0.30 | **1.3 ×** | 144 / 178 |\n\
        | 8 | 0.25 / 0.60 | 0.10 / 1.20 | **1.3 ×** | 9.96 / 51 |\n\nMore.\n";

    fn page(table: &str) -> String {
        format!("# P\n<!-- begin: {REDIS} -->\n{table}<!-- end: {REDIS} -->\n")
    }

    #[test]
    fn each_other_library_has_a_panel() {
        let svg = picture(TABLE).unwrap();
        for there in [">probe</text>", ">other</text>", ">0.1</text>", ">1k</text>"] {
            assert!(svg.contains(there), "{there}: {svg}");
        }
        assert_eq!(svg.matches("<polyline").count(), 8);
        assert!(!svg.contains("ratio"));
    }

    #[test]
    fn a_picture_that_shows_other_figures_is_found() {
        let svg = picture(TABLE).unwrap();
        let found = |table: &str, svg: &str| {
            let found = is_true(&sample(&[(PAGE, &page(table)), (PICTURE, svg)]));
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(found(TABLE, &svg).is_empty());
        let other = found(&TABLE.replace("144", "14"), &svg);
        assert!(other[0].contains("cargo xtask chart --write mends it"), "{other:?}");
        let broken = found(&TABLE.replace("144 /", "144"), &svg);
        assert!(broken[0].contains("is no pair"), "{broken:?}");
        assert_eq!(is_true(&sample(&[])).len(), 1);
    }

    #[test]
    fn options_are_checked() {
        assert!(run(&["--wrtie".into()]).is_err());
    }
}
