//! What can be called is shown: each public type has an example, and each public function has one
//! that calls it, or names by a link the item that has it.

use super::Finding;
use super::source::Source;
use crate::tree::{File, Tree};

/// Where it holds: paths that start so, and the module in which users find what is there.
const COVERED: &[(&str, &str)] = &[
    ("crates/lockfast/src/blocking/", "blocking::"),
    ("crates/lockfast/src/primitive/", ""),
    ("crates/lockfast/src/gate.rs", ""),
    ("crates/lockfast/src/lease/handle.rs", ""),
    ("crates/lockfast/src/lease/holder.rs", ""),
    ("crates/lockfast/src/lease/policy.rs", ""),
    ("crates/lockfast/src/lib.rs", ""),
    ("crates/lockfast/src/locker.rs", ""),
    ("crates/lockfast/src/migrate.rs", ""),
    ("crates/lockfast/src/diagnose/mod.rs", ""),
    ("crates/lockfast/src/optimistic.rs", "optimistic::"),
    ("crates/lockfast/src/testing.rs", "testing::"),
    ("crates/lockfast-core/src/value.rs", ""),
    ("crates/lockfast-fence/src/", "fence::"),
];

/// How often one may be sent on by "as there" until an example comes.
const LINKS_MAX: usize = 3;

/// A public type or function.
struct Item<'a> {
    file: &'a File,
    line: usize,
    module: &'static str,
    /// The type whose function it is, with `::`; otherwise nothing.
    owner: String,
    name: &'a str,
    is_type: bool,
    docs: Vec<&'a str>,
}

/// Each public type has an example, and each public function one that calls it, or a link to the item
/// whose example does.
pub(super) fn are_there(tree: &Tree) -> Vec<Finding> {
    let mut items = Vec::new();
    for file in tree.ending(".rs") {
        let covered = COVERED.iter().find(|(start, _)| file.path.starts_with(start));
        if let Some((_, module)) = covered {
            items.extend(items_of(file, module));
        }
    }
    items.iter().filter_map(|item| item.flaw(&items)).collect()
}

impl Item<'_> {
    fn flaw(&self, all: &[Item<'_>]) -> Option<Finding> {
        let name = format!("{}{}", self.owner, self.name);
        let message = if self.module == "blocking::" && self.code().any(|it| it.contains(".await"))
        {
            format!("the example of {name} awaits; show the blocking API")
        } else if self.is_type && self.code().next().is_none() {
            format!("{name} has no example")
        } else if !self.is_type && !self.is_shown(all, LINKS_MAX) {
            format!(
                "no example calls {name}; write one, or name by a link the item whose example does"
            )
        } else {
            return None;
        };
        Some(Finding::on(self.file, self.line, message))
    }

    /// Whether an example calls it: its own, that of an item that it names, or that of a function of
    /// the same name, which may send the reader on.
    fn is_shown(&self, all: &[Item<'_>], links: usize) -> bool {
        let goes_on = |item: &Item<'_>| links > 0 && item.is_shown(all, links - 1);
        self.calls(self.name)
            || self.named(all).any(|item| {
                item.calls(self.name) || !item.is_type && item.name == self.name && goes_on(item)
            })
    }

    /// The items that are named before the first heading. What stands below one is about errors.
    fn named<'a>(&'a self, all: &'a [Item<'a>]) -> impl Iterator<Item = &'a Item<'a>> {
        let prose = self.docs.iter().take_while(|line| !line.starts_with("# "));
        prose.flat_map(|line| links(line)).flat_map(|link| {
            let link = link.replace("Self::", &self.owner);
            let there = match link.strip_prefix("crate::") {
                Some(path) => path.to_owned(),
                None => format!("{}{}", self.module, link.trim_start_matches("super::")),
            };
            all.iter().filter(move |item| item.is_at(&there))
        })
    }

    /// Whether users find it at this path of the crate.
    fn is_at(&self, path: &str) -> bool {
        let Some(rest) = path.strip_suffix(self.name) else { return false };
        let Some(module) = rest.strip_suffix(&self.owner) else { return false };
        module == self.module
    }

    /// Whether a line of its example calls a function of this name, with or without type parameters.
    fn calls(&self, name: &str) -> bool {
        self.code().any(|line| {
            line.match_indices(name).any(|(at, _)| {
                let (before, after) = (&line[..at], &line[at + name.len()..]);
                !before.ends_with(is_identifier)
                    && (after.starts_with('(') || after.starts_with("::<"))
            })
        })
    }

    /// The lines of the examples that are shown, without comments.
    fn code(&self) -> impl Iterator<Item = &str> {
        let mut is_inside = false;
        self.docs.iter().filter_map(move |line| {
            if line.trim_start().starts_with("```") {
                is_inside = !is_inside;
                return None;
            }
            let is_shown = is_inside && !line.trim_start().starts_with("# ");
            is_shown.then(|| line.split("//").next().unwrap_or_default())
        })
    }
}

