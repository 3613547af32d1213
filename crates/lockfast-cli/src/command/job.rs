//! A command under a lock: the one way that `run`, `once` and `elect` go.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Duration;

use lockfast::{Lease, LockName, Locker, Mode, Released};
use lockfast_core::Label;
use lockfast_core::capability::Expiry;
use lockfast_core::error::quote;
use lockfast_core::view::brief;

use crate::args::{Claim, Global, OnLost, Token, Work};
use crate::exit::{Failure, LOST, NOT_EXECUTABLE, Outcome, RUN_FAILED};
use crate::guard::{Job, OnceTimes, Supervisor, Verdict};
use crate::held::{self, Held, Hold};
use crate::output::Output;
use crate::plan::{self, Store};
use crate::process::lookup;
use crate::process::signals::Signals;
use crate::process::token::TokenSink;

const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// What is to be run, checked.
pub(super) struct Plan {
    pub(super) name: LockName,
    pub(super) mode: Mode,
    on_lost: OnLost,
    grace: Duration,
    label: Label,
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
        let [command, ..] = work.command.as_slice() else {
            return Err(Failure::usage(format!(
                "the command is missing; write it after --, as in: lockfast {verb} {} -- COMMAND",
                quote(name.as_str())
            )));
        };
        let mode = plan::mode(claim)?;
        let label = plan::label(claim)?;
        let search_path = variables
            .iter()
            .rfind(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os("PATH"));
        let path = lookup::find(command, search_path.as_deref())?;
        let label = describe_command(label, &path);
        let argv = work.command.clone();
        Ok(Self { name, mode, on_lost, grace, label, variables, path, argv })
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

/// Where a command is about to run: the store is connected, and no job around us has the lock.
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
        let mut token = TokenSink::check(args.fd.as_deref())?;
        let around = held::around_us();
        if let Some(held) = find_withheld(plan, &around, global)? {
            token.open(args.token_file.as_deref())?;
            token.write(held.hold.fence)?;
            return Err(become_command(plan, held, around));
        }
        let store = Store::choose(global, output)?;
        let locker = store.connect_for(plan.label.clone(), output).await?;
        let fingerprint = store.fingerprint(&locker);
        if let Some(held) = find_outer(plan, &around, fingerprint, &locker).await? {
            token.open(args.token_file.as_deref())?;
            token.write(held.hold.fence)?;
            return Err(become_command(plan, held, around));
        }
        refuse_other_store(plan, &around, fingerprint, global)?;
        token.open(args.token_file.as_deref())?;
        let signals =
            Signals::listen().map_err(|error| Failure::internal("no signal handlers", error))?;
        Ok(Self { locker, signals, store, fingerprint, around, token })
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
        if let Err(failure) = self.token.write(lease.fence()) {
            return (Err(failure), None);
        }
        match Supervisor::start(lease, self.job(plan, lease, terms), output) {
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

/// Runs the command in our place: the job around us holds the lock and looks after it.
fn become_command(plan: &Plan, held: Held, around: Vec<Held>) -> Failure {
    let mut command = std::process::Command::new(&plan.path);
    command.arg0(&plan.argv[0]).args(&plan.argv[1..]);
    command.envs(plan.variables.iter().map(|(name, value)| (name, value)));
    command.envs(environment(&held.hold));
    command.env(held::VARIABLE, held::with(around, held));
    for name in secret_variables() {
        command.env_remove(name);
    }
    let _ = std::io::stdout().flush();
    let error = command.exec();
    Failure::new(NOT_EXECUTABLE, format!("the command cannot be executed: {error}"))
}
