//! What the command is made of: itself and every package that is compiled into it, as cargo resolves
//! them. Build scripts, tests and their dependencies are not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
use toml::Table;

use crate::step::Step;
use crate::tree;

/// The package with the command.
const ROOT: &str = "lockfast-cli";

/// One package.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: String,
    /// The checksum of a package that comes from a registry.
    pub(super) checksum: Option<String>,
    /// Whether somebody else wrote it.
    pub(super) is_foreign: bool,
    /// Where its source is.
    pub(super) folder: PathBuf,
    /// Which others it uses, by their place in the graph.
    pub(super) uses: Vec<usize>,
}

/// All of them; the command comes first.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) components: Vec<Component>,
}

impl Graph {
    /// Asks cargo.
    pub(super) fn read(target: &str) -> Result<Self> {
        let words = ["metadata", "--format-version=1", "--locked", "--filter-platform", target];
        let answer = serde_json::from_str(&Step::cargo(&words).read()?)?;
        let lock = std::fs::read_to_string(tree::root()?.join("Cargo.lock"))?;
        // The metadata are of the whole workspace, whose tests switch on more features.
        let words =
            ["tree", "--locked", "--package", ROOT, "--edges", "normal", "--target", target];
        let compiled = Step::cargo(&[&words[..], &["--prefix", "none"]].concat()).read()?;
        Self::new(&answer, &compiled, &lock)
    }

    /// Follows the dependencies of the command to those that are compiled into it, which are given a
    /// line each.
    pub(super) fn new(metadata: &Value, compiled: &str, lock: &str) -> Result<Self> {
        let packages = by_id(&metadata["packages"])?;
        let nodes = by_id(&metadata["resolve"]["nodes"])?;
        let is_root = |package: &&&Value| package["name"] == ROOT;
        let root = packages.values().find(is_root).context("lockfast-cli is not there")?;
        let mut order = vec![root["id"].as_str().unwrap_or_default()];
        let compiled: BTreeSet<String> = compiled.lines().map(first_words).collect();
        let is_compiled = |id: &str| {
            let package = packages.get(id).map(|it| (it["name"].as_str(), it["version"].as_str()));
            matches!(package, Some((Some(name), Some(version)))
                if compiled.contains(&format!("{name} v{version}")))
        };
        let mut known: BTreeSet<&str> = order.iter().copied().collect();
        let mut at = 0;
        while let Some(id) = order.get(at).copied() {
            let next = used_by(nodes.get(id).context("a package is not resolved")?);
            order.extend(next.into_iter().filter(|id| is_compiled(id) && known.insert(id)));
            at += 1;
        }
        // By name behind the command, so that the files do not depend on the order of ids.
        order[1..].sort_by_key(|id| {
            packages.get(id).map(|package| (package["name"].as_str(), package["version"].as_str()))
        });
        let place: BTreeMap<&str, usize> = order.iter().copied().zip(0..).collect();
        let checksums = checksums(lock)?;
        let components = order.iter().map(|id| {
            let package = packages.get(id).context("a package is not listed")?;
            let uses = used_by(nodes.get(id).context("a package is not resolved")?);
            let uses = uses.iter().filter_map(|id| place.get(id).copied()).collect();
            component(package, uses, &checksums)
        });
        Ok(Self { components: components.collect::<Result<_>>()? })
    }

    /// The command.
    pub(super) fn root(&self) -> &Component {
        &self.components[0]
    }
}

