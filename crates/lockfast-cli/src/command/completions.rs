//! `lockfast completions`: scripts for shells.

use clap::CommandFactory as _;

use crate::args::Args;
use crate::exit::Outcome;
use crate::output::write_out;

/// Prints the script.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn run(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "lockfast", &mut script);
    write_out(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
