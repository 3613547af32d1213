//! What was typed, and nothing else: no defaults from elsewhere, no checks beyond the form.
//! What it means is decided in [`plan`](crate::plan).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::examples;

/// Run jobs under a lock, and manage locks
///
/// Durations have a unit: 500ms, 30s, 5m, 2h, 1m30s.
///
/// The store is --on, else $LOCKFAST_URL, else `url` in the config file, else the embedded store in the
/// user's state directory. `lockfast env` prints which one that is, and why.
#[derive(Debug, Parser)]
#[command(
    name = "lockfast",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = examples::MAIN
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What goes with every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The store: a URL such as `redis://HOST`, or the NAME of a [store.NAME] in the config file
    #[arg(long, global = true, value_name = "URL|NAME", help_heading = "Store and output")]
    pub(crate) on: Option<OsString>,
    /// Read this file instead of ~/.config/lockfast/config.toml
    #[arg(long, global = true, value_name = "PATH", help_heading = "Store and output")]
    pub(crate) config: Option<PathBuf>,
    /// Print data and messages as JSON; the same as --format json
    #[arg(long, global = true, conflicts_with = "format", help_heading = "Store and output")]
    pub(crate) json: bool,
    /// How to print data
    #[arg(long, global = true, value_enum, help_heading = "Store and output")]
    pub(crate) format: Option<Format>,
    /// Log to stderr; repeat for more detail
    #[arg(long, short, global = true, action = ArgAction::Count,
          help_heading = "Store and output")]
    pub(crate) verbose: u8,
}

impl Global {
    /// Only where the store is.
    pub(crate) fn with(on: Option<&OsStr>, config: Option<&OsStr>) -> Self {
        let (on, config) = (on.map(OsStr::to_owned), config.map(PathBuf::from));
        Self { on, config, json: false, format: None, verbose: 0 }
    }
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Human,
    /// For programs: one JSON value, or one on each line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Once(Once),
    Elect(Elect),
    Refresh(Refresh),
    Fence(Fence),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Show(Show),
    List(List),
    Watch(Watch),
    ForceRelease(ForceRelease),
    Migrate(Migrate),
    Doctor(Doctor),
    Env(Env),
    Bench(Bench),
    Torture(Torture),
    Completions(Completions),
    Man(Man),
}

impl Command {
    /// Whether nothing is to be told about waiting and a taken lock.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Run(args) => args.quiet.quiet,
            Self::Once(args) => args.quiet.quiet,
            Self::Elect(args) => args.quiet.quiet,
            Self::Refresh(args) => args.quiet.quiet,
            Self::Acquire(args) => args.quiet.quiet,
            _ => false,
        }
    }
}

/// What is not printed.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Quiet {
    /// Print nothing about waiting or a taken lock; errors are still printed
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// How a lock is asked for.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Claim {
    /// Maximum time to wait [default: as long as it takes]
    #[arg(long, short, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wait: Option<OsString>,
    /// Do not wait at all
    #[arg(long = "try", short = 'n', conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Hold it together with other --shared holders
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Hold one of N permits; all users of the name must pass the same N
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u32>,
    /// Free text shown to people who look at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<OsString>,
    /// How long others are kept out after a lease that expired without being released
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) lock_delay: Option<OsString>,
}

/// Run a command while holding a lock
///
/// The lock is renewed while the command runs and released when it has ended, together with
/// everything that it started. If the lease is lost, the command is stopped before another holder
/// can start. The command sees LOCKFAST_NAME and LOCKFAST_FENCE.
///
/// Exit status: the command's own; 75 not acquired (or the one given with -E); 120 the lease was
/// lost; 125 Lockfast failed; 126 the command cannot be executed; 127 it was not found; 128+N it
/// was ended by signal N.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lockfast run [OPTIONS] <NAME> [--] <COMMAND>...\n       \
                      lockfast run [OPTIONS] <NAME> -c <SHELL COMMAND>",
    after_help = examples::RUN
)]
pub(crate) struct Run {
    /// The lock
    pub(crate) name: OsString,
    #[command(flatten)]
    pub(crate) claim: Claim,
    #[command(flatten)]
    pub(crate) times: Times,
    /// What happens to the command when the lease is lost
    #[arg(long, value_enum, default_value = "kill")]
    pub(crate) on_lost: OnLost,
    /// Exit with N when the lock is not acquired [default: 75]
    #[arg(short = 'E', value_name = "N")]
    pub(crate) exit_busy: Option<u8>,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
    #[command(flatten)]
    pub(crate) token: Token,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// How a lease is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Times {
    /// How long a lease lasts without renewal [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<OsString>,
    /// How often it is renewed [default: a third of the ttl]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) renew: Option<OsString>,
}

