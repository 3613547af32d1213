//! `lockfast torture` on stores of its own: briefly in `cargo xtask test`, for hours in
//! `cargo xtask soak`, and with mended bugs undone, to see that it finds them.

mod run;
mod table;
mod undone;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::setup;
use crate::step::{Step, timed};
use crate::suite::in_lanes;
use crate::tree;
use run::{OVERLAPS, Outcome, Run, fresh_seed};
use table::Sum;

const USAGE: &str = "cargo xtask soak [--hours H] [--write] [STORE…], or cargo xtask soak --undone \
                     [--seed N] [BUG…]";

/// How long each run of `cargo xtask test` lasts; with the start and the end of its servers a third
/// longer. All of them together may take four minutes, see [`brief_runs`].
const BRIEF_MINUTES: f64 = 0.25;

/// The seed that every store has in every test run.
const SEED: u64 = 11;

/// How long each run of a soak lasts, unless less is asked for.
const SOAK_MINUTES: f64 = 10.0;

/// After how many minutes of all its runs a soak must have seen what theory predicts where a replica
/// takes over without the last grants: two who hold a lock at once. How many there are hangs on the
/// promotions: three minutes had 46 after seven promotions, and others 3 after two.
const OVERLAP_MINUTES: f64 = SOAK_MINUTES;

/// Where what was recorded goes, below the target directory.
const FOLDER: &str = "torture";

/// What `cargo xtask soak` is asked for.
#[derive(Debug, PartialEq)]
enum Asked {
    Soak { hours: f64, writes: bool, stores: Vec<String> },
    Undone { seed: Option<u64>, bugs: Vec<String> },
}

/// Tortures for hours.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match parse(arguments)? {
        Asked::Undone { seed, bugs } => undone::run(seed, &bugs),
        Asked::Soak { hours, writes, stores } => {
            setup::run(&[])?;
            let lockfast = build()?;
            let chosen = choose(&stores_of(&lockfast)?, stores)?;
            let sums = soak(&lockfast, Duration::from_secs_f64(hours * 3600.0), chosen)?;
            conclude(&sums, writes)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--undone", "--seed", seed, bugs @ ..] => {
            let seed = seed.parse().with_context(|| format!("N is a whole number: {USAGE}"))?;
            Ok(Asked::Undone { seed: Some(seed), bugs: names(bugs)? })
        }
        ["--undone", bugs @ ..] => Ok(Asked::Undone { seed: None, bugs: names(bugs)? }),
        ["--hours", hours, rest @ ..] => {
            let hours = hours.parse().ok().filter(|hours| *hours > 0.0 && *hours <= 1000.0);
            let hours =
                hours.with_context(|| format!("H is a number of hours above 0: {USAGE}"))?;
            parse_soak(hours, rest)
        }
        rest => parse_soak(1.0, rest),
    }
}

fn parse_soak(hours: f64, rest: &[&str]) -> Result<Asked> {
    let stores = rest.strip_prefix(&["--write"]);
    Ok(Asked::Soak { hours, writes: stores.is_some(), stores: names(stores.unwrap_or(rest))? })
}

/// Names of stores or bugs, and no options.
fn names(words: &[&str]) -> Result<Vec<String>> {
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        bail!("{option:?} is not understood: {USAGE}");
    }
    Ok(words.iter().map(ToString::to_string).collect())
}

fn choose(all: &[String], asked: Vec<String>) -> Result<Vec<String>> {
    if let Some(name) = asked.iter().find(|name| !all.contains(name)) {
        bail!("there is no store {name:?}; there are {}", all.join(", "));
    }
    Ok(if asked.is_empty() { all.to_vec() } else { asked })
}

/// The stores that the command can start, all of which the table knows.
fn stores_of(lockfast: &Path) -> Result<Vec<String>> {
    let stores = run::stores(lockfast)?;
    table::check_labels(&stores)?;
    Ok(stores)
}

/// A copy of the command, which is there until it is dropped.
struct Copied {
    path: PathBuf,
    _folder: TempDir,
}