fn items_of<'a>(file: &'a File, module: &'static str) -> Vec<Item<'a>> {
    let source = Source::new(&file.path, &file.text);
    let mut items = Vec::new();
    let (mut owner, mut docs) = (String::new(), Vec::new());
    for (number, line) in (1..).zip(file.text.lines()) {
        let text = line.trim();
        if let Some(doc) = text.strip_prefix("///") {
            docs.push(doc.strip_prefix(' ').unwrap_or(doc));
            continue;
        }
        if line.starts_with("impl") {
            owner = implemented(line);
        }
        if let Some((name, is_type)) = public(text)
            && !source.is_in_test(number)
        {
            let owner = if line.starts_with(' ') { owner.clone() } else { String::new() };
            let docs = std::mem::take(&mut docs);
            items.push(Item { file, line: number, module, owner, name, is_type, docs });
        }
        // What is documented follows at once, or after attributes of several lines.
        if text.is_empty() || text.starts_with('}') {
            docs.clear();
        }
    }
    items
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name of a public type or function that is declared on this line, and whether it is a type.
fn public(line: &str) -> Option<(&str, bool)> {
    let rest = line.strip_prefix("pub ")?;
    let declared = |words: &[&str]| words.iter().find_map(|word| rest.strip_prefix(*word));
    let types = declared(&["struct ", "enum ", "trait "]).map(|rest| (rest, true));
    let (rest, is_type) =
        types.or_else(|| Some((declared(&["fn ", "async fn ", "const fn "])?, false)))?;
    let end = rest.find(|c| !is_identifier(c)).unwrap_or(rest.len());
    Some((&rest[..end], is_type))
}

/// The type of an `impl`, with `::`.
fn implemented(line: &str) -> String {
    let rest = line.split_once(" for ").map_or(&line["impl".len()..], |(_, rest)| rest);
    // Parameters stand before the type, and may stand behind it.
    let rest =
        if rest.starts_with('<') { rest.split_once("> ").map_or(rest, |it| it.1) } else { rest };
    let name = rest.trim().split(|c| !is_identifier(c)).next();
    format!("{}::", name.unwrap_or_default())
}

/// What the links of a line of documentation lead to.
fn links(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split('[').skip(1) {
        let Some((text, rest)) = part.split_once(']') else { continue };
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        found.push(target.map_or(text, |(target, _)| target).trim_matches('`').to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    const LOCKER: &str = "crates/lockfast/src/locker.rs";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        shown(&are_there(&sample(files)))
    }

    #[test]
    fn a_type_has_an_example_of_its_own() {
        let text = "/// ```\n/// a();\n/// ```\n#[derive(Debug)]\npub struct A;\n\n\
                    /// See [`A`].\npub enum B {\n}\n\nstruct C;\npub(crate) struct D;\n";
        assert_eq!(found(&[(LOCKER, text)]), [format!("{LOCKER}:8: B has no example")]);
        assert!(found(&[("crates/lockfast/src/store.rs", text)]).is_empty(), "not covered");
    }

    #[test]
    fn a_function_is_called_by_its_example() {
        let own = |code: &str| {
            format!(
                "impl A {{\n    /// ```\n    /// {code}\n    /// ```\n    pub fn go(self) {{}}\n}}\n"
            )
        };
        let none = [format!(
            "{LOCKER}:5: no example calls A::go; write one, or name by a link the item whose example does"
        )];
        for good in ["let b = a.go()?;", "go::<u8>(b);", "A::go(b).map(c)"] {
            assert!(found(&[(LOCKER, &own(good))]).is_empty(), "{good}");
        }
        for other in ["# a.go();", "a.cargo();", "b; // go()", "a.go;", "a.gone();"] {
            assert_eq!(found(&[(LOCKER, &own(other))]), none, "{other}");
        }
        assert!(found(&[(LOCKER, "#[cfg(test)]\nmod tests {\n    pub fn a() {}\n}\n")]).is_empty());
    }

    #[test]
    fn a_link_leads_to_an_example_that_calls_it() {
        let a = "/// ```\n/// A::new().go();\n/// ```\npub struct A;\n\nimpl A {\n\
                 \x20   /// Example: [`A`].\n    pub fn new() {}\n\n\
                 \x20   /// As [`new`](Self::new), [`A`].\n    #[must_use]\n    pub fn go() {}\n}\n";
        let b =
            "impl<T> B<T> {\n    /// As [`A::go`](crate::A::go).\n    pub async fn go() {}\n}\n";
        let blocking = "impl B {\n    /// As [`B::go`](crate::B::go).\n    pub fn go() {}\n}\n";
        let (rwlock, lock) =
            ("crates/lockfast/src/primitive/rwlock.rs", "crates/lockfast/src/blocking/lock.rs");
        assert!(found(&[(LOCKER, a), (rwlock, b), (lock, blocking)]).is_empty());
        for other in [
            a.replace("[`A`].", "A."),
            a.replace(".go()", ""),
            a.replace("/// As [`new`](Self::new), [`A`].", "/// # Errors\n    /// As [`A`]."),
        ] {
            assert!(!found(&[(LOCKER, &other)]).is_empty(), "{other}");
        }
        // An example of the async API does not show a function that is there without `async` only.
        let alone = blocking.replace("crate::B::go", "crate::A::new");
        assert_eq!(found(&[(LOCKER, a), (lock, &alone)]).len(), 1);
        // Two that name each other show nothing.
        let circle = "/// As [`b`].\npub fn a() {}\n\n/// As [`a`].\npub fn b() {}\n";
        assert_eq!(found(&[(LOCKER, circle)]).len(), 2);
    }

    #[test]
    fn what_blocks_is_shown_blocking() {
        let text = "/// ```\n/// go().await?;\n/// ```\npub fn go() {}\n";
        assert!(found(&[(LOCKER, text)]).is_empty());
        let path = "crates/lockfast/src/blocking/mod.rs";
        let message = format!("{path}:4: the example of go awaits; show the blocking API");
        assert_eq!(found(&[(path, text)]), [message]);
    }
}
