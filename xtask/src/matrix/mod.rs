//! What every store promises and which primitives it has, as tables in the docs. The stores say it
//! themselves: `crates/lockfast/examples/stores.rs` asks each for each primitive, without a server.

mod tested;

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::page;
use crate::step::{Step, timed};
use crate::tidy::Finding;
use crate::tree::{self, Tree};

/// The page with the tables.
pub(crate) const PAGE: &str = "docs/stores.md";
const MATRIX: &str = "cargo xtask matrix";
const GUARANTEES: &str = "cargo xtask matrix, guarantees";

/// A store, as it describes itself.
pub(crate) struct Store {
    /// What its URL starts with.
    url: String,
    facts: Value,
    primitives: Vec<Primitive>,
}

/// What became of asking a store for a primitive.
struct Primitive {
    name: String,
    refusal: Option<String>,
}

/// Prints the tables, or writes them into the page.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let writes = match arguments {
        [] => false,
        [argument] if argument == "--write" => true,
        _ => bail!("matrix takes --write and nothing else"),
    };
    let stores = timed("asking the stores", ask)?;
    for (mark, text) in sections(&stores) {
        println!("{text}");
        if writes {
            page::write(PAGE, mark, &text)?;
        }
    }
    Ok(())
}

/// The page has the tables that the stores give, and what they call supported is tested.
pub(crate) fn findings(tree: &Tree) -> Result<Vec<Finding>> {
    let stores = ask()?;
    let mut findings = unasked(tree, &stores);
    findings.extend(stale(tree, &stores));
    findings.extend(tested::findings(tree, &stores));
    Ok(findings)
}

/// Backends whose stores nobody asked.
fn unasked(tree: &Tree, stores: &[Store]) -> Vec<Finding> {
    let folders = tree.folders("crates", "lockfast-backend-").into_iter();
    let is_asked = |folder: &String| {
        let scheme = folder.rsplit('-').next().unwrap_or(folder);
        stores.iter().any(|store| store.url.starts_with(&format!("{scheme}:")))
    };
    let missing = folders.filter(|folder| !is_asked(folder));
    missing.map(|folder| Finding::of(PAGE, format!("lacks the stores of {folder}"))).collect()
}

fn stale(tree: &Tree, stores: &[Store]) -> Vec<Finding> {
    let page = tree.file(PAGE).map_or("", |file| &file.text);
    let is_stale = |(mark, text): &(&str, String)| page::section(page, mark) != Some(text);
    sections(stores)
        .into_iter()
        .filter(is_stale)
        .map(|_| {
            Finding::of(PAGE, format!("is not what the stores say; {MATRIX} --write mends it"))
        })
        .take(1)
        .collect()
}

