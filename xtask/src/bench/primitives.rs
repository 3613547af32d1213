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
const PRIMITIVES: [&str; 7] = [
    "Mutex",
    "RwLock, write",
    "RwLock, read",
    "Semaphore",
    "Mutex by a Holder",
    "MultiLock of one",
    "Once",
];

/// The difference of two runs is what so many cycles cost, without the start and the end.
const COUNTS: (u32, u32) = (1000, 3000);

/// Counts, and makes the table.
pub(super) fn run() -> Result<String> {
    timed("build", build)?;
    let bare = timed(BARE, || cycle(BARE))?;
    let mut text = format!(
        "{}\n| primitive | instructions for each cycle | more than a bare lock |\n|---|---|---|\n\
         | `AnyLock`, the bare lock | {} | |\n",
        page::measured(MARK)?,
        thousands(bare)
    );
    for primitive in PRIMITIVES {
        let counted = timed(primitive, || cycle(primitive))?;
        let more = (counted / bare - 1.0) * 100.0;
        let _ = writeln!(text, "| {primitive} | {} | {more:+.1} % |", thousands(counted));
    }
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