impl Deref for Copied {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Builds the command and makes a copy of it: it starts itself again and again, also when another has
/// been built or another soak has begun meanwhile.
fn build() -> Result<Copied> {
    timed("build", || Step::cargo(&["build", "--locked", "--bin", "lockfast"]).run())?;
    let target = tree::target()?;
    let parent = target.join(FOLDER);
    fs::create_dir_all(&parent)?;
    let folder = TempDir::with_prefix_in("bin-", parent)?;
    let path = folder.path().join("lockfast");
    fs::copy(target.join("debug/lockfast"), &path)?;
    Ok(Copied { path, _folder: folder })
}

/// The step of `cargo xtask test`.
pub(crate) fn brief() -> Result<()> {
    let lockfast = build()?;
    let fresh = fresh_seed()?;
    eprintln!("  fresh seed {fresh}");
    let jobs = brief_runs(&stores_of(&lockfast)?, fresh);
    let failed = Mutex::new(Vec::new());
    in_lanes(jobs, |job| {
        let outcome = carry_out(&job, &lockfast)?;
        if outcome.failure.is_some() {
            let (repetition, kept) = (job.to_string(), outcome.directory.display().to_string());
            let line = format!("{} failed; see {kept}; repeat it with\n  {repetition}", job.store);
            failed.lock().ok().context("a thread panicked")?.push(line);
        }
        Ok(())
    })?;
    let failed = failed.into_inner().ok().context("a thread panicked")?;
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// Every store with the seed that is always the same, and every second one with a seed that never is,
/// which chooses by itself whether that is the first of each two or the other. With both seeds on all
/// stores it would take as long as all of it may, and longer on a busy machine.
fn brief_runs(stores: &[String], fresh: u64) -> Vec<Run> {
    let run = |store: &String, seed| {
        let store = store.clone();
        Run { store, seed, minutes: BRIEF_MINUTES, more: Vec::new() }
    };
    let skipped = usize::from(fresh % 2 == 1);
    let always = stores.iter().map(|store| run(store, SEED));
    always.chain(stores.iter().skip(skipped).step_by(2).map(|store| run(store, fresh))).collect()
}

/// Carries out one run, says how it went, and keeps what was recorded of one that failed; of any other
/// only the verdict.
fn carry_out(job: &Run, lockfast: &Path) -> Result<Outcome> {
    let outcome = job.carry_out(lockfast, &tree::target()?.join(FOLDER))?;
    let (store, seed) = (&job.store, job.seed);
    match &outcome.failure {
        None => {
            eprintln!("  ok     {store}, seed {seed}: {}", outcome.figures());
            outcome.keep_verdict()?;
        }
        Some(failure) => {
            let kept = outcome.directory.display();
            eprintln!("  FAILED {store}, seed {seed}: {failure}; see {kept}\n{}", outcome.said);
        }
    }
    Ok(outcome)
}

/// Tortures these stores with ever new seeds until the time is over.
#[allow(clippy::disallowed_methods, reason = "how long to go on decides nothing else")]
fn soak(lockfast: &Path, time: Duration, stores: Vec<String>) -> Result<BTreeMap<String, Sum>> {
    let end = Instant::now() + time;
    let lanes = stores.len().min(2);
    let part = time.as_secs_f64() / 60.0 / stores.len().div_ceil(lanes.max(1)) as f64;
    let minutes = SOAK_MINUTES.min(part);
    let sums = Mutex::new(BTreeMap::<String, Sum>::new());
    while Instant::now() < end {
        in_lanes(stores.clone(), |store| {
            let job = Run { store, seed: fresh_seed()?, minutes, more: Vec::new() };
            let outcome = carry_out(&job, lockfast)?;
            let mut sums = sums.lock().ok().context("a thread panicked")?;
            sums.entry(job.store).or_default().add(job.seed, minutes, &outcome);
            Ok(())
        })?;
    }
    sums.into_inner().ok().context("a thread panicked")
}

/// Shows what came of it, and writes that into the page if nothing failed.
fn conclude(sums: &BTreeMap<String, Sum>, writes: bool) -> Result<()> {
    println!("{}", table::show(sums));
    let folder = tree::target()?.join(FOLDER);
    println!("the verdict of every run is kept in {}", folder.display());
    let failures = failures(sums);
    if !failures.is_empty() {
        bail!("{}; what failed is kept in {}", failures.join("; "), folder.display());
    }
    if writes { table::write(sums) } else { Ok(()) }
}

/// What is wrong with what came of it.
fn failures(sums: &BTreeMap<String, Sum>) -> Vec<String> {
    let failed = sums.iter().filter(|(_, sum)| !sum.failed.is_empty());
    let show = |(store, sum): (&String, &Sum)| {
        let seeds: Vec<String> = sum.failed.iter().map(ToString::to_string).collect();
        format!("{store} failed with seed {}", seeds.join(", "))
    };
    failed.map(show).chain(blindness(sums)).collect()
}

/// A judge that does not see what is there would find nothing elsewhere either.
fn blindness(sums: &BTreeMap<String, Sum>) -> Option<String> {
    let sum = sums.get(OVERLAPS).filter(|sum| sum.minutes >= OVERLAP_MINUTES)?;
    (sum.overlaps == 0).then(|| {
        let minutes = sum.minutes;
        format!(
            "{OVERLAPS} had no overlap in {minutes:.1} minutes, where theory predicts some: torture does \
             not see what is there"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(line: &str) -> Result<Asked> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn hours_stores_and_bugs_are_understood() {
        let soak = |hours, writes, stores: &[&str]| Asked::Soak {
            hours,
            writes,
            stores: stores.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(asked("").unwrap(), soak(1.0, false, &[]));
        assert_eq!(asked("--write").unwrap(), soak(1.0, true, &[]));
        let two = &["redis", "mysql"];
        assert_eq!(asked("--hours 0.5 redis mysql").unwrap(), soak(0.5, false, two));
        assert_eq!(asked("--hours 0.5 --write redis mysql").unwrap(), soak(0.5, true, two));
        let undone = |seed, bugs: &[&str]| Asked::Undone {
            seed,
            bugs: bugs.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(asked("--undone B14").unwrap(), undone(None, &["B14"]));
        assert_eq!(asked("--undone --seed 7").unwrap(), undone(Some(7), &[]));
        for wrong in [
            "--hours",
            "--hours x",
            "--undone --seed",
            "--undone --seed x B14",
            "--hours 0",
            "--hours -1 redis",
            "redis --fast",
        ] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
        let all = ["embedded", "redis"].map(str::to_owned);
        assert_eq!(choose(&all, Vec::new()).unwrap(), all);
        assert!(choose(&all, vec!["mongo".to_owned()]).is_err());
    }

    fn sum_of(minutes: f64, overlaps: u64, failure: Option<&str>) -> Sum {
        let mut sum = Sum::default();
        let verdict = json!({ "counts": { "overlaps": overlaps } });
        let (directory, failure) = (PathBuf::new(), failure.map(str::to_owned));
        sum.add(7, minutes, &Outcome { directory, said: String::new(), failure, verdict });
        sum
    }

    #[test]
    fn seeds_that_failed_are_named() {
        let told = |failure| failures(&BTreeMap::from([("redis".into(), sum_of(9.0, 0, failure))]));
        assert_eq!(told(None), [""; 0]);
        assert_eq!(told(Some("it ended with 2")), ["redis failed with seed 7"]);
    }

    #[test]
    fn a_long_soak_sees_the_overlaps_that_theory_predicts() {
        let told = |store: &str, minutes, overlaps| {
            failures(&BTreeMap::from([(store.into(), sum_of(minutes, overlaps, None))]))
        };
        assert_eq!(told(OVERLAPS, 10.0, 0).len(), 1);
        assert_eq!(told(OVERLAPS, 10.0, 1), [""; 0]);
        assert_eq!(told(OVERLAPS, 0.25, 0), [""; 0], "a brief one may not meet any");
        assert_eq!(told("redis", 10.0, 0), [""; 0]);
    }

    /// Two fresh seeds, one even and one odd, reach every store.
    #[test]
    fn a_brief_run_has_every_store_and_half_of_them_with_a_fresh_seed() {
        let stores = ["a", "b", "c", "d"].map(str::to_owned);
        let runs = |fresh| {
            let runs = brief_runs(&stores, fresh);
            runs.iter().map(|run| format!("{} {}", run.store, run.seed)).collect::<Vec<_>>()
        };
        let always = ["a 11", "b 11", "c 11", "d 11"];
        assert_eq!(runs(6), [&always[..], &["a 6", "c 6"]].concat());
        assert_eq!(runs(7), [&always[..], &["b 7", "d 7"]].concat());
    }
}
