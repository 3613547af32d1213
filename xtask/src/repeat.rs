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
    /// What else the command's scenarios know it as, beside its name.
    also: &'static [&'static str],
}

const ALL: fn(&str) -> bool = |_| true;

const STORES: &[Store] = &[
    Store { name: "embedded", package: "lockfast-backend-embedded", tests: ALL, also: &[] },
    Store { name: "redis", package: "lockfast-backend-redis", tests: ALL, also: &[] },
    Store { name: "redlock", package: "lockfast-backend-redlock", tests: ALL, also: &[] },
    Store {
        name: "postgres",
        package: "lockfast-backend-postgres",
        tests: ALL,
        also: &["advisory", "postgres-shedlock"],
    },
    Store {
        name: "mariadb",
        package: "lockfast-backend-mysql",
        tests: |target| !target.contains("mysql"),
        also: &["mariadb-shedlock"],
    },
    Store {
        name: "mysql",
        package: "lockfast-backend-mysql",
        tests: |target| target.contains("mysql"),
        also: &[],
    },
    Store { name: "etcd", package: "lockfast-backend-etcd", tests: ALL, also: &[] },
    Store { name: "zookeeper", package: "lockfast-backend-zookeeper", tests: ALL, also: &[] },
];

/// The command's scenarios: test names there start with the store's name and `::`.
const SCENARIOS: (&str, &str) = ("lockfast-cli", "stores");

const USAGE: &str = "cargo xtask repeat COUNT [STORE…] [--only TEST…]";

/// A test binary for a store, and what came of it.
struct Line {
    store: &'static str,
    binary: String,
    rounds_failed: Vec<u32>,
    tally: Tally,
}

/// What is to be repeated.
struct Plan {
    count: u32,
    stores: Vec<&'static Store>,
    /// The test binaries; all when none is named.
    only: Vec<String>,
}

/// Runs the tests of all stores, or of those that are named, so many times.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let (count, stores) = (plan.count, &plan.stores);
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
    in_lanes(stores.clone(), |store| {
        let done = store.repeat(&plan, &binaries, &logs)?;
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

fn parse(arguments: &[String]) -> Result<Plan> {
    let (count, rest) = arguments.split_first().with_context(|| USAGE.to_owned())?;
    let at = rest.iter().position(|word| word == "--only");
    let (names, only) = rest.split_at(at.unwrap_or(rest.len()));
    let only: Vec<String> = only.iter().skip(1).cloned().collect();
    if at.is_some() && only.is_empty() {
        bail!("--only is followed by names of test binaries, such as faults: {USAGE}");
    }
    let count = count.parse().ok().filter(|count| *count > 0);
    let count = count.with_context(|| format!("COUNT is a whole number from 1: {USAGE}"))?;
    let known: Vec<&str> = STORES.iter().map(|store| store.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no store {name:?}; there are {}", known.join(", "));
    }
    let is_chosen =
        |store: &&Store| names.is_empty() || names.iter().any(|name| name == store.name);
    Ok(Plan { count, stores: STORES.iter().filter(is_chosen).collect(), only })
}

impl Store {
    /// Its test binaries, each with the filter of its tests, if that needs one.
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
        let names = [self.name].into_iter().chain(self.also.iter().copied());
        tests.extend(names.map(|name| (scenarios, Some(format!("{name}::")))));
        Ok(tests)
    }

    /// Whether a test binary is called so, or is the one of that name for this store.
    fn is_called(&self, target: &str, name: &str) -> bool {
        target.strip_prefix(name).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('_').is_some_and(|rest| rest == self.name)
        })
    }

    fn repeat(&self, plan: &Plan, all: &[Binary], logs: &Path) -> Result<Vec<Line>> {
        let count = plan.count;
        let mut tests = self.tests(all)?;
        if !plan.only.is_empty() {
            let is_wanted = |target: &str| plan.only.iter().any(|it| self.is_called(target, it));
            tests.retain(|(binary, _)| is_wanted(&binary.target));
        }
        if tests.is_empty() {
            bail!("{} has no tests called {}", self.package, plan.only.join(", "));
        }
        let line = |(binary, filter): &(&Binary, Option<String>)| Line {
            store: self.name,
            binary: format!("{} {}", binary.target, filter.as_deref().unwrap_or_default()),
            rounds_failed: Vec::new(),
            tally: Tally::default(),
        };
        let mut lines: Vec<Line> = tests.iter().map(line).collect();
        for round in 1..=count {
            for ((binary, filter), line) in tests.iter().zip(&mut lines) {
                let arguments: Vec<&str> = filter.as_deref().into_iter().collect();
                let outcome = binary.run(&[], &arguments)?;
                line.tally += outcome.tally;
                let title =
                    format!("{} {} round {round} of {count}", self.name, line.binary.trim());
                let seconds = outcome.time.as_secs_f64();
                if outcome.tally == Tally::default() {
                    bail!("{title} ran no test");
                }
                match outcome.failure {
                    None => eprintln!("  ok     {title}: {} ({seconds:.1} s)", outcome.tally),
                    Some(failure) => {
                        line.rounds_failed.push(round);
                        let log = log_path(logs, self.name, &line.binary, round);
                        std::fs::write(&log, &outcome.said)?;
                        eprintln!("  FAILED {title}: it {failure}; see {}", log.display());
                    }
                }
            }
        }
        Ok(lines)
    }
}