/// Who is told the fence, beside the command.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Token {
    /// Write the fence to this file before the command starts
    #[arg(long, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,
    /// Write the fence to this open file descriptor before the command starts
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) fd: Option<OsString>,
}

/// What is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// How long the command may take to stop before it is killed [default: 5s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) grace: Option<OsString>,
    /// Set a variable in the command's environment
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Run this line with `sh -c` instead of a command
    #[arg(short = 'c', value_name = "SHELL COMMAND", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments; no shell is involved. Options of Lockfast stand before it; with
    /// -- before it, it may start with a -
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Run a scheduled command once for all machines that start it
///
/// The first machine to start it runs it. The others do not wait: they skip it with exit status 75 and
/// say who runs it and until when. The lock is held for at most --at-most, which nothing extends: a
/// command that would take longer is stopped. It is held for at least --at-least, even if the command
/// ends earlier, so that machines whose clocks differ do not run it twice.
///
/// Exit status: the codes of `run`; 75 skipped (or the one given with -E); 120 the lease was lost, or
/// --at-most was over.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lockfast once [OPTIONS] --at-most <DURATION> <NAME> [--] <COMMAND>...",
    after_help = examples::ONCE
)]
pub(crate) struct Once {
    /// The lock
    pub(crate) name: OsString,
    /// How long the command may take; if everything dies, the lock is free after that
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) at_most: OsString,
    /// How long after its start nobody else runs it [default: until it ends]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) at_least: Option<OsString>,
    /// Free text shown to people who look at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<OsString>,
    /// Exit with N when it is skipped [default: 75]
    #[arg(short = 'E', value_name = "N")]
    pub(crate) exit_busy: Option<u8>,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
    #[command(flatten)]
    pub(crate) token: Token,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// Keep a command running on exactly one machine
///
/// Waits to be elected, runs the command while it leads, stops it when it is deposed, and stands for
/// election again. When the command ends by itself, the next in line is elected at once, and this one
/// exits. TERM and INT stop the command, within --grace, and then the next is elected. The command
/// sees LOCKFAST_NAME, and the term as LOCKFAST_FENCE.
///
/// Exit status: the command's own when it ends by itself or by a signal to `elect`; 125 Lockfast
/// failed; 126 the command cannot be executed; 127 it was not found; 128+N ended by signal N.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lockfast elect [OPTIONS] <NAME> [--] <COMMAND>...",
    after_help = examples::ELECT
)]
pub(crate) struct Elect {
    /// The lock; who has it leads
    pub(crate) name: OsString,
    #[command(flatten)]
    pub(crate) times: Times,
    /// Free text shown to people who look at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<OsString>,
    /// How long others are kept out after a lease that expired without being released
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) lock_delay: Option<OsString>,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// Print a command's output, and run it only if the stored output is not fresh
///
/// A fresh value is printed, and nothing is run. Otherwise the first who asks runs the command
/// under the lock refresh:NAME, as `run` does; what it prints on standard output is stored and
/// printed. The others wait for it and print the same, or with --stale-for print the last value at
/// once. If the command fails, nothing is stored, and those who waited are told why. A value has at
/// most 65519 bytes.
///
/// Inside a job that holds refresh:NAME, the command is run and its output printed; storing it is
/// left to the refresh around it.
///
/// Exit status: 0 the value was printed; 75 this one waited, and the command failed elsewhere; 120 the
/// lease was lost; 125 Lockfast failed, or the output is too long for a value. Otherwise the codes of
/// `run`: the command's own for the one who ran it.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lockfast refresh [OPTIONS] --for <DURATION> <NAME> [--] <COMMAND>...",
    after_help = examples::REFRESH
)]
pub(crate) struct Refresh {
    /// The value; its lock is refresh:NAME
    pub(crate) name: OsString,
    /// How long it is fresh after it was stored
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) fresh_for: OsString,
    /// How long after that it is good enough while somebody computes the next
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) stale_for: Option<OsString>,
    /// Free text shown to people who look at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<OsString>,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// Check a fence where data is written, so that a stale holder is rejected
