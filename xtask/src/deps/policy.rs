//! What `deny.toml` says, as far as it is checked here. A part that cargo-deny would obey and
//! that is not understood here is an error, so that the two never differ silently.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

/// The rules about dependencies.
#[derive(Debug)]
pub(super) struct Policy {
    /// The targets whose graph is looked at.
    pub(super) targets: Vec<String>,
    /// Banned packages, each with the reason.
    pub(super) banned: BTreeMap<String, String>,
    /// Packages of which several versions are known and accepted.
    pub(super) skipped: BTreeSet<String>,
    /// What several versions of a package are.
    pub(super) several_versions: Severity,
    licences: BTreeSet<String>,
    exceptions: BTreeMap<String, BTreeSet<String>>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Allow,
    Warn,
    Deny,
}

impl Policy {
    /// Reads the file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let file: Table = text.parse()?;
        let empty = Table::new();
        let part = |name: &str| file.get(name).and_then(Value::as_table).unwrap_or(&empty);
        let (licences, bans) = (part("licenses"), part("bans"));
        only(part("graph"), "graph", &["targets", "all-features"])?;
        only(licences, "licenses", &["allow", "exceptions"])?;
        only(bans, "bans", &["multiple-versions", "deny", "skip"])?;
        let exceptions = tables(licences, "exceptions")?
            .into_iter()
            .map(|row| Ok((name(row)?, strings(row, "allow")?.into_iter().collect())))
            .collect::<Result<_>>()?;
        let banned = tables(bans, "deny")?
            .into_iter()
            .map(|row| {
                let reason = row.get("reason").and_then(Value::as_str);
                let reason = reason.context("a ban gives its reason")?;
                Ok((name(row)?, reason.to_owned()))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            targets: strings(part("graph"), "targets")?,
            banned,
            skipped: tables(bans, "skip")?.into_iter().map(name).collect::<Result<_>>()?,
            several_versions: severity(bans.get("multiple-versions"))?,
            licences: strings(licences, "allow")?.into_iter().collect(),
            exceptions,
        })
    }

    /// The licences that this package may have.
    pub(super) fn licences_of(&self, package: &str) -> BTreeSet<&str> {
        let more = self.exceptions.get(package).into_iter().flatten();
        self.licences.iter().chain(more).map(String::as_str).collect()
    }
}

fn only(table: &Table, part: &str, known: &[&str]) -> Result<()> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => bail!("[{part}] {key} is not checked here; known are {}", known.join(", ")),
    }
}

fn severity(value: Option<&Value>) -> Result<Severity> {
    match value.map(Value::as_str) {
        None | Some(Some("warn")) => Ok(Severity::Warn),
        Some(Some("deny")) => Ok(Severity::Deny),
        Some(Some("allow")) => Ok(Severity::Allow),
        Some(_) => bail!("multiple-versions is one of allow, warn, deny"),
    }
}

fn strings(table: &Table, key: &str) -> Result<Vec<String>> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let rows = value.as_array().with_context(|| format!("{key} is a list"))?;
    rows.iter()
        .map(|row| {
            let text = row.as_str().with_context(|| format!("{key} is a list of text"))?;
            Ok(text.to_owned())
        })
        .collect()
}

fn tables<'a>(table: &'a Table, key: &str) -> Result<Vec<&'a Table>> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let rows = value.as_array().with_context(|| format!("{key} is a list"))?;
    rows.iter()
        .map(|row| row.as_table().with_context(|| format!("{key} is a list of tables")))
        .collect()
}

fn name(row: &Table) -> Result<String> {
    let name = row.get("crate").and_then(Value::as_str);
    let name = name.context("a row names its package as crate = \"…\"")?;
    if name.contains('@') {
        bail!("{name}: a version is not understood here; name the package alone");
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_widens_what_one_package_may_have() {
        let policy = Policy::parse(
            "[licenses]\nallow = [\"MIT\"]\nexceptions = [{ crate = \"a\", allow = [\"Zlib\"] }]",
        )
        .unwrap();
        assert_eq!(policy.licences_of("a"), BTreeSet::from(["MIT", "Zlib"]));
        assert_eq!(policy.licences_of("b"), BTreeSet::from(["MIT"]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "[bans]\nhighlight = \"all\"",
            "[bans]\nmultiple-versions = \"maybe\"",
            "[bans]\ndeny = [\"a\"]",
            "[bans]\ndeny = [{ crate = \"a\" }]",
            "[bans]\ndeny = [{ crate = \"a@1\", reason = \"x\" }]",
            "[licenses]\nallow = \"MIT\"",
            "[licenses",
        ] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_policy_of_this_repository_is_understood() {
        let file = crate::tree::root().unwrap().join("deny.toml");
        let policy = Policy::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert!(policy.banned.contains_key("openssl-sys"));
        assert!(policy.licences_of("any").contains("MIT"));
    }
}