/// Where the output of a failed round goes; the tests are a binary and, after a space, its filter.
fn log_path(logs: &Path, store: &str, tests: &str, round: u32) -> PathBuf {
    let words = tests.split([' ', ':']).filter(|word| !word.is_empty() && *word != store);
    let tests = words.collect::<Vec<_>>().join("-");
    logs.join(format!("{store}-{tests}-{round}.log"))
}

fn table(count: u32, lines: &[Line]) -> Result<String> {
    let mut text =
        String::from("| store | tests | rounds passed | rounds failed | tests in all |\n");
    text.push_str("|---|---|---|---|---|\n");
    for Line { store, binary, rounds_failed, tally } in lines {
        let failed: Vec<String> = rounds_failed.iter().map(ToString::to_string).collect();
        let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
        let passed = count as usize - rounds_failed.len();
        let binary = binary.trim();
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
    fn each_filter_of_a_binary_has_a_log_of_its_own() {
        let path = |tests| log_path(Path::new("logs"), "postgres", tests, 3);
        assert_eq!(path("faults "), Path::new("logs/postgres-faults-3.log"));
        assert_eq!(path("stores postgres::"), Path::new("logs/postgres-stores-3.log"));
        assert_eq!(path("stores advisory::"), Path::new("logs/postgres-stores-advisory-3.log"));
    }

    #[test]
    fn a_count_and_stores_are_understood() {
        let plan = parse(&words("10 mysql redis --only faults stores")).unwrap();
        assert_eq!(plan.count, 10);
        assert_eq!(plan.only, ["faults", "stores"]);
        assert_eq!(
            plan.stores.iter().map(|store| store.name).collect::<Vec<_>>(),
            ["redis", "mysql"]
        );
        assert_eq!(parse(&words("1")).unwrap().stores.len(), STORES.len());
        for wrong in ["", "0", "-1", "redis", "3 mongo", "3 redis --only"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn two_servers_of_one_crate_have_their_own_tests() {
        let all = [
            binary("lockfast-backend-mysql", "faults"),
            binary("lockfast-backend-mysql", "faults_mysql"),
            binary("lockfast-backend-redis", "faults"),
            binary("lockfast-backend-postgres", "rights"),
            binary("lockfast-cli", "stores"),
            binary("lockfast-cli", "cli"),
        ];
        let of = |name: &str| {
            let store = STORES.iter().find(|store| store.name == name).unwrap();
            let tests = store.tests(&all).unwrap();
            let show = |(binary, filter): &(&Binary, Option<String>)| {
                format!("{} {}", binary.target, filter.as_deref().unwrap_or_default())
            };
            tests.iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(of("mariadb"), ["faults ", "stores mariadb::", "stores mariadb-shedlock::"]);
        assert_eq!(of("mysql"), ["faults_mysql ", "stores mysql::"]);
        let scenarios = ["stores postgres::", "stores advisory::", "stores postgres-shedlock::"];
        assert_eq!(of("postgres"), [&["rights "][..], &scenarios].concat());
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
