//! Whether torture finds what is known to be wrong: builds in which one mended bug is there again.
//! The same runs without that bug find nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::Value;

use super::run::{Outcome, Run, fresh_seed};
use super::{FOLDER, build};
use crate::step::{Step, timed};
use crate::{setup, tree};

/// How long it may take to find one.
const MINUTES_MAX: f64 = 5.0;

/// How long each of the runs lasts in which it is looked for.
const MINUTES: f64 = 0.5;

/// A mended bug, and how torture sees it.
struct Bug {
    /// As in docs/bug-record.md, and as the switch is called.
    name: &'static str,
    /// Where it is looked for.
    store: &'static str,
    /// What makes it show: without faults nothing else can.
    more: &'static [&'static str],
    /// What is found.
    about: &'static str,
    found: fn(&Outcome) -> Option<String>,
}

const BUGS: &[Bug] = &[
    Bug {
        name: "B14",
        store: "redis",
        // What is slow piles up and is sent together.
        more: &["--faults", "delay", "--tasks", "24"],
        about: "a lock is granted twice",
        found: |outcome| {
            let broken = outcome.number(&["found", "overlap", "broken"]);
            (broken > 0.0).then(|| format!("{broken} overlaps"))
        },
    },
    Bug {
        name: "B18",
        // Answers wait for the replica, so offers overtake them; few tasks make short queues.
        store: "redis-replicas",
        more: &["--faults", "none", "--ttl", "8s", "--processes", "2", "--tasks", "6"],
        about: "a waiter is overtaken by one that came 3 s later, where 0.2 s is usual",
        found: |outcome| {
            let longest = outcome.number(&["overtaken", "longest"]) / 1e9;
            (longest > 3.0).then(|| format!("a waiter overtaken by one {longest:.1} s later"))
        },
    },
    Bug {
        name: "B42",
        store: "embedded",
        more: &["--faults", "none"],
        about: "a lock is used for 50 ms and more beside the next, where 5 ms are usual",
        found: |outcome| {
            let findings = outcome.verdict["findings"].as_array();
            let longest = findings.into_iter().flatten().filter_map(held_by_two);
            let longest = longest.fold(0.0, f64::max);
            (longest > 0.05).then(|| format!("a lock used for {longest:.3} s beside the next"))
        },
    },
];

/// For how many seconds two held one lock, of which one was taken away from the other.
fn held_by_two(finding: &Value) -> Option<f64> {
    let is_such = ["overlap", "reader_beside_writer"].contains(&finding["kind"].as_str()?);
    is_such.then_some((finding["until"].as_f64()? - finding["from"].as_f64()?) / 1e9)
}

/// Looks for these bugs, or all, with seeds from this one on or with fresh ones.
pub(super) fn run(seed: Option<u64>, names: &[String]) -> Result<()> {
    let known: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("{name:?} cannot be undone; there is {}", known.join(", "));
    }
    setup::run(&[])?;
    let is_asked = |bug: &&Bug| names.is_empty() || names.iter().any(|name| name == bug.name);
    let mended = build()?;
    let mut wrong = Vec::new();
    for bug in BUGS.iter().filter(is_asked) {
        let name = bug.name;
        let lockfast = timed(&format!("build without the mending of {name}"), || build_with(bug))?;
        let (is_found, runs) = search(bug, &lockfast, seed)?;
        if !is_found {
            wrong.push(format!("{name} is not found within {MINUTES_MAX} minutes"));
        }
        for run in runs {
            wrong.extend(repeat(bug, &mended, &run)?);
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Builds the command with a bug in it, in a target directory of its own. The compiler is called by
/// a script, so that only our own crates are compiled anew for each bug.
fn build_with(bug: &Bug) -> Result<PathBuf> {
    let target = tree::target()?.join("undone");
    fs::create_dir_all(&target)?;
    let compiler = target.join(bug.name);
    fs::write(
        &compiler,
        format!("#!/bin/sh\nexec \"$@\" --cfg 'lockfast_undone=\"{}\"'\n", bug.name),
    )?;
    fs::set_permissions(&compiler, Permissions::from_mode(0o755))?;
    Step::cargo(&["build", "--locked", "--bin", "lockfast"])
        .with_env("CARGO_TARGET_DIR", &target.to_string_lossy())
        .with_env("RUSTC_WORKSPACE_WRAPPER", &compiler.to_string_lossy())
        .run()?;
    Ok(target.join("debug/lockfast"))
}

/// Runs until it is found or the time is over; whether it was, and what was run.
#[allow(clippy::disallowed_methods, reason = "how long it took decides nothing else")]
fn search(bug: &Bug, lockfast: &Path, seed: Option<u64>) -> Result<(bool, Vec<Run>)> {
    let start = Instant::now();
    let minutes = || start.elapsed().as_secs_f64() / 60.0;
    let mut runs = Vec::new();
    eprintln!("  {} on {}: {}", bug.name, bug.store, bug.about);
    while minutes() < MINUTES_MAX {
        let run = Run {
            store: bug.store.to_owned(),
            seed: seed.map_or_else(fresh_seed, |seed| Ok(seed + runs.len() as u64))?,
            minutes: MINUTES,
            more: bug.more.iter().map(ToString::to_string).collect(),
        };
        let outcome = carry_out(&run, lockfast, bug.name)?;
        runs.push(run);
        match (bug.found)(&outcome) {
            Some(found) => {
                let (name, kept) = (bug.name, outcome.directory.display());
                println!("{name}: found within {:.0} s: {found}; see {kept}", minutes() * 60.0);
                return Ok((true, runs));
            }
            None => fs::remove_dir_all(&outcome.directory)?,
        }
    }
    Ok((false, runs))
}

/// The same run without the bug; what is wrong if anything is found by it.
fn repeat(bug: &Bug, mended: &Path, run: &Run) -> Result<Option<String>> {
    let outcome = carry_out(run, mended, "mended")?;
    let found = (bug.found)(&outcome).or_else(|| outcome.failure.clone());
    let Some(found) = found else {
        println!("{}: nothing is found when it is mended, seed {}", bug.name, run.seed);
        fs::remove_dir_all(&outcome.directory)?;
        return Ok(None);
    };
    let kept = outcome.directory.display();
    Ok(Some(format!("{} is found although it is mended: {found}; see {kept}", bug.name)))
}

fn carry_out(run: &Run, lockfast: &Path, folder: &str) -> Result<Outcome> {
    let outcome = run.carry_out(lockfast, &tree::target()?.join(FOLDER).join(folder))?;
    if outcome.verdict.is_null() {
        bail!("{run} came to no verdict:\n{}", outcome.said);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(verdict: Value) -> Outcome {
        Outcome { directory: PathBuf::new(), said: String::new(), failure: None, verdict }
    }

    #[test]
    fn what_is_usual_is_no_find() {
        let held =
            |ns: u64| json!({ "kind": "overlap", "ruling": "revoked", "from": 0, "until": ns });
        let usual = json!({
            "found": { "overlap": { "broken": 0, "allowed": 3 } },
            "overtaken": { "longest": 200_000_000 },
            "findings": [held(5_000_000)],
        });
        let wrong = [
            json!({ "found": { "overlap": { "broken": 1, "allowed": 0 } } }),
            json!({ "overtaken": { "longest": 4_000_000_000_u64 } }),
            json!({ "findings": [held(190_000_000)] }),
        ];
        for (bug, wrong) in BUGS.iter().zip(wrong) {
            assert_eq!((bug.found)(&outcome(usual.clone())), None, "{}", bug.name);
            assert!((bug.found)(&outcome(wrong)).is_some(), "{}", bug.name);
        }
    }
}
