//! A command under a lock: the one way that `run`, `once`, `elect` and `refresh` go.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast::{Lease, LockName, Locker, Mode, Released};
use lockfast_core::Label;
use lockfast_core::capability::Expiry;
use lockfast_core::error::quote;
use lockfast_core::view::brief;
use rustix::process::getpid;

use crate::args::{Claim, Global, OnLost, Token, Work};
use crate::exit::{Failure, LOST, NOT_EXECUTABLE, Outcome, RUN_FAILED};
use crate::guard::{Ending, Job, OnceTimes, Supervisor, Verdict};
use crate::held::{self, Held, Hold};
use crate::output::Output;
use crate::plan::{self, Store};
use crate::process::capture::Capture;
use crate::process::signals::Signals;
use crate::process::token::TokenSink;
use crate::process::{lookup, trampoline};

const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// What is to be run, checked.
pub(super) struct Plan {
    pub(super) name: LockName,
    pub(super) mode: Mode,
    on_lost: OnLost,
    grace: Duration,
    pub(super) label: Label,
    variables: Vec<(OsString, OsString)>,
    path: PathBuf,
    argv: Vec<OsString>,
}

impl Plan {
    /// For the command line that starts with `lockfast VERB`.
    pub(super) fn new(
        verb: &str,
        name: &OsStr,
        claim: &Claim,
        on_lost: OnLost,
        work: &Work,
    ) -> Result<Self, Failure> {
        let name = plan::name(name)?;
        let grace = work
            .grace
            .as_deref()
            .map_or(Ok(GRACE_DEFAULT), |typed| plan::span("--grace", typed, Duration::ZERO))?;
        let variables =
            work.env.iter().map(|typed| plan::variable(typed)).collect::<Result<Vec<_>, _>>()?;
        let argv = argv(work)?;
        let example = || format!("as in: lockfast {verb} {} -- COMMAND", quote(name.as_str()));
        let command = match argv.first() {
            Some(command) if command != "--" => command,
            Some(_) => {
                return Err(Failure::usage(format!("-- is given twice; write one, {}", example())));
            }
            None => {
                return Err(Failure::usage(format!(
                    "the command is missing; write it after the name, {}",
                    example()
                )));
            }
        };
        let mode = plan::mode(claim)?;
        let label = plan::label(claim)?;
        let search_path = variables
            .iter()
            .rfind(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os("PATH"));
        let path = lookup::find(command, search_path.as_deref(), "the lock was not taken")?;
        let label = describe_command(label, &path);
        Ok(Self { name, mode, on_lost, grace, label, variables, path, argv })
    }

    /// The same under another lock, whose name comes from what was typed.
    pub(super) fn under(
        self,
        lock_of: impl FnOnce(&LockName) -> lockfast::Result<LockName>,
    ) -> Result<Self, Failure> {
        Ok(Self { name: lock_of(&self.name)?, ..self })
    }
}

/// The command and its arguments, of a shell if a line for one was given. One that is empty comes from a
/// variable that is not set, and would succeed.
fn argv(work: &Work) -> Result<Vec<OsString>, Failure> {
    match &work.line {
        Some(line) if line.as_encoded_bytes().trim_ascii().is_empty() => Err(Failure::usage(
            "the shell command is empty; write it after -c, as in -c 'make all'",
        )),
        Some(line) => Ok(vec!["sh".into(), "-c".into(), line.clone()]),
        None => Ok(work.command.clone()),
    }
}

/// How the lock of a job is held.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The length of its lease.
    pub(super) ttl: Duration,
    /// The times of a lease that is not renewed.
    pub(super) once: Option<OnceTimes>,
    /// Whether TERM and INT end the command for certain, or only reach it.
    pub(super) ends_by_signal: bool,
}

/// Where a command is about to run.
pub(super) enum Place {
    /// In a job that has the lock.
    Inside(Inside),
    /// Where nobody around us has it.
    Outside(Box<Site>),
}

