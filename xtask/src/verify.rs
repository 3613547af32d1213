//! Everything that must hold before a change is taken, cheapest first. Nothing in the repository
//! is written: not a format, not the lock file.

use anyhow::Result;

use crate::step::{Step, timed};
use crate::{deps, package, refuse_arguments, soak, suite, tidy};

/// Runs all steps and stops at the first that fails.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    let tally = timed("everything", || {
        timed("format", || Step::cargo(&["fmt", "--all", "--", "--check"]).run())?;
        timed("tidy", || tidy::run(&[]))?;
        timed("dependencies", || deps::run(&[]))?;
        timed("packages", || package::run(&[]))?;
        timed("lints", || lints().run())?;
        timed("documentation", || documentation().run())?;
        timed("build", || {
            Step::cargo(&["build", "--workspace", "--all-targets", "--locked"]).run()
        })?;
        let tally = timed("tests", suite::run)?;
        timed("torture", soak::brief)?;
        Ok(tally)
    })?;
    // The last line, for programs that read what a build server prints.
    println!("{tally}");
    Ok(())
}

fn lints() -> Step {
    Step::cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

fn documentation() -> Step {
    // Only libraries: the binary has the name of the library, and both would be one page.
    // The test kit has pages, too.
    let features = "--features=lockfast/testing";
    Step::cargo(&["doc", "--workspace", "--no-deps", "--lib", "--locked", features])
        .with_env("RUSTDOCFLAGS", "-D warnings")
}
