//! `lockfast man`: the manual, as roff.

use std::path::Path;

use clap::CommandFactory as _;
use lockfast_core::error::quote;

use crate::args::Args;
use crate::exit::{Failure, OUTPUT, Outcome};
use crate::output::write_out;

/// Prints the main page, or writes all pages into a directory.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn run(directory: Option<&Path>) -> Outcome {
    let mut command = Args::command();
    command.build();
    match directory {
        Some(directory) => clap_mangen::generate_to(command, directory).map_err(|error| {
            let shown = quote(&directory.to_string_lossy());
            Failure::new(OUTPUT, format!("the pages cannot be written to {shown}: {error}"))
        })?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map_err(|error| Failure::output(&error))?;
            write_out(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(0)
}
