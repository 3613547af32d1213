//! The suite that every store passes, on every version of its servers that can be had: what the
//! machine's packages bring, and what Debian's unstable release has. The tables "Versions tested" of
//! the stores' pages are made by this and nothing else.

mod place;

use std::fmt::Write as _;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

use crate::step::{Step, timed};
use crate::suite::{Binary, build, in_lanes};
use crate::{page, setup, tree};
use place::Place;

/// What the marks on the pages say.
const COMMAND: &str = "cargo xtask versions";

/// A version of a server that a store is tested with.
struct Row {
    store: &'static str,
    server: &'static str,
    place: Place,
    /// Makes the server tell its version, at the root of the repository.
    version: &'static str,
    /// Which of the store's suites are for this server.
    suites: fn(&str) -> bool,
}

const ALL: fn(&str) -> bool = |_| true;
const REDIS: &str = "redis-server --version";
const POSTGRES: &str =
    "\"$(ls -d /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)\" --version";
const MARIADB: &str = "mariadbd --version";
const ETCD: &str = "etcd --version";
const MYSQL: &str = "target/servers/mysql/bin/mysqld --version";
// The archive of its classes has a name with the version too.
const ZOOKEEPER: &str = r"ls /usr/share/java | sed -n 's/^zookeeper-\([0-9].*\)\.jar$/\1/p'";

const ROWS: &[Row] = &[
    row("redis", "Redis", Place::Machine, REDIS, ALL),
    row("redis", "Redis", Place::Unstable, REDIS, ALL),
    row("redis", "Valkey", Place::UnstableValkey, REDIS, ALL),
    row("redlock", "Redis", Place::Machine, REDIS, ALL),
    row("redlock", "Redis", Place::Unstable, REDIS, ALL),
    row("redlock", "Valkey", Place::UnstableValkey, REDIS, ALL),
    row("postgres", "PostgreSQL", Place::Machine, POSTGRES, ALL),
    row("postgres", "PostgreSQL", Place::Unstable, POSTGRES, ALL),
    row("mysql", "MariaDB", Place::Machine, MARIADB, |suite| !suite.contains("mysql")),
    row("mysql", "MariaDB", Place::Unstable, MARIADB, |suite| !suite.contains("mysql")),
    row("mysql", "MySQL", Place::Unpacked, MYSQL, |suite| suite.contains("mysql")),
    row("etcd", "etcd", Place::Machine, ETCD, ALL),
    row("etcd", "etcd", Place::Unstable, ETCD, ALL),
    row("zookeeper", "ZooKeeper", Place::Machine, ZOOKEEPER, ALL),
    row("zookeeper", "ZooKeeper", Place::Unstable, ZOOKEEPER, ALL),
];

const fn row(
    store: &'static str,
    server: &'static str,
    place: Place,
    version: &'static str,
    suites: fn(&str) -> bool,
) -> Row {
    Row { store, server, place, version, suites }
}

/// Runs the suites of all stores, or of those that are named, and writes their tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let stores = chosen(arguments)?;
    setup::run(&[])?;
    let rows: Vec<&Row> = ROWS.iter().filter(|row| stores.contains(&row.store)).collect();
    for row in &rows {
        row.place.prepare()?;
    }
    let packages: Vec<String> = stores.iter().map(|store| package(store)).collect();
    let selection: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    let suites = timed("build", || {
        let mut binaries = build(&selection)?;
        binaries.retain(|binary| binary.target.starts_with("conformance"));
        binaries.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(binaries)
    })?;
    if let Some(row) = rows.iter().find(|row| row.suites(&suites).next().is_none()) {
        bail!("{} has no suite on {}", package(row.store), row.server);
    }
    let failures = Mutex::new(Vec::new());
    in_lanes(rows.clone(), |row| {
        let failed = row.run(&suites)?.into_iter().map(|line| (row.store, line));
        failures.lock().ok().context("a thread panicked")?.extend(failed);
        Ok(())
    })?;
    let failures = failures.into_inner().ok().context("a thread panicked")?;
    for store in stores {
        if failures.iter().any(|(failed, _)| *failed == store) {
            continue;
        }
        let path = format!("crates/{}/README.md", package(store));
        page::write(&path, COMMAND, &table(store, &rows, &suites)?)?;
    }
    if !failures.is_empty() {
        let lines: Vec<String> = failures.into_iter().map(|(_, line)| line).collect();
        bail!("the tables of these stores are not written\n{}", lines.join("\n"));
    }
    Ok(())
}

