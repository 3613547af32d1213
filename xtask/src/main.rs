//! The chores of this repository, so that a laptop and a build server do the same.
//!
//! `cargo xtask` lists the commands. Each one is a row of [`COMMANDS`] and a module of its own;
//! whatever reads the tree gets it from [`tree`], whatever starts a program does so as a
//! [`step::Step`].
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a build tool talks to people")]

mod bench;
mod choose;
mod deps;
mod dist;
mod fix;
mod matrix;
mod metrics;
mod operations;
mod package;
mod page;
mod record;
mod repeat;
mod setup;
mod site;
mod soak;
mod step;
mod suite;
mod tidy;
mod tree;
mod verify;
mod versions;

use std::process::ExitCode;

use anyhow::{Result, bail};

struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        about: "setup, then verify: everything, also on a fresh machine",
        run: |arguments| {
            setup::run(arguments)?;
            verify::run(arguments)
        },
    },
    Command {
        name: "setup",
        about: "install what the tests need and this machine lacks",
        run: setup::run,
    },
    Command {
        name: "verify",
        about: "format, lints, tidy, dependencies, docs, build and all tests; changes nothing",
        run: verify::run,
    },
    Command {
        name: "fix",
        about: "format, and apply what clippy can mend by itself",
        run: fix::run,
    },
    Command {
        name: "tidy",
        about: "check the rules of style that no compiler checks",
        run: tidy::run,
    },
    Command {
        name: "deps",
        about: "check licences, bans and sources of the dependencies against deny.toml",
        run: deps::run,
    },
    Command {
        name: "package",
        about: "package all crates as a registry would take them; builds nothing",
        run: package::run,
    },
    Command {
        name: "dist",
        about: "make what people install: dist [--binary PATH] | dist --check",
        run: dist::run,
    },
    Command {
        name: "bench",
        about: "measure against what the machine can do at best; --write updates the docs",
        run: bench::run,
    },
    Command {
        name: "chart",
        about: "draw the hand-over figures of the docs; --write updates the picture",
        run: bench::chart::run,
    },
    Command {
        name: "choose",
        about: "measure all stores side by side: choose [--write | --blank] [STORE…]",
        run: choose::run,
    },
    Command {
        name: "matrix",
        about: "which store has which primitive and promises what; --write updates the docs",
        run: matrix::run,
    },
    Command {
        name: "metrics",
        about: "the reference of metrics, from observe.rs; --write updates the docs",
        run: metrics::run,
    },
    Command {
        name: "record",
        about: "record the first minute of the command for the README; --write updates the picture",
        run: record::run,
    },
    Command {
        name: "repeat",
        about: "run the tests of a store COUNT times in a row: repeat COUNT [STORE…]",
        run: repeat::run,
    },
    Command {
        name: "site",
        about: "build the documentation as a site with mdBook, and check all its links",
        run: site::run,
    },
    Command {
        name: "soak",
        about: "torture stores for hours: soak [--hours H] [STORE…] | soak --undone [--seed N] [BUG…]",
        run: soak::run,
    },
    Command {
        name: "versions",
        about: "run the suites on every version of the servers and write which pass; needs root",
        run: versions::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        println!("{}", usage());
        return Ok(());
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        bail!("there is no command {name:?}\n\n{}", usage());
    };
    (command.run)(rest)
}

/// For commands that have no arguments.
fn refuse_arguments(arguments: &[String]) -> Result<()> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => bail!("{argument:?} is not understood; this command has no arguments"),
    }
}

fn usage() -> String {
    let mut text = String::from("Usage: cargo xtask COMMAND\n");
    for Command { name, about, .. } in COMMANDS {
        text.push_str(&format!("\n  {name:<10}{about}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_lists_the_known_ones() {
        let error = dispatch(&["tset".into()]).unwrap_err().to_string();
        for command in COMMANDS {
            assert!(error.contains(command.name), "{error}");
        }
    }

    #[test]
    fn a_typed_option_is_not_ignored() {
        assert!(refuse_arguments(&["--fast".into()]).is_err());
    }
}
