//! `lockfast man`: the manual, as roff.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use lockfast_core::error::quote;

use crate::args::Args;
use crate::exit::{Failure, OUTPUT, Outcome};
use crate::output::write_out;

/// The headings of the usage, of the paragraph with exit codes, and of the examples, in the help.
const USAGE: &str = "Usage: ";
const EXIT_STATUS: &str = "Exit status: ";
const EXAMPLES: &str = "Examples:\n";

/// The exit codes of commands that do not tell others.
const CODES: &str = "0 done; 64 wrong usage; 69 the store cannot be reached; 70 internal fault; 74 \
                     output cannot be written; 75 taken, or not held; 77 not permitted; 78 \
                     configuration.";

const ENVIRONMENT: [(&str, &str); 6] = [
    (
        "LOCKFAST_URL",
        "The store: a URL, or the name of a store in the config file. --on takes precedence.",
    ),
    (
        "LOCKFAST_NAME, LOCKFAST_FENCE",
        "Set for a command that runs under a lock: the lock and its fence.",
    ),
    (
        "LOCKFAST_HELD, LOCKFAST_URL_WITHHELD",
        "Set for a command that runs under a lock, for lockfast commands inside it.",
    ),
    ("RUST_LOG", "What to log to stderr if -v is not given, such as lockfast=debug."),
    ("NO_COLOR", "If set, output has no colours."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "Used instead of ~/.config and ~/.local/state, if set."),
];

const FILES: [(&str, &str); 2] = [
    (
        "~/.config/lockfast/config.toml",
        "The config file. url = \"URL\" is the store; a table [store.NAME] with a url of its own is \
         the one that --on NAME means.",
    ),
    ("~/.local/state/lockfast", "The embedded store, used if no other is set."),
];

/// Prints the main page, or writes all pages into a directory.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn run(directory: Option<&Path>) -> Outcome {
    let mut command = without_help(Args::command());
    command.build();
    match directory {
        Some(directory) => write_pages(&command, CODES, directory).map_err(|error| {
            let shown = quote(&directory.to_string_lossy());
            Failure::new(OUTPUT, format!("the pages cannot be written to {shown}: {error}"))
        })?,
        None => {
            let page = page(&command, CODES).map_err(|error| Failure::output(&error))?;
            write_out(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(0)
}

/// The same without the command `help`, which needs no page.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes the page of a command and of those below it, whose exit codes are its own.
fn write_pages(command: &Command, codes: &str, directory: &Path) -> io::Result<()> {
    let (_, own) = about(command);
    let codes = own.as_deref().unwrap_or(codes);
    for below in command.get_subcommands() {
        write_pages(below, codes, directory)?;
    }
    let name = Man::new(command.clone()).get_filename();
    std::fs::write(directory.join(name), page(command, codes)?)
}

/// What the command is about, and its exit codes if it tells them.
fn about(command: &Command) -> (String, Option<String>) {
    let text = command.get_long_about().or(command.get_about());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let (codes, about): (Vec<&str>, Vec<&str>) =
        text.split("\n\n").partition(|paragraph| paragraph.starts_with(EXIT_STATUS));
    let codes = codes.first().and_then(|paragraph| paragraph.strip_prefix(EXIT_STATUS));
    (about.join("\n\n"), codes.map(str::to_owned))
}

fn page(command: &Command, codes: &str) -> io::Result<Vec<u8>> {
    let (about, own) = about(command);
    let codes = own.as_deref().unwrap_or(codes);
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let source = format!("lockfast {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone().long_about(about)).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let mut roff = Roff::new();
    verbatim(&mut roff, "SYNOPSIS", usage.trim_start_matches(USAGE));
    roff.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    exit_status(&mut roff, codes);
    describe(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    describe(&mut roff, "FILES", &FILES);
    verbatim(&mut roff, "EXAMPLES", examples.trim_start_matches(EXAMPLES));
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// A section whose lines stay as they are.
fn verbatim(roff: &mut Roff, heading: &str, text: &str) {
    roff.control("SH", [heading]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
}

/// The codes as a list, with what is told before and after them as paragraphs.
fn exit_status(roff: &mut Roff, codes: &str) {
    roff.control("SH", ["EXIT STATUS"]);
    for part in codes.trim_end_matches('.').split("; ") {
        let (entry, after) = part.split_once(". ").unwrap_or((part, ""));
        match entry.split_once(' ') {
            Some((code, meaning)) if code.starts_with(|c: char| c.is_ascii_digit()) => {
                roff.control("TP", []).text([bold(code)]).text([roman(meaning)]);
            }
            _ => paragraph(roff, entry),
        }
        if !after.is_empty() {
            paragraph(roff, after);
        }
    }
}

/// A sentence of its own.
fn paragraph(roff: &mut Roff, text: &str) {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    roff.control("PP", []).text([roman(format!("{first}{}.", chars.as_str()))]);
}

fn describe(roff: &mut Roff, heading: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (name, text) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*text)]);
    }
}
