//! The tests of a store many times in a row: its suite, faults and everything else of its crate, and
//! the command's scenarios on it. One failure in ten rounds is a bug that one round hides.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

use crate::step::timed;
use crate::suite::{Binary, Tally, build, in_lanes};
use crate::{setup, tree};

/// A store, and where its tests are.
struct Store {
    name: &'static str,
    package: &'static str,
    /// Which test binaries of the package are about this store.
    tests: fn(&str) -> bool,
}

const ALL: fn(&str) -> bool = |_| true;

const STORES: &[Store] = &[
    Store { name: "embedded", package: "lockfast-backend-embedded", tests: ALL },
    Store { name: "redis", package: "lockfast-backend-redis", tests: ALL },
    Store { name: "redlock", package: "lockfast-backend-redlock", tests: ALL },
    Store { name: "postgres", package: "lockfast-backend-postgres", tests: ALL },
    Store {
        name: "mariadb",
        package: "lockfast-backend-mysql",
        tests: |target| !target.contains("mysql"),
    },
    Store {
        name: "mysql",
        package: "lockfast-backend-mysql",
        tests: |target| target.contains("mysql"),
    },
];

/// The command's scenarios: test names there start with the store's name and `::`.
const SCENARIOS: (&str, &str) = ("lockfast-cli", "stores");

const USAGE: &str = "cargo xtask repeat COUNT [STORE…]";

/// A test binary for a store, and what came of it.
struct Line {
    store: &'static str,
    binary: String,
    rounds_failed: Vec<u32>,
    tally: Tally,
}

/// Runs the tests of all stores, or of those that are named, so many times.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (count, stores) = parse(arguments)?;
    setup::run(&[])?;
    let mut packages = vec![SCENARIOS.0];
    packages.extend(stores.iter().map(|store| store.package));
    let selection: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    let mut binaries = timed("build", || build(&selection))?;
    binaries.retain(|binary| binary.kind == "test");
    binaries.sort_by(|a, b| a.target.cmp(&b.target));
    let logs = tree::target()?.join("repeat");
    std::fs::create_dir_all(&logs)?;
    let lines = Mutex::new(Vec::new());
    in_lanes(stores, |store| {
        let done = store.repeat(count, &binaries, &logs)?;
        lines.lock().ok().context("a thread panicked")?.extend(done);
        Ok(())
    })?;
    let lines = lines.into_inner().ok().context("a thread panicked")?;
    println!("{}", table(count, &lines)?);
    if lines.iter().any(|line| !line.rounds_failed.is_empty()) {
        bail!("what failed has said why in {}", logs.display());
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(u32, Vec<&'static Store>)> {
    let (count, names) = arguments.split_first().with_context(|| USAGE.to_owned())?;
    let count = count.parse().ok().filter(|count| *count > 0);
    let count = count.with_context(|| format!("COUNT is a whole number from 1: {USAGE}"))?;
    let known: Vec<&str> = STORES.iter().map(|store| store.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no store {name:?}; there are {}", known.join(", "));
    }
    let is_chosen =
        |store: &&Store| names.is_empty() || names.iter().any(|name| name == store.name);
    Ok((count, STORES.iter().filter(is_chosen).collect()))
}

impl Store {
    /// Its test binaries, each with the filter of its tests.
    fn tests<'a>(&self, all: &'a [Binary]) -> Result<Vec<(&'a Binary, Option<String>)>> {
        let own = |binary: &&Binary| binary.package == self.package && (self.tests)(&binary.target);
        let mut tests: Vec<_> = all.iter().filter(own).map(|binary| (binary, None)).collect();
        if tests.is_empty() {
            bail!("{} has no tests on {}", self.package, self.name);
        }
        let (package, target) = SCENARIOS;
        let scenarios = |binary: &&Binary| binary.package == package && binary.target == target;
        let scenarios = all.iter().find(scenarios);
        let scenarios = scenarios.with_context(|| format!("{package} has no tests/{target}"))?;
        tests.push((scenarios, Some(format!("{}::", self.name))));
        Ok(tests)
    }

    fn repeat(&self, count: u32, all: &[Binary], logs: &Path) -> Result<Vec<Line>> {
        let tests = self.tests(all)?;
        let line = |(binary, _): &(&Binary, Option<String>)| Line {
            store: self.name,
            binary: binary.target.clone(),
            rounds_failed: Vec::new(),
            tally: Tally::default(),
        };
        let mut lines: Vec<Line> = tests.iter().map(line).collect();
        for round in 1..=count {
            for ((binary, filter), line) in tests.iter().zip(&mut lines) {
                let arguments: Vec<&str> = filter.iter().map(String::as_str).collect();
                let outcome = binary.run(&[], &arguments)?;
                line.tally += outcome.tally;
                let title = format!("{} {} round {round} of {count}", self.name, binary.target);
                let seconds = outcome.time.as_secs_f64();
                if outcome.tally == Tally::default() {
                    bail!("{title} ran no test");
                }
                match outcome.failure {
                    None => eprintln!("  ok     {title}: {} ({seconds:.1} s)", outcome.tally),
                    Some(failure) => {
                        line.rounds_failed.push(round);
                        let log = log_path(logs, self.name, &binary.target, round);
                        std::fs::write(&log, &outcome.said)?;
                        eprintln!("  FAILED {title}: it {failure}; see {}", log.display());
                    }
                }
            }
        }
        Ok(lines)
    }
}

