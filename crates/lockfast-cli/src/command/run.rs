//! `lockfast run`: take the lock, run a command, let go when nothing of it is left.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Duration;

use lockfast::{Lease, LockName, Locker, Mode, Options, Released};
use lockfast_core::Label;
use lockfast_core::capability::Expiry;
use lockfast_core::error::quote;
use lockfast_core::view::brief;

use super::waiting::wait_for;
use crate::args::{Global, OnLost, Run};
use crate::exit::{Failure, LOST, NOT_ACQUIRED, NOT_EXECUTABLE, Outcome, RUN_FAILED};
use crate::guard::{Job, Supervisor, Verdict};
use crate::held::{self, Held, Hold};
use crate::lease_time::LeaseTime;
use crate::output::Output;
use crate::plan::{self, Store};
use crate::process::lookup;
use crate::process::signals::Signals;
use crate::process::token::TokenSink;

const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// What is to be run, checked.
struct Plan {
    name: LockName,
    mode: Mode,
    time: LeaseTime,
    grace: Duration,
    on_lost: OnLost,
    options: Options,
    label: Label,
    variables: Vec<(OsString, OsString)>,
    path: PathBuf,
    argv: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// With the exit codes of `run`.
///
/// # Cancel safety
/// Not safe: the command would be stopped by its guard.
pub(crate) async fn run(args: Run, global: &Global, output: &Output) -> Outcome {
    let busy = args.exit_busy.unwrap_or(NOT_ACQUIRED);
    let outcome = hold_and_run(args, global, output).await;
    outcome.map_err(|failure| failure.of_run().with_busy_code(busy))
}

async fn hold_and_run(args: Run, global: &Global, output: &Output) -> Outcome {
    let mut token = TokenSink::check(args.fd.as_deref())?;
    let mut plan = Plan::new(&args)?;
    let around = held::around_us();
    if let Some(held) = find_withheld(&plan, &around, global)? {
        token.open(args.token_file.as_deref())?;
        token.write(held.hold.fence)?;
        return become_command(&plan, held, around);
    }
    let store = Store::choose(global, output)?;
    let locker = store.connect_for(plan.label.clone(), output).await?;
    plan.time = plan.time.fit(locker.profile(), output);
    let lock = locker.lock(&plan.name, plan.mode)?.with(plan.options())?;
    let fingerprint = store.fingerprint(&locker);
    if let Some(held) = find_outer(&plan, &around, fingerprint, &locker).await? {
        token.open(args.token_file.as_deref())?;
        token.write(held.hold.fence)?;
        return become_command(&plan, held, around);
    }
    refuse_other_store(&plan, &around, fingerprint, global)?;
    token.open(args.token_file.as_deref())?;
    let mut signals =
        Signals::listen().map_err(|error| Failure::internal("no signal handlers", error))?;
    let guard = wait_for(lock.acquire_full(), &locker, &plan.name, &mut signals, output).await?;
    let job = plan.into_job(&store, &locker, &guard, around, fingerprint);
    let on_lost = job.on_lost;
    let lease = Lease::clone(&guard);
    let (verdict, supervisor) = match token.write(lease.fence()) {
        Ok(()) => supervise(&lease, job, &mut signals, output).await,
        Err(failure) => (Err(failure), None),
    };
    let released = guard.release().await;
    if let Some(supervisor) = supervisor {
        supervisor.dismiss();
    }
    conclude(verdict, released, on_lost, output)
}

async fn supervise<'a>(
    lease: &'a Lease,
    job: Job,
    signals: &mut Signals,
    output: &'a Output,
) -> (Result<Verdict, Failure>, Option<Supervisor<'a>>) {
    match Supervisor::start(lease, job, output) {
        Ok(mut supervisor) => (supervisor.supervise(signals).await, Some(supervisor)),
        Err(failure) => (Err(failure), None),
    }
}

