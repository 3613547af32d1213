//! Packages as a registry would take them: all that is published can be packaged, says what a registry
//! shows, and carries its licences. Nothing is built.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::step::Step;
use crate::{refuse_arguments, tree};

/// What every package holds beside its code.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// What a manifest says for people who look for a package.
const FACTS: [&str; 6] =
    ["description", "license", "readme", "documentation", "keywords", "categories"];

/// Packages everything that is published, and looks at the outcome.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    let answer =
        Step::cargo(&["metadata", "--format-version=1", "--no-deps", "--locked"]).read()?;
    let answer: Value = serde_json::from_str(&answer).context("cargo metadata is not JSON")?;
    let all = answer["packages"].as_array().context("cargo metadata lists no packages")?;
    let (published, private): (Vec<&Value>, Vec<&Value>) = all.iter().partition(is_published);
    let mut flaws: Vec<String> = published.iter().flat_map(|package| flaws(package)).collect();

    let mut words = vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"];
    words.extend(["--locked", "--offline"]);
    for package in &private {
        words.extend(["--exclude", text(package, "name")]);
    }
    Step::cargo(&words).run()?;
    for package in &published {
        flaws.extend(missing(package, &contents(package)?));
    }
    for flaw in &flaws {
        eprintln!("{flaw}");
    }
    match flaws.len() {
        0 => Ok(()),
        count => bail!("{count} found; repeat it with\n  cargo xtask package"),
    }
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &&Value) -> bool {
    package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// What is wrong with a manifest, one line each.
fn flaws(package: &Value) -> Vec<String> {
    let name = text(package, "name");
    let is_said = |fact: &&str| match &package[*fact] {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    let mut flaws: Vec<String> = FACTS
        .iter()
        .filter(|fact| !is_said(fact))
        .map(|fact| format!("{name}: the manifest has no {fact}"))
        .collect();
    let none = Vec::new();
    for dependency in package["dependencies"].as_array().unwrap_or(&none) {
        let is_ours = dependency["path"].is_string();
        let (other, has_version) = (text(dependency, "name"), text(dependency, "req") != "*");
        match dependency["kind"].as_str() {
            Some("dev") if is_ours && has_version => flaws.push(format!(
                "{name}: the dev-dependency {other} has a version; name its path alone"
            )),
            Some("dev") => {}
            _ if is_ours && !has_version => flaws.push(format!(
                "{name}: the dependency {other} has no version; a registry needs one"
            )),
            _ => {}
        }
    }
    flaws
}

/// The paths in a package that was just made.
fn contents(package: &Value) -> Result<String> {
    let file = format!("package/{}-{}.crate", text(package, "name"), text(package, "version"));
    let path = tree::target()?.join(file);
    Step::program("tar", &["-tzf", &path.to_string_lossy()]).read()
}

fn missing(package: &Value, contents: &str) -> Vec<String> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let is_there =
        |file: &&str| contents.lines().any(|line| line == format!("{name}-{version}/{file}"));
    FILES
        .iter()
        .filter(|file| !is_there(file))
        .map(|file| format!("{name}: the package has no {file}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package() -> Value {
        json!({
            "name": "a", "version": "1.0.0", "publish": null, "description": "It is there",
            "license": "MIT", "readme": "README.md", "documentation": "https://example.org",
            "keywords": ["lock"], "categories": ["concurrency"],
            "dependencies": [
                { "name": "b", "req": "^1.0", "kind": null, "path": "crates/b" },
                { "name": "c", "req": "*", "kind": "dev", "path": "crates/c" },
                { "name": "serde", "req": "^1.0", "kind": "dev" },
            ],
        })
    }

    #[test]
    fn a_manifest_says_what_a_registry_shows() {
        assert!(flaws(&package()).is_empty());
        let mut bare = package();
        bare["readme"] = Value::Null;
        bare["keywords"] = json!([]);
        let expected = ["a: the manifest has no readme", "a: the manifest has no keywords"];
        assert_eq!(flaws(&bare), expected);
    }

    #[test]
    fn circles_are_refused() {
        let mut circular = package();
        circular["dependencies"][1]["req"] = json!("^1.0");
        assert!(flaws(&circular)[0].contains("dev-dependency c has a version"));
        let mut unversioned = package();
        unversioned["dependencies"][0]["req"] = json!("*");
        assert!(flaws(&unversioned)[0].contains("dependency b has no version"));
    }

    #[test]
    fn a_package_carries_its_licences() {
        let all: Vec<String> = FILES.iter().map(|file| format!("a-1.0.0/{file}")).collect();
        assert!(missing(&package(), &all.join("\n")).is_empty());
        let without = all.join("\n").replace("a-1.0.0/LICENSE-MIT", "a-1.0.0/src/LICENSE-MIT");
        assert_eq!(missing(&package(), &without), ["a: the package has no LICENSE-MIT"]);
    }

    #[test]
    fn what_is_private_is_not_packaged() {
        assert!(is_published(&&package()));
        assert!(!is_published(&&json!({ "publish": [] })));
    }
}