/// Name and version of a line of `cargo tree`, which may go on with a path and marks.
fn first_words(line: &str) -> String {
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn by_id(list: &Value) -> Result<BTreeMap<&str, &Value>> {
    let list = list.as_array().context("cargo metadata lacks a list")?;
    Ok(list.iter().filter_map(|value| Some((value["id"].as_str()?, value))).collect())
}

/// The packages that are compiled into this one.
fn used_by(node: &Value) -> Vec<&str> {
    let is_normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let none = const { &Vec::new() };
    let dependencies = node["deps"].as_array().unwrap_or(none).iter().filter(is_normal);
    dependencies.filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

fn component(
    package: &Value,
    uses: Vec<usize>,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Component> {
    let text = |key: &str| {
        let found = package[key].as_str().map(str::to_owned);
        found.with_context(|| format!("a package has no {key}: {}", package["name"]))
    };
    let (name, version) = (text("name")?, text("version")?);
    Ok(Component {
        checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
        // The old way to write it.
        licence: text("license")?
            .replace('/', " OR ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        is_foreign: package["source"].is_string(),
        folder: Path::new(&text("manifest_path")?).parent().map(Path::to_owned).unwrap_or_default(),
        name,
        version,
        uses,
    })
}

/// The checksums in the lock file, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: Table = lock.parse().context("Cargo.lock is not understood")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let entry = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.context("Cargo.lock has no packages")?.iter().filter_map(entry).collect())
}

/// A command that uses two packages, one of ours, and builds and tests with others.
#[cfg(test)]
pub(super) fn sample(folder: &Path) -> Graph {
    use serde_json::json;
    let package = |name: &str, licence: &str, source: Option<&str>| {
        let manifest = folder.join(name).join("Cargo.toml");
        json!({
            "id": format!("id of {name}"), "name": name, "version": "1.2.3", "license": licence,
            "source": source, "manifest_path": manifest,
        })
    };
    let dependency = |name: &str, kind: Option<&str>| json!({ "pkg": format!("id of {name}"), "dep_kinds": [{ "kind": kind }] });
    let node =
        |name: &str, deps: Vec<Value>| json!({ "id": format!("id of {name}"), "deps": deps });
    let registry = Some("registry");
    let metadata = json!({
        "packages": [
            package("serde", "MIT / Apache-2.0", registry),
            package("tests-want-it", "MIT", registry),
            package("cc", "MIT", registry),
            package("lockfast", "MIT OR Apache-2.0", None),
            package("proptest", "MIT", registry),
            package(ROOT, "MIT OR Apache-2.0", None),
        ],
        "resolve": { "nodes": [
            node(ROOT, vec![
                dependency("serde", None),
                dependency("lockfast", None),
                dependency("proptest", Some("dev")),
            ]),
            node("lockfast", vec![dependency("serde", None), dependency("cc", Some("build"))]),
            node("serde", vec![dependency("tests-want-it", None)]),
            node("tests-want-it", vec![]),
            node("cc", vec![]),
            node("proptest", vec![]),
        ] },
    });
    let lock = "[[package]]\nname = \"serde\"\nversion = \"1.2.3\"\nchecksum = \"abc\"\n";
    let compiled =
        format!("{ROOT} v1.2.3 (/a/path)\nlockfast v1.2.3 (/b)\nserde v1.2.3\nserde v1.2.3 (*)\n");
    Graph::new(&metadata, &compiled, lock).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_compiled_in_counts() {
        let graph = sample(Path::new("/nowhere"));
        let names: Vec<&str> = graph.components.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, [ROOT, "lockfast", "serde"]);
        assert_eq!(graph.root().uses, [2, 1]);
        let serde = &graph.components[2];
        assert_eq!(serde.licence, "MIT OR Apache-2.0");
        assert_eq!(serde.checksum.as_deref(), Some("abc"));
        assert!(serde.is_foreign && !graph.root().is_foreign);
        assert_eq!(serde.folder, Path::new("/nowhere/serde"));
    }

    #[test]
    fn this_repository_has_a_graph() {
        let graph = Graph::read("x86_64-unknown-linux-gnu").unwrap();
        let has = |name: &str| graph.components.iter().any(|component| component.name == name);
        assert!(has("tokio") && has("lockfast-core") && has("lockfast-torture"));
        assert!(!has("proptest") && !has("xtask") && !has("nu-ansi-term"));
    }
}
