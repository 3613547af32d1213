//! What can be mended without thinking.

use anyhow::Result;

use crate::refuse_arguments;
use crate::step::{Step, timed};

/// Applies clippy's own suggestions, then formats.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    timed("clippy --fix", || {
        Step::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--fix",
            "--allow-dirty",
            "--allow-staged",
        ])
        .run()
    })?;
    timed("format", || Step::cargo(&["fmt", "--all"]).run())
}