/// A job around us that has the lock and looks after it.
pub(super) struct Inside {
    held: Held,
    around: Vec<Held>,
}

impl Inside {
    /// Runs the command in our place.
    fn become_command(self, plan: &Plan) -> Failure {
        let mut command = Command::new(&plan.path);
        command.arg0(&plan.argv[0]).args(&plan.argv[1..]);
        self.furnish(plan, &mut command);
        let _ = std::io::stdout().flush();
        cannot_execute(&command.exec())
    }

    /// Runs the command, which ends when this process does: how it ended, and what it printed unless
    /// that is too long.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub(super) fn output(
        self,
        plan: &Plan,
        bytes_max: usize,
        output: &Output,
    ) -> Result<(Ending, Option<Vec<u8>>), Failure> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("lockfast").args(trampoline::arguments(getpid(), false, output));
        command.arg(&plan.path).args(&plan.argv).stdout(Stdio::piped());
        self.furnish(plan, &mut command);
        let mut child = command.spawn().map_err(|error| cannot_execute(&error))?;
        let mut printed = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(bytes_max as u64 + 1).read_to_end(&mut printed);
            read.map_err(|error| Failure::internal("the output cannot be read", error))?;
        }
        let status = child.wait().map_err(|error| Failure::internal("no status", error))?;
        Ok((status.into(), Some(printed).filter(|printed| printed.len() <= bytes_max)))
    }

    /// What the command sees of the lock.
    fn furnish(self, plan: &Plan, command: &mut Command) {
        command.envs(plan.variables.iter().map(|(name, value)| (name, value)));
        command.envs(environment(&self.held.hold));
        command.env(held::VARIABLE, held::with(self.around, self.held));
        for name in secret_variables() {
            command.env_remove(name);
        }
    }
}

fn cannot_execute(error: &std::io::Error) -> Failure {
    Failure::new(NOT_EXECUTABLE, format!("the command cannot be executed: {error}"))
}

/// The store is connected, and no job around us has the lock.
pub(super) struct Site {
    pub(super) locker: Locker,
    pub(super) signals: Signals,
    store: Store,
    fingerprint: u64,
    around: Vec<Held>,
    token: TokenSink,
}

impl Site {
    /// Connects. Inside a job that has the lock, the command runs in our place and this does not
    /// return.
    ///
    /// # Errors
    /// When the lock can not be asked for here, or the command cannot be executed.
    ///
    /// # Cancel safety
    /// Safe: nothing is held yet.
    pub(super) async fn prepare(
        plan: &Plan,
        args: &Token,
        global: &Global,
        output: &Output,
    ) -> Result<Self, Failure> {
        match Self::enter(plan, args, global, output).await? {
            Place::Inside(inside) => Err(inside.become_command(plan)),
            Place::Outside(site) => Ok(*site),
        }
    }

    /// Connects, unless a job around us has the lock.
    ///
    /// # Errors
    /// When the lock can not be asked for here.
    ///
    /// # Cancel safety
    /// Safe: nothing is held yet.
    pub(super) async fn enter(
        plan: &Plan,
        args: &Token,
        global: &Global,
        output: &Output,
    ) -> Result<Place, Failure> {
        let mut token = TokenSink::check(args.fd.as_deref())?;
        let around = held::around_us();
        if let Some(held) = find_withheld(plan, &around, global)? {
            token.open(args.token_file.as_deref())?;
            token.write(held.hold.fence)?;
            return Ok(Place::Inside(Inside { held, around }));
        }
        let store = Store::choose(global, output)?;
        let locker = store.connect_for(plan.label.clone(), output).await?;
        let fingerprint = store.fingerprint(&locker);
        if let Some(held) = find_outer(plan, &around, fingerprint, &locker).await? {
            token.open(args.token_file.as_deref())?;
            token.write(held.hold.fence)?;
            return Ok(Place::Inside(Inside { held, around }));
        }
        refuse_other_store(plan, &around, fingerprint, global)?;
        token.open(args.token_file.as_deref())?;
        let signals =
            Signals::listen().map_err(|error| Failure::internal("no signal handlers", error))?;
        Ok(Place::Outside(Box::new(Self { locker, signals, store, fingerprint, around, token })))
    }

