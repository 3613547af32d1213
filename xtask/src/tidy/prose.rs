//! Pages: one title each, and links that lead somewhere.

use super::Finding;
use crate::tree::{File, Tree};

/// A page starts with its only title.
pub(super) fn titles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".md") {
        let lines = prose(&file.text);
        let count = lines.iter().filter(|(_, line)| line.starts_with("# ")).count();
        let is_first = lines
            .iter()
            .find(|(_, line)| !line.trim().is_empty())
            .is_some_and(|(_, line)| line.starts_with("# "));
        if count != 1 || !is_first {
            let message = format!("starts with one title, once: {count} found");
            findings.push(Finding::of(&file.path, message));
        }
    }
    findings
}

/// A link inside the repository leads to a file, and to a heading where it names one.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".md") {
        for (number, line) in prose(&file.text) {
            for link in targets(line) {
                if let Some(flaw) = flaw(tree, file, link) {
                    findings.push(Finding::on(file, number, format!("link {link}: {flaw}")));
                }
            }
        }
    }
    findings
}

/// The lines outside fenced code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            !in_code && !is_fence
        })
        .collect()
}

/// Where links lead, and what pictures show, in either way to write them.
fn targets(line: &str) -> Vec<&str> {
    let between = |start: &'static str, end: char| {
        let found = line.match_indices(start).map(move |(at, _)| &line[at + start.len()..]);
        found.filter_map(move |rest| rest.split(end).next())
    };
    between("](", ')').chain(between("src=\"", '"')).collect()
}

fn flaw(tree: &Tree, from: &File, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let Some(path) = resolve(&from.path, path) else {
        return Some("leads out of the repository");
    };
    if package_of(&from.path).is_some_and(|package| !path.starts_with(package)) {
        return Some(
            "leads out of the package, where a registry has nothing; name the file, without a link",
        );
    }
    if !path.is_empty() && !tree.has(&path) {
        return Some("there is no such file");
    }
    let page = tree.file(&path).filter(|page| page.path.ends_with(".md"))?;
    let is_there = heading.is_empty()
        || prose(&page.text)
            .iter()
            .any(|(_, line)| line.starts_with('#') && anchor(line) == heading);
    (!is_there).then_some("there is no such heading")
}

/// The folder of the package, with a slash, that shows this page to those who find it in a registry.
fn package_of(page: &str) -> Option<&str> {
    let folder = page.strip_suffix("README.md")?;
    let name = folder.strip_prefix("crates/")?.strip_suffix('/')?;
    (!name.contains('/')).then_some(folder)
}

/// The path from the root of a link in `from`; an empty link means the page itself.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A heading as forges write it in links.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn a_page_has_one_title() {
        let good = "\n# A\n```sh\n# a comment\n```\n## B\n";
        for bad in ["", "## A\n", "# A\n# B\n", "text\n# A\n"] {
            let found = titles(&sample(&[("a.md", bad), ("b.md", good)]));
            assert_eq!(found.len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn links_lead_somewhere() {
        let page = "# P\n[a](../README.md) [b](x.md#the-open-step-1) [c](#p) [d](.)\n\
                    [e](https://example.org/z) ![f](gone.png) [g](x.md#gone) [h](../../out.md)\n\
                    <img alt=\"j\" src=\"there.svg\"> <img src=\"gone.svg\"> ![k](lost.svg)\n\
                    ```\n[i](gone.md)\n```\n";
        let tree = sample(&[
            ("README.md", "# R\n"),
            ("docs/p.md", page),
            ("docs/there.svg", "<svg/>"),
            ("docs/x.md", "# X\n## The *open* step (1)\n"),
        ]);
        assert_eq!(
            shown(&links(&tree)),
            [
                "docs/p.md:3: link gone.png: there is no such file",
                "docs/p.md:3: link x.md#gone: there is no such heading",
                "docs/p.md:3: link ../../out.md: leads out of the repository",
                "docs/p.md:4: link lost.svg: there is no such file",
                "docs/p.md:4: link gone.svg: there is no such file",
            ]
        );
    }

    /// What a registry shows of a package has no files but its own.
    #[test]
    fn the_page_of_a_package_stays_in_it() {
        let page = "# A\n[a](../../docs/x.md) [b](../b/README.md) [c](NOTES.md) [d](#a) [e](https://e.org)\n";
        let tree = sample(&[
            ("crates/a/README.md", page),
            ("crates/a/NOTES.md", "# N\n[a](../../docs/x.md)\n"),
            ("crates/b/README.md", "# B\n"),
            ("docs/x.md", "# X\n[a](../crates/a/README.md)\n"),
        ]);
        let why =
            "leads out of the package, where a registry has nothing; name the file, without a link";
        let expected = ["../../docs/x.md", "../b/README.md"]
            .map(|link| format!("crates/a/README.md:2: link {link}: {why}"));
        assert_eq!(shown(&links(&tree)), expected);
    }
}
