//! `lockfast`: run jobs under a lock, and look after the locks.
//!
//! [`args`] is what was typed, [`plan`] what it means, [`command`] does it, and [`exit`] has every
//! exit code.

mod args;
mod command;
mod config;
mod duration;
mod exit;
mod guard;
mod held;
mod lease_time;
mod output;
mod plan;
mod process;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use lockfast_torture::{referee, worker};

use args::{Args, Command, Format};
use exit::Failure;
use output::Output;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let code = match arguments.get(1) {
        Some(first) if first == guard::COMMAND => guard::main(),
        Some(first) if first == process::trampoline::COMMAND => {
            process::trampoline::main(&arguments[2..])
        }
        Some(first) if first == referee::COMMAND => return referee::main(&arguments[2..]),
        Some(first) if first == worker::COMMAND => return worker::main(),
        Some(first) if first == worker::attendant::COMMAND => {
            return worker::attendant::main(&arguments[2..]);
        }
        Some(first) if first == worker::job::COMMAND => return worker::job::main(&arguments[2..]),
        _ => match Args::try_parse_from(&arguments) {
            Ok(args) => execute(args),
            Err(error) => {
                let code = explain(&error);
                fail_evaluation(code, is_evaluated(&arguments));
                code
            }
        },
    };
    ExitCode::from(code)
}

/// Whether a shell evaluates what this command line prints, as far as the line can be read.
fn is_evaluated(arguments: &[OsString]) -> bool {
    let command = Args::command().ignore_errors(true);
    let Ok(matches) = command.try_get_matches_from(arguments) else { return false };
    // What comes after the mistake is not in the matches.
    let json = arguments.iter().any(|word| word == "--json" || word == "--format=json")
        || arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    matches!(matches.subcommand_name(), Some("acquire" | "renew")) && !json
}

/// Makes a shell that evaluates what we printed fail with our code: `eval "$(lockfast acquire …)"`
/// looks at nothing else, and evaluating nothing is a success.
fn fail_evaluation(code: u8, is_evaluated: bool) {
    if is_evaluated && code != 0 {
        // When it cannot be written there is nothing to evaluate either, and nobody else to tell.
        let _ = output::write_out(&format!("(exit {code})\n"));
    }
}

fn execute(args: Args) -> u8 {
    let json = args.global.json || args.global.format == Some(Format::Json);
    let output = Output::new(json);
    start_log(args.global.verbose, &output);
    let is_evaluated = matches!(args.command, Command::Acquire(_) | Command::Renew(_)) && !json;
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(dispatch(args, &output)),
        Err(error) => Err(Failure::internal("no runtime", error)),
    };
    let code = match outcome {
        Ok(code) => code,
        Err(failure) => {
            if let Some(message) = failure.message() {
                output.fail(message);
            }
            failure.code()
        }
    };
    fail_evaluation(code, is_evaluated);
    code
}

async fn dispatch(args: Args, output: &Output) -> exit::Outcome {
    let global = args.global;
    match args.command {
        Command::Run(run) => command::run::run(run, &global, output).await,
        Command::Once(once) => command::once::run(once, &global, output).await,
        Command::Elect(elect) => command::elect::run(elect, &global, output).await,
        Command::Refresh(refresh) => command::refresh::run(refresh, &global, output).await,
        Command::Fence(fence) => command::fence::run(&fence, output).await,
        Command::Acquire(acquire) => command::acquire::run(&acquire, &global, output).await,
        Command::Renew(renew) => command::renew::run(&renew, &global, output).await,
        Command::Release(release) => command::release::run(&release, &global, output).await,
        Command::Show(show) => command::show::run(&show, &global, output).await,
        Command::List(list) => command::list::run(&list, &global, output).await,
        Command::Watch(watch) => command::watch::run(&watch, &global, output).await,
        Command::ForceRelease(force) => command::force_release::run(&force, &global, output).await,
        Command::Migrate(_) => command::migrate::run(&global, output).await,
        Command::Doctor(doctor) => command::doctor::run(&doctor, &global, output).await,
        Command::Bench(bench) => command::bench::run(&bench.what, &global, output).await,
        Command::Torture(torture) => command::torture::run(&torture, &global, output).await,
        Command::Completions(completions) => command::completions::run(completions.shell),
        Command::Man(man) => command::man::run(man.dir.as_deref()),
    }
}

fn start_log(verbose: u8, output: &Output) {
    let level = match verbose {
        0 => return,
        1 => "lockfast=debug,lockfast_backend_embedded=debug,warn",
        _ => "trace",
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(level))
        .with_writer(std::io::stderr)
        .with_ansi(output.colour())
        .init();
}

/// Tells what is wrong with what was typed; `--help` and `--version` also come this way.
fn explain(error: &clap::Error) -> u8 {
    let output = Output::new(false);
    let styled = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help goes to standard output, which may be a file or a terminal of its own.
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => 0,
            Err(error) => {
                let failure = Failure::output(&error);
                failure.message().iter().for_each(|message| output.fail(message));
                failure.code()
            }
        };
    }
    let mut text = if output.colour() { styled.ansi().to_string() } else { styled.to_string() };
    if !output.colour() {
        // What was typed is part of the text, and no terminal may obey it.
        text = output.lines(&text);
    }
    if error.kind() == ErrorKind::UnknownArgument {
        text.push_str(
            "\nA lock's name that starts with - is written after -- (as in: lockfast show -- -x);\n\
             for run, once, elect and refresh, use a name that does not, such as ./-x.\n",
        );
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    exit::USAGE
}