    /// Runs the command under the lease, to its end or the lease's. Afterwards nothing of it is left,
    /// and the lock may be released; the supervisor is dismissed after that.
    ///
    /// # Cancel safety
    /// Not safe: the command would be stopped by its guard.
    pub(super) async fn supervise<'a>(
        &mut self,
        plan: &Plan,
        lease: &'a Lease,
        terms: Terms,
        output: &'a Output,
    ) -> (Result<Verdict, Failure>, Option<Supervisor<'a>>) {
        self.supervise_to(plan, lease, terms, None, output).await
    }

    /// The same, and what the command printed, unless that is longer than it may be: then its output
    /// is closed.
    ///
    /// # Cancel safety
    /// Not safe: the command would be stopped by its guard.
    pub(super) async fn supervise_captured<'a>(
        &mut self,
        plan: &Plan,
        lease: &'a Lease,
        terms: Terms,
        bytes_max: usize,
        output: &'a Output,
    ) -> (Result<Verdict, Failure>, Option<Supervisor<'a>>, Result<Option<Vec<u8>>, Failure>) {
        let (mut capture, stdout) = match Capture::new(bytes_max) {
            Ok(both) => both,
            Err(error) => return (Err(Failure::internal("no pipe", error)), None, Ok(None)),
        };
        let (verdict, supervisor) = tokio::select! {
            ended = self.supervise_to(plan, lease, terms, Some(stdout), output) => ended,
            never = capture.fill() => match never {},
        };
        let printed = capture.finish();
        let failed = |error| Failure::internal("the command's output cannot be read", error);
        (verdict, supervisor, printed.map_err(failed))
    }

    async fn supervise_to<'a>(
        &mut self,
        plan: &Plan,
        lease: &'a Lease,
        terms: Terms,
        stdout: Option<OwnedFd>,
        output: &'a Output,
    ) -> (Result<Verdict, Failure>, Option<Supervisor<'a>>) {
        if let Err(failure) = self.token.write(lease.fence()) {
            return (Err(failure), None);
        }
        let job = Job { stdout, ..self.job(plan, lease, terms) };
        match Supervisor::start(lease, job, output) {
            Ok(mut supervisor) => (supervisor.supervise(&mut self.signals).await, Some(supervisor)),
            Err(failure) => (Err(failure), None),
        }
    }

    fn job(&self, plan: &Plan, lease: &Lease, terms: Terms) -> Job {
        let hold = Hold {
            store: self.fingerprint,
            mode: plan.mode,
            fence: lease.fence(),
            is_deadly: plan.on_lost == OnLost::Kill,
            name: plan.name.clone(),
        };
        let mut variables = plan.variables.clone();
        variables.extend(environment(&hold));
        let expiry = &self.locker.profile().expiry;
        let witness = match expiry {
            Expiry::ProcessDeath { witness } => Some(witness.clone().into_os_string()),
            _ => None,
        };
        Job {
            url: self.store.url().to_owned(),
            witness,
            is_bound_to_connection: *expiry == Expiry::Session,
            ttl: terms.ttl,
            once: terms.once,
            ends_by_signal: terms.ends_by_signal,
            grace: plan.grace,
            on_lost: plan.on_lost,
            path: plan.path.clone().into_os_string(),
            argv: plan.argv.clone(),
            set: variables,
            unset: secret_variables(),
            stdout: None,
            hold,
            around: self.around.clone(),
        }
    }
}

