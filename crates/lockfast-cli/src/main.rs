//! `lockfast`: run jobs under a lock, and manage locks.
//!
//! [`words`] and [`args`] are what was typed, [`plan`] what it means, [`command`] does it, and [`exit`]
//! has every exit code.

mod args;
mod choice;
mod command;
mod config;
mod duration;
mod examples;
mod exit;
mod guard;
mod held;
mod lease_time;
mod output;
mod plan;
mod process;
mod words;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use lockfast_core::error::quote;
use lockfast_torture::{referee, worker};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use args::{Args, Command, Format};
use command::complete;
use exit::Failure;
use output::Output;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let code = match arguments.get(1) {
        Some(first) if first == guard::COMMAND => guard::main(&arguments[2..]),
        Some(first) if first == process::trampoline::COMMAND => {
            process::trampoline::main(&arguments[2..])
        }
        Some(first) if first == complete::COMMAND => complete::main(&arguments[2..]),
        Some(first) if first == referee::COMMAND => return referee::main(&arguments[2..]),
        Some(first) if first == worker::COMMAND => return worker::main(),
        Some(first) if first == worker::attendant::COMMAND => {
            return worker::attendant::main(&arguments[2..]);
        }
        Some(first) if first == worker::job::COMMAND => return worker::job::main(&arguments[2..]),
        _ => understand(arguments),
    };
    ExitCode::from(code)
}

/// Does what was typed, or tells what is wrong with it.
fn understand(arguments: Vec<OsString>) -> u8 {
    let mut command = Args::command();
    command.build();
    let json = words::asks_for_json(&arguments);
    let arguments = match words::separated(&command, arguments) {
        Ok(arguments) => arguments,
        Err(failure) => {
            Output::new(json, false).fail(&failure);
            return failure.code();
        }
    };
    match Args::try_parse_from(&arguments) {
        Ok(args) => execute(args),
        Err(error) => {
            let json = words::asks_for_json(&arguments);
            let code = explain(error, json);
            fail_evaluation(code, is_evaluated(&arguments) && !json);
            code
        }
    }
}

/// Whether a shell evaluates what this command line prints, as far as the line can be read.
fn is_evaluated(arguments: &[OsString]) -> bool {
    let command = Args::command().ignore_errors(true);
    let Ok(matches) = command.try_get_matches_from(arguments) else { return false };
    matches!(matches.subcommand_name(), Some("acquire" | "renew"))
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
    let output = Output::new(json, args.command.is_quiet());
    start_log(args.global.verbose, &output);
    let is_evaluated = matches!(args.command, Command::Acquire(_) | Command::Renew(_)) && !json;
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(dispatch(args, &output)),
        Err(error) => Err(Failure::internal("no runtime", error)),
    };
    let code = match outcome {
        Ok(code) => code,
        Err(failure) => {
            output.fail(&failure);
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
        Command::Env(_) => command::env::run(&global, output),
        Command::Bench(bench) => command::bench::run(&bench.what, &global, output).await,
        Command::Torture(torture) => command::torture::run(&torture, &global, output).await,
        Command::Completions(completions) => command::completions::run(completions.shell),
        Command::Man(man) => command::man::run(man.dir.as_deref()),
    }
}

/// Starts the log that `-v` or `$RUST_LOG` asks for.
fn start_log(verbose: u8, output: &Output) {
    // What happens to locks; what stores and connections do besides; everything.
    const LEVELS: [&str; 3] = ["lockfast::telemetry=debug,warn", "lockfast=debug,info", "trace"];
    let exported = || std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let chosen = match verbose {
        0 => exported(),
        times => LEVELS.get(usize::from(times) - 1).or(LEVELS.last()).map(ToString::to_string),
    };
    let Some(chosen) = chosen else { return };
    let filter = EnvFilter::try_new(&chosen).unwrap_or_else(|error| {
        output.warn(&format!("RUST_LOG is not used: {} is no filter: {error}", quote(&chosen)));
        EnvFilter::new("off")
    });
    // From the second level on, each step is told with the time that it took.
    let spans = if verbose > 1 { FmtSpan::CLOSE } else { FmtSpan::NONE };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(spans)
        .with_writer(std::io::stderr)
        .with_ansi(output.colour())
        .init();
}

/// Tells what is wrong with what was typed; `--help` and `--version` also come this way.
fn explain(mut error: clap::Error, json: bool) -> u8 {
    let output = Output::new(json, false);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help goes to standard output, which may be a file or a terminal of its own.
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => 0,
            Err(error) => {
                let failure = Failure::output(&error);
                output.fail(&failure);
                failure.code()
            }
        };
    }
    // It would advise to put a - of ours behind the --, where the command is.
    error.remove(ContextKind::Suggested);
    let styled = error.render();
    let hint = match error.kind() {
        ErrorKind::UnknownArgument => {
            "\nA lock's name that starts with - is written after -- (as in: lockfast show -- -x);\n\
             for run, once, elect and refresh, use a name that does not, such as ./-x.\n"
        }
        _ => "",
    };
    if json {
        // The first paragraphs are about the mistake, the rest is about all the options.
        let text = styled.to_string();
        let about = text.split("\n\nUsage:").next().unwrap_or_default();
        let about = about.split("\n\nFor more information").next().unwrap_or_default();
        let about = about.trim_start_matches("error: ").trim();
        output.fail(&Failure::usage(format!("{about}{hint}").trim()));
        return exit::USAGE;
    }
    // What was typed is part of the text, and no terminal may obey it.
    let text = match output.colour() {
        true => styled.ansi().to_string(),
        false => output.lines(&styled.to_string()),
    };
    let _ = std::io::stderr().write_all(format!("{text}{hint}").as_bytes());
    exit::USAGE
}