///
/// A gate remembers the highest fence that it has seen. An equal or higher one passes, a lower one is
/// refused. In a job of `lockfast run`, --lock and --fence default to those of the job.
///
/// Exit status: 0 it passes; 75 it is stale, and the highest fence seen is printed; 64 wrong usage; 69
/// the database is busy or cannot be reached; 77 not permitted; 78 the gate does not exist or holds
/// something else. With a command: its own, 75 for a stale fence, and otherwise the codes of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::FENCE)]
pub(crate) struct Fence {
    #[command(subcommand)]
    pub(crate) step: FenceStep,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FenceStep {
    /// Check the fence of a write
    ///
    /// With a command, which needs --file, the gate is held until the command and what it started have
    /// ended, so that nobody else passes meanwhile. Without one, what is written after the check can
    /// be too late: a pause between the two is the very case that fences are for. A command that
    /// passes the same gate again waits for itself.
    #[command(after_help = examples::FENCE_CHECK)]
    Check {
        #[command(flatten)]
        gate: Gate,
        /// The command that writes, and its arguments; no shell is involved
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Raise the fence before anything is read
    ///
    /// This is the first step of a new holder: from then on, late writes of earlier holders are refused.
    #[command(after_help = examples::FENCE_OPEN)]
    Open {
        #[command(flatten)]
        gate: Gate,
    },
}

/// A gate, and what is to pass it.
#[derive(Debug, clap::Args)]
pub(crate) struct Gate {
    #[command(flatten)]
    pub(crate) place: GatePlace,
    /// The table of the fences in the database [default: lockfast_fences]
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) table: Option<OsString>,
    /// The lock that guards what is written [default: $LOCKFAST_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: Option<OsString>,
    /// The fence [default: $LOCKFAST_FENCE]
    #[arg(long, value_name = "FENCE", allow_hyphen_values = true)]
    pub(crate) fence: Option<OsString>,
}

/// Where a gate is.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct GatePlace {
    /// Keep the gate in this file, for processes of this machine; it is created if it is missing
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Keep the gate in a table of this database: sqlite:PATH, postgres://HOST/DATABASE or
    /// mysql://USER@HOST/DATABASE; - reads the URL from standard input, so that nobody sees a password
    #[arg(long, value_name = "URL")]
    pub(crate) sql: Option<OsString>,
}

/// What happens to the command when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
pub(crate) enum OnLost {
    /// TERM, then KILL before another holder can start
    Kill,
    /// TERM only
    Term,
    /// Only a message
    Warn,
}

/// Take a lock that nothing renews, for scripts
///
/// Prints the holder id, the fence and the deadline for a shell to evaluate, or a line that fails
/// when it is evaluated. The holder id is a secret: whoever has it can renew and release the lock.
/// Others see the process that called `acquire` as the holder, because `acquire` itself ends.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::ACQUIRE)]
pub(crate) struct Acquire {
    /// The lock
    pub(crate) name: OsString,
    /// How long to hold it
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: OsString,
    #[command(flatten)]
    pub(crate) claim: Claim,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
}

/// Extend a lock that `acquire` took
#[derive(Debug, clap::Args)]
#[command(after_help = examples::RENEW)]
pub(crate) struct Renew {
    /// The lock
    pub(crate) name: OsString,
    /// The holder id that `acquire` printed, or - to read it from standard input
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) holder: OsString,
    /// How long to hold it from now on
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: OsString,
}

/// Release a lock that `acquire` took
#[derive(Debug, clap::Args)]
#[command(after_help = examples::RELEASE)]
pub(crate) struct Release {
    /// The lock
    pub(crate) name: OsString,
    /// The holder id that `acquire` printed, or - to read it from standard input
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) holder: OsString,
}

/// Show who holds a lock
#[derive(Debug, clap::Args)]
#[command(after_help = examples::SHOW)]
pub(crate) struct Show {
    /// The lock
    pub(crate) name: OsString,
}

