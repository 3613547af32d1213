//! The documentation as a site: mdBook makes the pages, this adds the files outside of `docs/` that they
//! link to, and sees that every link leads somewhere. `tidy` checks the links of the sources; what mdBook
//! makes of them, with its own names for pages and headings, only shows here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::step::{Step, timed};
use crate::{refuse_arguments, tree};

/// How many redirects a link may go through.
const HOPS: usize = 3;

/// Builds the site, completes it and checks its links.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    let site = tree::target()?.join("site");
    tree::remove_if_there(&site)?;
    let book = site.join("docs");
    let build = Step::program("mdbook", &["build", "docs", "-d", &book.to_string_lossy()]);
    timed("mdbook", || build.run().context("cargo install mdbook installs it"))?;
    let pages = pages(&site)?;
    let (mut count, mut flaws) = (0, Vec::new());
    for (page, text) in &pages {
        for link in links(text) {
            count += 1;
            add_file(&site, page, link)?;
            if let Some(flaw) = flaw(&site, &pages, page, link, HOPS) {
                flaws.push(format!("{}: {link}: {flaw}", page.display()));
            }
        }
    }
    if !flaws.is_empty() {
        bail!("links lead nowhere:\n  {}", flaws.join("\n  "));
    }
    println!("{count} links on {} pages of {} lead somewhere", pages.len(), site.display());
    Ok(())
}

/// All pages by their path in the site.
fn pages(site: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                let text = fs::read_to_string(&path)?;
                pages.insert(path.strip_prefix(site)?.to_owned(), text);
            }
        }
    }
    // These repeat what other pages have, with links as from elsewhere.
    pages.retain(|page, _| !["print.html", "404.html"].iter().any(|name| page.ends_with(name)));
    Ok(pages)
}

/// Where the tags of a page lead within the site.
fn links(text: &str) -> Vec<&str> {
    let tags = text.split('<').filter_map(|rest| rest.split('>').next());
    tags.filter(|tag| ["a ", "img ", "link ", "script "].iter().any(|name| tag.starts_with(name)))
        .filter_map(|tag| attribute(tag, " href=\"").or_else(|| attribute(tag, " src=\"")))
        .filter(|link| !link.contains(':') && !link.is_empty())
        .collect()
}

fn attribute<'a>(tag: &'a str, start: &str) -> Option<&'a str> {
    tag.split_once(start)?.1.split('"').next()
}

/// Copies what a page links to from the repository, if the site lacks it.
fn add_file(site: &Path, page: &Path, link: &str) -> Result<()> {
    let target = target(page, link);
    let (source, copy) = (tree::root()?.join(&target), site.join(&target));
    if source.is_file() && !copy.exists() {
        fs::create_dir_all(copy.parent().context("a file is in a folder")?)?;
        fs::copy(source, copy)?;
    }
    Ok(())
}

/// The path in the site that a link leads to.
fn target(page: &Path, link: &str) -> PathBuf {
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return page.to_owned();
    }
    let mut parts = PathBuf::new();
    for part in page.parent().unwrap_or(page).join(path).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

/// What is wrong with a link.
fn flaw(
    site: &Path,
    pages: &BTreeMap<PathBuf, String>,
    page: &Path,
    link: &str,
    hops: usize,
) -> Option<&'static str> {
    let target = target(page, link);
    let Some(text) = pages.get(&target) else {
        return (!site.join(&target).is_file()).then_some("there is no such file");
    };
    let heading = link.split_once('#').map_or("", |(_, heading)| heading);
    if let Some(next) = redirect(text) {
        let next = format!("{}#{heading}", next.split('#').next().unwrap_or_default());
        return match hops {
            0 => Some("it is redirected for ever"),
            _ => flaw(site, pages, &target, &next, hops - 1),
        };
    }
    let is_there = heading.is_empty() || text.contains(&format!(" id=\"{heading}\""));
    (!is_there).then_some("there is no such heading")
}

/// Where a page that only redirects leads.
fn redirect(text: &str) -> Option<&str> {
    let tag = text.split("<meta ").find(|tag| tag.contains("http-equiv=\"refresh\""))?;
    tag.split_once("URL=")?.1.split(['"', '\'', '>']).find(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_tags_only() {
        let text = "<p>href=\"no\"</p><a class=\"x\" href=\"a.html#b\">A</a><img src=\"c.svg\" alt=\"\">\n\
                    <a href=\"https://d\">D</a><a id=\"e\">E</a><link rel=\"icon\" href=\"f.svg\">";
        assert_eq!(links(text), ["a.html#b", "c.svg", "f.svg"]);
    }

    #[test]
    fn a_link_leads_to_a_page_a_heading_or_a_file() {
        let site = tempfile::tempdir().unwrap();
        let moved = "<meta http-equiv=\"refresh\" content=\"0; URL=a.html\">";
        let circle = "<meta http-equiv=\"refresh\" content=\"0; URL=circle.html\">";
        let all = [
            ("docs/a.html", "<h2 id=\"b\">B</h2>"),
            ("docs/moved.html", moved),
            ("docs/circle.html", circle),
            ("docs/404.html", ""),
        ];
        fs::create_dir_all(site.path().join("docs")).unwrap();
        for (path, text) in all {
            fs::write(site.path().join(path), text).unwrap();
        }
        fs::write(site.path().join("x.rs"), "").unwrap();
        let pages = pages(site.path()).unwrap();
        assert_eq!(pages.len(), 3);
        let page = Path::new("docs/a.html");
        for (link, expected) in [
            ("#b", None),
            ("a.html#b", None),
            ("moved.html#b", None),
            ("../x.rs", None),
            ("#c", Some("there is no such heading")),
            ("moved.html#c", Some("there is no such heading")),
            ("../y.rs", Some("there is no such file")),
            ("circle.html", Some("it is redirected for ever")),
        ] {
            assert_eq!(flaw(site.path(), &pages, page, link, HOPS), expected, "{link}");
        }
    }

    #[test]
    fn a_file_of_the_repository_is_added_once() {
        let site = tempfile::tempdir().unwrap();
        let page = Path::new("docs/guides/a.html");
        for link in ["../../xtask/src/site.rs", "../../xtask/src/no_such.rs", "#here"] {
            add_file(site.path(), page, link).unwrap();
        }
        assert!(site.path().join("xtask/src/site.rs").is_file());
        assert!(!site.path().join("xtask/src/no_such.rs").exists());
    }
}
