//! What each primitive adds to a bare lock, in instructions: those do not depend on what else the
//! machine does.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::thousands;
use crate::step::{Step, timed};
use crate::{page, tree};

/// What its marks on the page say.
pub(super) const MARK: &str = "cargo xtask bench primitives";

/// Where it is built, in the target directory.
const DIRECTORY: &str = "bench-primitives";

/// What all others are compared with.
const BARE: &str = "AnyLock";
/// Each with what it may add at most, in percent. What only says which mode it asks for adds nothing that
/// could be measured; the others do more, and the page says what.
const PRIMITIVES: [(&str, f64); 8] = [
    ("Mutex", 2.0),
    ("RwLock, write", 2.0),
    ("RwLock, read", 2.0),
    ("Semaphore", 2.0),
    ("Mutex by a Holder", 12.0),
    ("MultiLock of one", 10.0),
    ("Once", 12.0),
    ("Leader", 250.0),
];

/// The difference of two runs is what so many cycles cost, without the start and the end. Those differ
/// by some 300 000 instructions from run to run, so that fewer cycles would not tell two percent.
const COUNTS: (u32, u32) = (1_000, 11_000);

/// Counts, and makes the table.
pub(super) fn run() -> Result<String> {
    timed("build", build)?;
    let bare = timed(BARE, || cycle(BARE))?;
    let mut text = format!(
        "{}\n| primitive | instructions for each cycle | more than a bare lock | at most |\n\
         |---|---|---|---|\n| `AnyLock`, the bare lock | {} | | |\n",
        page::measured(MARK)?,
        thousands(bare)
    );
    let mut excess = Vec::new();
    for (primitive, limit) in PRIMITIVES {
        let counted = timed(primitive, || cycle(primitive))?;
        let more = (counted / bare - 1.0) * 100.0;
        let counted = thousands(counted);
        let _ = writeln!(text, "| {primitive} | {counted} | {more:+.1} % | {limit:+} % |");
        if more > limit {
            excess.push(format!("{primitive} adds {more:.1} %, and may add {limit} %"));
        }
    }
    anyhow::ensure!(excess.is_empty(), "{}\n\n{text}", excess.join("; "));
    Ok(text)
}

/// Builds it for release, apart from other builds: valgrind does not have what the clock is read
/// from without libc.
fn build() -> Result<()> {
    let target = tree::target()?.join(DIRECTORY);
    Step::cargo(&["build", "--release", "--locked", "-p", "lockfast", "--example", "cycles"])
        .with_env("RUSTFLAGS", "--cfg rustix_use_libc")
        .with_env("CARGO_TARGET_DIR", &target.to_string_lossy())
        .run()
}

/// The instructions of one acquisition and release.
fn cycle(primitive: &str) -> Result<f64> {
    let (few, many) = COUNTS;
    Ok((count(primitive, many)? - count(primitive, few)?) / f64::from(many - few))
}

/// The instructions of so many, and of starting and ending.
fn count(primitive: &str, cycles: u32) -> Result<f64> {
    let program = tree::target()?.join(DIRECTORY).join("release/examples/cycles");
    let cycles = cycles.to_string();
    let arguments = [
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        &program.to_string_lossy(),
        primitive,
        &cycles,
    ];
    let step = Step::program("valgrind", &arguments);
    let (succeeded, said) = step
        .try_read()
        .context("valgrind counts them; install it with: apt-get install valgrind")?;
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(instructions) if succeeded => Ok(instructions),
        _ => anyhow::bail!("{step} counted nothing: {said}"),
    }
}