/// The exit code, from how the command ended and what became of the lease.
pub(super) fn conclude(
    verdict: Result<Verdict, Failure>,
    released: lockfast::Result<Released>,
    on_lost: OnLost,
    output: &Output,
) -> Outcome {
    let lost = match released {
        Ok(Released::AlreadyLost(_)) => true,
        Ok(Released::Unknown { expires_in, error }) => {
            output.warn(&format!(
                "the lock could not be released and expires in {}: {error:#}",
                brief(expires_in)
            ));
            false
        }
        Ok(_) => false,
        Err(error) => {
            output
                .warn(&format!("the lock could not be released and is left to expire: {error:#}"));
            false
        }
    };
    let verdict = verdict?;
    if verdict.for_lease || (lost && on_lost != OnLost::Warn) {
        return Err(Failure::new(LOST, "the lease was lost while the command ran"));
    }
    Ok(verdict.ending.code())
}

/// Names the command in the label, unless the user said something else.
fn describe_command(label: Label, path: &std::path::Path) -> Label {
    let command = path.file_name().map(|name| name.to_string_lossy().into_owned());
    match (&label.text, command) {
        (None, Some(command)) => label.clone().with_text(&command).unwrap_or(label),
        _ => label,
    }
}

/// What the command sees of the lock and of the store, but for [`held::VARIABLE`].
fn environment(hold: &Hold) -> Vec<(OsString, OsString)> {
    let mut variables = vec![
        ("LOCKFAST_NAME".into(), hold.name.as_str().into()),
        ("LOCKFAST_FENCE".into(), hold.fence.to_string().into()),
    ];
    variables.extend(plan::withhold());
    variables
}

/// Our variables that must not reach the command.
fn secret_variables() -> Vec<OsString> {
    plan::withhold().map(|_| plan::URL_VARIABLE.into()).into_iter().collect()
}

/// The hold around us when the store's URL was kept from us. The store cannot be asked then, but a
/// guard above us that stops everything below it when the lease ends vouches for it.
fn find_withheld(plan: &Plan, around: &[Held], global: &Global) -> Result<Option<Held>, Failure> {
    let Some(store) = plan::withheld(global) else { return Ok(None) };
    let same = |held: &&Held| held.hold.store == store && held.hold.name == plan.name;
    let found = around.iter().rev().find(same).filter(|held| held.hold.is_deadly);
    found.map(|held| covering(plan, held)).transpose()
}

/// The hold around us that makes taking the lock unnecessary, if the store confirms it.
async fn find_outer(
    plan: &Plan,
    around: &[Held],
    store: u64,
    locker: &Locker,
) -> Result<Option<Held>, Failure> {
    let same = |held: &&Held| held.hold.store == store && held.hold.name == plan.name;
    let Some(held) = around.iter().rev().find(same) else { return Ok(None) };
    let lock = locker.inspect(&plan.name).await?;
    if !lock.holders.iter().any(|holder| holder.fence == Some(held.hold.fence)) {
        // It was lost or released since; then we are as good as anybody else.
        return Ok(None);
    }
    covering(plan, held).map(Some)
}

/// The same hold, if it is as good as what was asked for.
fn covering(plan: &Plan, held: &Held) -> Result<Held, Failure> {
    if held.hold.covers(plan.mode) {
        return Ok(held.clone());
    }
    Err(Failure::new(
        RUN_FAILED,
        format!(
            "lock {} is held {} around this command, so asking for it {} would wait for itself; \
             ask for it {} outside",
            quote(plan.name.as_str()),
            held.hold.mode,
            plan.mode,
            plan.mode
        ),
    ))
}

/// Refuses a lock that is held around us in another store, unless ours was chosen on purpose: who
/// calls a script in a job means the job's lock.
fn refuse_other_store(
    plan: &Plan,
    around: &[Held],
    store: u64,
    global: &Global,
) -> Result<(), Failure> {
    let mut same_name = around.iter().filter(|held| held.hold.name == plan.name).peekable();
    let is_elsewhere = same_name.peek().is_some() && same_name.all(|held| held.hold.store != store);
    if !is_elsewhere || global.on.is_some() || global.config.is_some() {
        return Ok(());
    }
    Err(Failure::new(
        RUN_FAILED,
        format!(
            "lock {} is held around this command, but in another store than this one; give --on to \
             say which store is meant",
            quote(plan.name.as_str())
        ),
    ))
}