/// List the locks that are held or waited for
#[derive(Debug, clap::Args)]
#[command(after_help = examples::LIST)]
pub(crate) struct List {
    /// Only names that start with this text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    /// Print at most N locks
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

/// Print what happens to locks, as it happens
#[derive(Debug, clap::Args)]
#[command(after_help = examples::WATCH)]
pub(crate) struct Watch {
    /// Only this lock
    pub(crate) name: Option<OsString>,
}

/// Take a lock away from its holder
///
/// The holder is told that its lease was lost. Whatever it does at that moment may overlap with
/// the next holder, unless fences are checked.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::FORCE_RELEASE)]
pub(crate) struct ForceRelease {
    /// The lock
    pub(crate) name: OsString,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why; the holder is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: OsString,
    /// Only if it is held with this fence
    #[arg(long, value_name = "FENCE", allow_hyphen_values = true)]
    pub(crate) expect_fence: Option<OsString>,
}

/// Measure how fast this store is for locks
#[derive(Debug, clap::Args)]
#[command(after_help = examples::BENCH)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: BenchKind,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchKind {
    /// Acquire and release uncontended locks
    #[command(after_help = examples::BENCH_CYCLE)]
    Cycle {
        /// Number of tasks, each with a lock of its own
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        tasks: u32,
        /// Duration in seconds
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Pass one lock around, each waiter with a connection of its own
    #[command(after_help = examples::BENCH_HANDOVER)]
    Handover {
        /// Number of waiters
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1_000))]
        waiters: u32,
        /// Duration in seconds
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Renew leases of 30 s, and measure what that costs
    #[command(after_help = examples::BENCH_RENEW)]
    Renew {
        /// Number of leases
        #[arg(long, default_value_t = 10_000,
              value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        leases: u32,
        /// Duration in seconds
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
}

/// See whether a store keeps its promises while processes die and connections break
///
/// A fleet of processes takes, waits for, cancels, extends, revokes, loses and releases a few locks
/// while faults are injected. Each process records what it saw, and a referee judges the record: locks
/// that were granted twice, fences that did not rise, late losses, waiters that starved, locks that were
/// left behind.
///
/// With --on it runs on an existing store: it uses names that start with torture-SEED- and touches
/// nothing else there, releases everything at the end, and does nothing to the servers. With --with it
/// starts servers of its own and breaks those too.
///
/// Exit status: 0 nothing was found; 1 something was found that this store does not promise to
/// prevent; 2 a promise was broken.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::TORTURE)]
pub(crate) struct Torture {
    /// Start servers of this kind for the run, and break them too
    #[arg(long = "with", value_name = "KIND")]
    pub(crate) with: Option<String>,
    /// Faults to inject: all, none, or a list separated by commas
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(crate) faults: String,
    /// Duration in minutes; 0.5 is half a minute
    #[arg(long, value_name = "M", default_value_t = 1.0, allow_hyphen_values = true)]
    pub(crate) minutes: f64,
    /// Seed of the schedule of faults [default: a random one, which is printed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 53))]
    pub(crate) seed: Option<u64>,
    /// Number of processes
    #[arg(long, value_name = "P", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Number of tasks in each process
    #[arg(long, value_name = "T", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) tasks: u32,
    /// How long a lease lasts without renewal [default: 2s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<OsString>,
    /// Directory for the record and the report [default: a new lockfast-torture-SEED]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    /// Print the schedule of faults and do nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// Only judge the record of an earlier run: its directory or its history.jsonl
    #[arg(long, value_name = "PATH", conflicts_with_all = ["with", "seed", "plan", "ttl"])]
    pub(crate) judge: Option<PathBuf>,
}

/// Create or upgrade the schema of a store that has one
///
/// Tables are created on first use if the user may create them. Otherwise run this once as a user who
/// may, and again after an upgrade of Lockfast. Running it again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::MIGRATE)]
pub(crate) struct Migrate {}

/// Inspect a store and this machine, and say what locks there guarantee
///
/// Each check is ok, warn (locks work, but something that people expect of them does not hold),
/// unsafe (a lock can be granted twice) or cannot check, with the fact seen, what it means for a lock
/// and what to do. Nothing is changed. What this user may not see cannot be checked; the missing
/// privilege is named.
///
/// Exit status: 0 all ok, or some could not be checked; 1 the worst is a warning; 2 something is
/// unsafe; 69 the store cannot be reached.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::DOCTOR)]
pub(crate) struct Doctor {
    /// Print only what is not ok, and the guarantee
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Print which store is used, and why
///
/// The store comes from --on, $LOCKFAST_URL, the config file or the default, in this order. This
/// command connects to nothing and prints no password.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::ENV)]
pub(crate) struct Env {}

/// Print a completion script for a shell
///
/// bash, zsh and fish also complete the names of locks: they ask the store, for a second at most.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Debug, clap::Args)]
#[command(after_help = examples::MAN)]
pub(crate) struct Man {
    /// Write the pages of all commands into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        super::Args::command().debug_assert();
    }
}