/// The exit code, from how the command ended and what became of the lease.
fn conclude(
    verdict: Result<Verdict, Failure>,
    released: lockfast::Result<Released>,
    on_lost: OnLost,
    output: &Output,
) -> Outcome {
    let lost = match released {
        Ok(Released::Released | Released::StillHeld) => false,
        Ok(Released::AlreadyLost(_)) => true,
        Ok(Released::Unknown { expires_in, error }) => {
            output.warn(&format!(
                "the lock could not be released and expires in {}: {error}",
                brief(expires_in)
            ));
            false
        }
        Err(error) => {
            output.warn(&format!("the lock could not be released and is left to expire: {error}"));
            false
        }
    };
    let verdict = verdict?;
    if verdict.for_lease || (lost && on_lost != OnLost::Warn) {
        return Err(Failure::new(LOST, "the lease was lost while the command ran"));
    }
    Ok(verdict.ending.code())
}

impl Plan {
    fn new(args: &Run) -> Result<Self, Failure> {
        let name = plan::name(&args.name)?;
        let mut time = LeaseTime::of(args.ttl.as_deref().map(plan::ttl).transpose()?);
        let grace = args
            .grace
            .as_deref()
            .map_or(Ok(GRACE_DEFAULT), |typed| plan::span("--grace", typed, Duration::ZERO))?;
        let options = plan::options(&args.claim)?;
        if let Some(renew) = &args.renew {
            let interval = plan::span("--renew", renew, Duration::from_millis(1))?;
            if interval * 2 > time.ttl {
                return Err(Failure::usage(format!(
                    "--renew {} does not fit --ttl {}: two renewals must fit into a lease",
                    brief(interval),
                    brief(time.ttl)
                )));
            }
            time.renew_interval = Some(interval);
        }
        let variables =
            args.env.iter().map(|typed| plan::variable(typed)).collect::<Result<Vec<_>, _>>()?;
        let [command, ..] = args.command.as_slice() else {
            return Err(Failure::usage(format!(
                "the command is missing; write it after --, as in: lockfast run {} -- COMMAND",
                quote(name.as_str())
            )));
        };
        let mode = plan::mode(&args.claim)?;
        let label = plan::label(&args.claim)?;
        let search_path = variables
            .iter()
            .rfind(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os("PATH"));
        let path = lookup::find(command, search_path.as_deref())?;
        Ok(Self {
            name,
            mode,
            time,
            grace,
            on_lost: args.on_lost,
            options,
            label: describe_command(label, &path),
            variables,
            path,
            argv: args.command.clone(),
        })
    }

    /// How the lock is asked for and kept.
    fn options(&self) -> Options {
        let options = self.options.clone().ttl(self.time.ttl);
        match self.time.renew_interval {
            Some(interval) => options.renew_interval(interval),
            None => options,
        }
    }

    fn into_job(
        self,
        store: &Store,
        locker: &Locker,
        lease: &Lease,
        around: Vec<Held>,
        fingerprint: u64,
    ) -> Job {
        let hold = Hold {
            store: fingerprint,
            mode: self.mode,
            fence: lease.fence(),
            is_deadly: self.on_lost == OnLost::Kill,
            name: self.name,
        };
        let mut variables = self.variables;
        variables.extend(environment(&hold));
        let witness = match &locker.profile().expiry {
            Expiry::ProcessDeath { witness } => Some(witness.clone().into_os_string()),
            _ => None,
        };
        Job {
            url: store.url().to_owned(),
            witness,
            is_bound_to_connection: locker.profile().expiry == Expiry::Session,
            ttl: self.time.ttl,
            grace: self.grace,
            on_lost: self.on_lost,
            path: self.path.into_os_string(),
            argv: self.argv,
            set: variables,
            unset: secret_variables(),
            hold,
            around,
        }
    }
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
fn become_command(plan: &Plan, held: Held, around: Vec<Held>) -> Outcome {
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
    Err(Failure::new(NOT_EXECUTABLE, format!("the command cannot be executed: {error}")))
}