fn sections(stores: &[Store]) -> [(&'static str, String); 2] {
    [(MATRIX, matrix(stores)), (GUARANTEES, guarantees(stores))]
}

/// Has the stores describe themselves. The whole workspace is named so that what is built for this
/// is what the tests use.
fn ask() -> Result<Vec<Store>> {
    let build = ["build", "--quiet", "--workspace", "--locked", "--example", "stores"];
    Step::cargo(&build).run()?;
    let program = tree::target()?.join("debug/examples/stores");
    let said = Step::program(&program.to_string_lossy(), &[]).read()?;
    read(&serde_json::from_str(&said).context("the stores printed no JSON")?)
}

fn read(said: &Value) -> Result<Vec<Store>> {
    let stores = said.as_array().context("the stores printed no list")?;
    stores.iter().map(read_store).collect()
}

fn read_store(facts: &Value) -> Result<Store> {
    let primitives = facts["primitives"].as_array().context("a store has no primitives")?;
    let primitive = |said: &Value| {
        let refusal = said["refusal"].as_str().map(str::to_owned);
        Ok(Primitive { name: text(said, "name")?.to_owned(), refusal })
    };
    Ok(Store {
        url: text(facts, "url")?.to_owned(),
        primitives: primitives.iter().map(primitive).collect::<Result<_>>()?,
        facts: facts.clone(),
    })
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    value[name].as_str().with_context(|| format!("there is no {name} in {value}"))
}

/// The primitives down, the stores across, and why each refusal.
fn matrix(stores: &[Store]) -> String {
    let mut table = String::from("| primitive |");
    for store in stores {
        let _ = write!(table, " `{}` |", store.url);
    }
    table.push_str(" groups of the suite |\n|---|");
    table.push_str(&"---|".repeat(stores.len() + 1));
    table.push('\n');
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    let names = stores.first().map_or(&[][..], |store| &store.primitives);
    for (row, Primitive { name, .. }) in names.iter().enumerate() {
        let _ = write!(table, "| {name} |");
        for store in stores {
            let refusal = store.primitives.get(row).and_then(|there| there.refusal.as_ref());
            let Some(refusal) = refusal else {
                table.push_str(" yes |");
                continue;
            };
            let reason = format!("`{}` {}", store.url, refusal.trim_start_matches("it "));
            let number = reasons.iter().position(|(known, _)| *known == reason);
            let number = number.unwrap_or_else(|| {
                reasons.push((reason, Vec::new()));
                reasons.len() - 1
            });
            reasons[number].1.push(name);
            let _ = write!(table, " no ({}) |", number + 1);
        }
        let _ = writeln!(table, " {} |", tested::groups(name).join(", "));
    }
    table.push_str("\nWhat is refused, and why:\n\n");
    for (number, (reason, names)) in (1..).zip(&reasons) {
        let _ = writeln!(table, "{number}. {}: {reason}.", names.join(", "));
    }
    table
}

fn guarantees(stores: &[Store]) -> String {
    let mut table = String::from(
        "| store | guarantee | because | reach | order | what ends the lease of a dead holder | fence \
         survives | ttl |\n|---|---|---|---|---|---|---|---|\n",
    );
    for store in stores {
        let _ = write!(table, "| `{}` |", store.url);
        for fact in ["guarantee", "because", "reach", "order", "expiry", "fence", "ttl"] {
            let _ = write!(table, " {} |", store.facts[fact].as_str().unwrap_or("?"));
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::sample;
    use serde_json::json;

    /// Two stores, one of which has no values.
    pub(super) fn two_stores() -> Vec<Store> {
        let store = |url: &str, refusal: Option<&str>| {
            json!({
                "url": url, "guarantee": "efficiency", "because": "a test says so",
                "reach": "one process", "order": "none", "expiry": "its ttl",
                "fence": "crashes", "ttl": "1s to 2s",
                "primitives": [
                    { "name": "Mutex", "refusal": null },
                    { "name": "SharedValue", "refusal": refusal },
                    { "name": "Latch", "refusal": refusal },
                ],
            })
        };
        let lacking = store("redlock:", Some("it has no values: nobody decides"));
        read(&json!([store("memory:", None), lacking])).unwrap()
    }

    #[test]
    fn refusals_are_numbered_by_their_reason() {
        let text = matrix(&two_stores());
        assert!(text.starts_with("| primitive | `memory:` | `redlock:` | groups of the suite |\n"));
        assert!(text.contains("| Mutex | yes | yes | `exclusion`"), "{text}");
        assert!(text.contains("| Latch | yes | no (1) | `shared_state` |\n"), "{text}");
        let reason = "1. SharedValue, Latch: `redlock:` has no values: nobody decides.\n";
        assert!(text.ends_with(reason), "{text}");
    }

    #[test]
    fn a_backend_that_was_not_asked_is_found() {
        let tree = sample(&[
            ("crates/lockfast-backend-redlock/README.md", ""),
            ("crates/lockfast-backend-nosuch/README.md", ""),
        ]);
        let found = unasked(&tree, &two_stores());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["docs/stores.md: lacks the stores of crates/lockfast-backend-nosuch"]);
    }

    #[test]
    fn a_page_that_is_not_what_the_stores_say_is_found() {
        let stores = two_stores();
        let mut page = String::from("# Stores\n");
        for (mark, text) in sections(&stores) {
            page.push_str(&format!("<!-- begin: {mark} -->\n{text}<!-- end: {mark} -->\n"));
        }
        assert!(stale(&sample(&[(PAGE, &page)]), &stores).is_empty());
        let edited = page.replace("no (1)", "yes");
        assert_eq!(stale(&sample(&[(PAGE, &edited)]), &stores).len(), 1);
        assert_eq!(stale(&sample(&[]), &stores).len(), 1);
    }
}
