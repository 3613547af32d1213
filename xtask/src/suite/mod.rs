//! All tests of the workspace, each binary timed. Most of them wait most of the time, so several
//! run at once; what a binary says is shown when it has ended, and only if it failed.

mod binary;
mod lane;

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub(crate) use binary::{Binary, Outcome, Tally, build};
pub(crate) use lane::in_lanes;

use crate::step::Step;

/// Binaries that take long begin first, so that the last one does not run alone.
const LONG: &[&str] = &["node_scripts", "invariants", "stores", "faults", "conformance"];

/// How many of the slowest are named at the end, and how slow they must be.
const SLOWEST_COUNT: usize = 10;
const SLOW: Duration = Duration::from_secs(2);

/// Builds all tests, runs them and tells how many there were.
pub(crate) fn run() -> Result<Tally> {
    let mut binaries = build(&["--workspace"])?;
    binaries.sort_by_key(|binary| {
        LONG.iter().position(|word| binary.target.contains(word)).unwrap_or(LONG.len())
    });
    let done = Mutex::new(Vec::new());
    in_lanes(binaries, |binary| {
        let outcome = run_one(&binary)?;
        done.lock().ok().context("a thread panicked")?.push((binary, outcome));
        Ok(())
    })?;
    let done = done.into_inner().ok().context("a thread panicked")?;
    show_slowest(&done);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for (binary, outcome) in &done {
        tally += outcome.tally;
        if let Some(failure) = &outcome.failure {
            let (name, repetition) = (binary.name(), binary.repetition());
            failures.push(format!("{name} {failure}; repeat it with\n  {repetition}"));
        }
    }
    let documented = examples()?;
    tally += documented.0;
    failures.extend(documented.1);
    if failures.is_empty() {
        return Ok(tally);
    }
    // The last line is for programs.
    bail!("{}\n{tally}", failures.join("\n"))
}

fn run_one(binary: &Binary) -> Result<Outcome> {
    let name = binary.name();
    eprintln!("  start  {name}");
    let outcome = binary.run(&[], &[])?;
    let seconds = outcome.time.as_secs_f64();
    match &outcome.failure {
        None => eprintln!("  ok     {name} ({seconds:.1} s)"),
        Some(_) => eprintln!("  FAILED {name} ({seconds:.1} s)\n{}", outcome.said),
    }
    Ok(outcome)
}

/// The examples in the documentation.
fn examples() -> Result<(Tally, Option<String>)> {
    let step = Step::cargo(&["test", "--workspace", "--locked", "--doc"]);
    let (succeeded, said) = step.try_read()?;
    let mut tally = Tally::of(&said);
    if succeeded {
        return Ok((tally, None));
    }
    eprintln!("{said}");
    tally.failed = tally.failed.max(1);
    Ok((tally, Some(format!("examples in the documentation failed; repeat it with\n  {step}"))))
}

fn show_slowest(done: &[(Binary, Outcome)]) {
    let mut slow: Vec<(Duration, String)> = Vec::new();
    for (binary, outcome) in done {
        for (test, time) in outcome.slow.iter().filter(|(_, time)| *time >= SLOW) {
            slow.push((*time, format!("{test} of {}", binary.name())));
        }
    }
    slow.sort();
    for (time, name) in slow.iter().rev().take(SLOWEST_COUNT) {
        eprintln!("  slow   {name} took at least {:.1} s", time.as_secs_f64());
    }
}