/// The stores of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    let mut known: Vec<&str> = ROWS.iter().map(|row| row.store).collect();
    known.dedup();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("versions takes {}, not {name:?}", known.join(", "));
    }
    known.retain(|store| names.is_empty() || names.iter().any(|name| name == store));
    Ok(known)
}

fn package(store: &str) -> String {
    format!("lockfast-backend-{store}")
}

impl Row {
    /// Runs the store's suites there; what failed.
    fn run(&self, suites: &[Binary]) -> Result<Vec<String>> {
        let (server, wrapper) = (self.server()?, self.place.wrapper()?);
        let mut failed = Vec::new();
        for suite in self.suites(suites) {
            let outcome = suite.run(&wrapper, &[])?;
            let line = format!("{} on {server}: {}", suite.name(), outcome.tally);
            if outcome.failure.is_none() {
                eprintln!("  ok     {line} ({:.1} s)", outcome.time.as_secs_f64());
                continue;
            }
            let name = format!("{} {} {server}.log", self.store, suite.target).replace(' ', "-");
            let log = tree::target()?.join("versions").join(name);
            std::fs::create_dir_all(tree::target()?.join("versions"))?;
            std::fs::write(&log, &outcome.said)?;
            eprintln!("  FAILED {line}");
            failed.push(format!("{line}; see {}", log.display()));
        }
        Ok(failed)
    }

    fn suites<'a>(&self, all: &'a [Binary]) -> impl Iterator<Item = &'a Binary> {
        let (package, is_for_it) = (package(self.store), self.suites);
        all.iter().filter(move |suite| suite.package == package && is_for_it(&suite.target))
    }

    /// `Redis 7.0.15`, as the server tells.
    fn server(&self) -> Result<String> {
        let mut words = self.place.wrapper()?;
        words.extend(["sh", "-c", self.version].map(str::to_owned));
        let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let said = Step::program(&words[0], &rest).read()?;
        let version = version_in(&said);
        Ok(format!("{} {}", self.server, version.with_context(|| format!("what is {said:?}?"))?))
    }
}

/// The first version in what a server says of itself, without what a packager has added to it.
fn version_in(said: &str) -> Option<&str> {
    let words = said.split_whitespace().map(|word| word.trim_start_matches("v="));
    let mut found = words.map(|word| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        &word[..end]
    });
    found.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

fn table(store: &str, rows: &[&Row], suites: &[Binary]) -> Result<String> {
    let mut text = String::from("| server | from | suites that pass |\n|---|---|---|\n");
    for row in rows.iter().filter(|row| row.store == store) {
        let names: Vec<String> =
            row.suites(suites).map(|suite| format!("`{}`", suite.target)).collect();
        writeln!(text, "| {} | {} | {} |", row.server()?, row.place.name()?, names.join(", "))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_servers_say() {
        for (said, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            ("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu", "10.11.19"),
            ("/a/b-1.2/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", "9.7.4"),
            ("etcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.8", "3.4.23"),
        ] {
            assert_eq!(version_in(said), Some(version));
        }
        assert_eq!(version_in("a server of its own"), None);
    }

    #[test]
    fn stores_are_chosen_by_name() {
        let all = chosen(&[]).unwrap();
        assert_eq!(all, ["redis", "redlock", "postgres", "mysql", "etcd", "zookeeper"]);
        assert_eq!(chosen(&["mysql".into(), "redis".into()]).unwrap(), ["redis", "mysql"]);
        assert!(chosen(&["mongo".into()]).is_err());
    }

    #[test]
    fn every_page_has_a_place_for_its_table() {
        let tree = tree::Tree::load().unwrap();
        for store in chosen(&[]).unwrap() {
            let page = tree.file(&format!("crates/{}/README.md", package(store))).unwrap();
            assert!(page.text.contains(&format!("<!-- begin: {COMMAND} -->")), "{store}");
        }
    }
}