fn log_path(logs: &Path, store: &str, target: &str, round: u32) -> PathBuf {
    logs.join(format!("{store}-{target}-{round}.log"))
}

fn table(count: u32, lines: &[Line]) -> Result<String> {
    let mut text =
        String::from("| store | tests | rounds passed | rounds failed | tests in all |\n");
    text.push_str("|---|---|---|---|---|\n");
    for Line { store, binary, rounds_failed, tally } in lines {
        let failed: Vec<String> = rounds_failed.iter().map(ToString::to_string).collect();
        let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
        let passed = count as usize - rounds_failed.len();
        writeln!(text, "| {store} | {binary} | {passed} of {count} | {failed} | {tally} |")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn binary(package: &str, target: &str) -> Binary {
        Binary {
            package: package.to_owned(),
            target: target.to_owned(),
            kind: "test".to_owned(),
            path: PathBuf::new(),
            folder: PathBuf::new(),
        }
    }

    #[test]
    fn a_count_and_stores_are_understood() {
        let (count, stores) = parse(&words("10 mysql redis")).unwrap();
        assert_eq!(count, 10);
        assert_eq!(stores.iter().map(|store| store.name).collect::<Vec<_>>(), ["redis", "mysql"]);
        assert_eq!(parse(&words("1")).unwrap().1.len(), STORES.len());
        for wrong in ["", "0", "-1", "redis", "3 mongo"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn two_servers_of_one_crate_have_their_own_tests() {
        let all = [
            binary("lockfast-backend-mysql", "faults"),
            binary("lockfast-backend-mysql", "faults_mysql"),
            binary("lockfast-backend-redis", "faults"),
            binary("lockfast-cli", "stores"),
            binary("lockfast-cli", "cli"),
        ];
        let of = |name: &str| {
            let store = STORES.iter().find(|store| store.name == name).unwrap();
            let tests = store.tests(&all).unwrap();
            let show = |(binary, filter): &(&Binary, Option<String>)| {
                format!("{} {}", binary.target, filter.as_deref().unwrap_or("all"))
            };
            tests.iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(of("mariadb"), ["faults all", "stores mariadb::"]);
        assert_eq!(of("mysql"), ["faults_mysql all", "stores mysql::"]);
    }

    #[test]
    fn the_table_names_the_rounds_that_failed() {
        let line = Line {
            store: "redis",
            binary: "faults".to_owned(),
            rounds_failed: vec![3, 7],
            tally: Tally { passed: 98, failed: 2 },
        };
        let text = table(10, &[line]).unwrap();
        assert!(text.ends_with("| redis | faults | 8 of 10 | 3, 7 | 98 passed, 2 failed |\n"));
    }
}
