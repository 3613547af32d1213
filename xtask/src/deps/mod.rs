//! The dependencies against `deny.toml`, with nothing to install. The file is cargo-deny's own,
//! so whoever has that tool can run it too; what is not checked here (advisories) it checks.

mod licence;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::step::Step;
use crate::{refuse_arguments, tree};
use policy::{Policy, Severity};

const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// One package of the dependency graph.
#[derive(Debug, Default)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
}

/// Checks the dependency graph of the workspace.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    let file = tree::root()?.join("deny.toml");
    let text = std::fs::read_to_string(file).context("deny.toml is unreadable")?;
    let policy = Policy::parse(&text).context("deny.toml is not understood")?;
    let packages = packages(&policy)?;
    let repeated = repeated(&packages, &policy);
    let mut flaws = flaws(&packages, &policy);
    match policy.several_versions {
        Severity::Deny => flaws.extend(repeated),
        Severity::Warn => repeated.iter().for_each(|line| eprintln!("note: {line}")),
        Severity::Allow => {}
    }
    for flaw in &flaws {
        eprintln!("{flaw}");
    }
    match flaws.len() {
        0 => Ok(()),
        count => bail!("{count} found; repeat it with\n  cargo xtask deps"),
    }
}

/// The graph as cargo resolves it for the targets that the policy names.
fn packages(policy: &Policy) -> Result<Vec<Package>> {
    let mut arguments = vec!["metadata", "--format-version=1", "--locked", "--all-features"];
    for target in &policy.targets {
        arguments.extend(["--filter-platform", target]);
    }
    let answer = Step::cargo(&arguments).read()?;
    let answer = serde_json::from_str(&answer).context("cargo metadata is not JSON")?;
    read_packages(&answer)
}

fn read_packages(answer: &Value) -> Result<Vec<Package>> {
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let nodes = answer["resolve"]["nodes"].as_array().context("cargo metadata resolved nothing")?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let all = answer["packages"].as_array().context("cargo metadata lists no packages")?;
    all.iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .map(|package| {
            Ok(Package {
                name: text(package, "name").context("a package has no name")?,
                version: text(package, "version").context("a package has no version")?,
                licence: text(package, "license"),
                source: text(package, "source"),
            })
        })
        .collect()
}

/// What breaks the policy, one line each.
fn flaws(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut flaws = Vec::new();
    for package in packages {
        let Package { name, version, .. } = package;
        if let Some(reason) = policy.banned.get(name) {
            flaws.push(format!("{name} {version} is banned: {reason}"));
        }
        if let Some(source) = &package.source
            && source != PUBLIC_REGISTRY
        {
            flaws.push(format!("{name} {version} comes from {source}, not from crates.io"));
        }
        let allowed = policy.licences_of(name);
        match &package.licence {
            None => flaws.push(format!("{name} {version} states no licence")),
            Some(licence) => match licence::permits(licence, &allowed) {
                Ok(true) => {}
                Ok(false) => flaws.push(format!("{name} {version}: {licence} is not allowed")),
                Err(error) => flaws.push(format!("{name} {version}: {licence:?}: {error}")),
            },
        }
    }
    flaws
}

/// Packages that are there in several versions.
fn repeated(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let known = versions.entry(&package.name).or_default();
        known.insert(&package.version);
    }
    versions
        .into_iter()
        .filter(|(name, versions)| versions.len() > 1 && !policy.skipped.contains(*name))
        .map(|(name, versions)| {
            let versions: Vec<&str> = versions.into_iter().collect();
            format!("{name} is there in versions {}", versions.join(" and "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "special", allow = ["Zlib"] }]
        [bans]
        multiple-versions = "warn"
        deny = [{ crate = "openssl-sys", reason = "rustls is used" }]
        skip = [{ crate = "twice-known" }]
    "#;

    fn package(name: &str, version: &str, licence: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            licence: Some(licence.into()),
            source: Some(PUBLIC_REGISTRY.into()),
        }
    }

    #[test]
    fn what_breaks_the_policy_is_named() {
        let policy = Policy::parse(POLICY).unwrap();
        let mut foreign = package("foreign", "1.0.0", "MIT");
        foreign.source = Some("git+https://example.org/x".into());
        let packages = [
            package("fine", "1.0.0", "MIT OR GPL-3.0"),
            package("special", "1.0.0", "Zlib"),
            package("openssl-sys", "0.9.0", "MIT"),
            package("copyleft", "2.0.0", "GPL-3.0"),
            Package { name: "bare".into(), ..Package::default() },
            foreign,
        ];
        assert_eq!(
            flaws(&packages, &policy),
            [
                "openssl-sys 0.9.0 is banned: rustls is used",
                "copyleft 2.0.0: GPL-3.0 is not allowed",
                "bare  states no licence",
                "foreign 1.0.0 comes from git+https://example.org/x, not from crates.io",
            ]
        );
    }

    #[test]
    fn several_versions_are_told() {
        let policy = Policy::parse(POLICY).unwrap();
        let packages = [
            package("a", "1.0.0", "MIT"),
            package("a", "2.0.0", "MIT"),
            package("twice-known", "1.0.0", "MIT"),
            package("twice-known", "2.0.0", "MIT"),
        ];
        assert_eq!(repeated(&packages, &policy), ["a is there in versions 1.0.0 and 2.0.0"]);
    }

    #[test]
    fn only_what_is_used_counts() {
        let answer = serde_json::json!({
            "packages": [
                { "id": "a", "name": "a", "version": "1.0.0", "license": "MIT", "source": null },
                { "id": "b", "name": "b", "version": "1.0.0", "license": null, "source": null },
            ],
            "resolve": { "nodes": [{ "id": "a" }] },
        });
        let packages = read_packages(&answer).unwrap();
        assert_eq!(packages.len(), 1);
        assert_eq!(packages[0].name, "a");
    }
}
