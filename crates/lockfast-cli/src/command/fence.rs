//! `lockfast fence`: check a fence where something is written, for scripts.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use lockfast::fence::FileGate;
use lockfast::fence::sql::TableGate;
use lockfast::{Error, ErrorKind, Fence as Number, FencingToken, GateDatabase, LockName, Retry};
use serde_json::json;

use crate::args::{Fence, FenceStep, Gate};
use crate::exit::{CONFIG, Failure, NOT_EXECUTABLE, Outcome, UNAVAILABLE};
use crate::output::Output;
use crate::plan;
use crate::process::{descriptor, lookup};

/// Lets the fence pass, or refuses it.
///
/// # Errors
/// When it is stale, and when it cannot be checked.
///
/// # Cancel safety
/// When dropped before its end, the fence may have been raised.
pub(crate) async fn run(args: &Fence, output: &Output) -> Outcome {
    match &args.step {
        FenceStep::Check { gate, command } if !command.is_empty() => {
            run_inside(gate, command, output).map_err(Failure::of_run)
        }
        FenceStep::Check { gate, .. } | FenceStep::Open { gate } => {
            let claim = Claim::new(gate)?;
            let passed = match &gate.place.file {
                Some(path) => claim.file(path)?.check(&claim.token).map(drop),
                None => claim.pass_database(gate, output).await?,
            };
            claim.report(passed, output)?;
            if output.json() {
                output.value(&claim.describe(true, claim.token.fence))?;
            }
            Ok(0)
        }
    }
}

/// Becomes the command with the gate held: the kernel opens it when nothing is left of the command.
fn run_inside(gate: &Gate, command: &[OsString], output: &Output) -> Outcome {
    let claim = Claim::new(gate)?;
    let [name, arguments @ ..] = command else { return Ok(0) };
    let path = lookup::find(name, std::env::var_os("PATH").as_deref(), "nothing was checked")?;
    let Some(file) = &gate.place.file else {
        return Err(Failure::usage(
            "--sql takes no command: a database checks in the transaction that writes; run the \
             gate's statement there, or use --file",
        ));
    };
    let gate = claim.file(file)?;
    let passage = claim.report(gate.check(&claim.token), output)?;
    let _open_in_the_command = descriptor::inheritable(&passage)
        .map_err(|error| Failure::internal("the gate cannot be handed to the command", error))?;
    let error = Command::new(path).arg0(name).args(arguments).exec();
    Err(Failure::new(NOT_EXECUTABLE, format!("the command cannot be executed: {error}")))
}

/// Which fence is to pass the gate of which lock.
struct Claim {
    gate: LockName,
    token: FencingToken,
}

impl Claim {
    /// What was typed, or what the job around us has. The fence of a job belongs to its lock, so that
    /// the gate of another refuses it.
    fn new(args: &Gate) -> Result<Self, Failure> {
        let held = variable("LOCKFAST_NAME").map(|name| plan::name(&name)).transpose()?;
        let gate = match (&args.lock, &held) {
            (Some(typed), _) => plan::name(typed)?,
            (None, Some(held)) => held.clone(),
            (None, None) => return Err(missing("lock", "--lock", "$LOCKFAST_NAME")),
        };
        let (fence, lock) = match (&args.fence, variable("LOCKFAST_FENCE")) {
            (Some(typed), _) => (typed.clone(), gate.clone()),
            (None, Some(fence)) => (fence, held.unwrap_or_else(|| gate.clone())),
            (None, None) => return Err(missing("fence", "--fence", "$LOCKFAST_FENCE")),
        };
        let fence = Number::parse(plan::text(&fence, "the fence")?)?;
        Ok(Self { gate, token: FencingToken { lock, fence } })
    }

    fn file(&self, path: &Path) -> Result<FileGate, Failure> {
        FileGate::new(&self.gate, path).map_err(explain)
    }

    /// Asks the table in a database. The outer failures are of what was typed.
    async fn pass_database(
        &self,
        args: &Gate,
        output: &Output,
    ) -> Result<lockfast::Result<()>, Failure> {
        let typed = args.place.sql.as_deref().unwrap_or_default();
        let url = plan::secret(typed, "database")?;
        if typed != "-" && plan::holds_credentials(&url) {
            output.warn(
                "the password in the URL of --sql is visible to everybody who can list processes; \
                 write --sql - and give the URL on standard input",
            );
        }
        let database = GateDatabase::at(&url)?;
        let mut gate = TableGate::new(database.dialect(), &self.gate)?;
        if let Some(table) = &args.table {
            gate = gate.with_table(plan::text(table, "the table")?)?;
        }
        Ok(database.open(&gate, &self.token).await)
    }

    /// Prints a refusal for programs as well.
    fn report<T>(&self, passed: lockfast::Result<T>, output: &Output) -> Result<T, Failure> {
        let error = match passed {
            Ok(passed) => return Ok(passed),
            Err(error) => error,
        };
        if let (true, Some(seen)) = (output.json(), error.fence_seen()) {
            output.value(&self.describe(false, seen))?;
        }
        Err(explain(error))
    }

    fn describe(&self, passed: bool, seen: Number) -> serde_json::Value {
        json!({
            "lock": self.gate.as_str(),
            "fence": self.token.fence.get(),
            "passed": passed,
            "seen": seen.get(),
        })
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn missing(what: &str, option: &str, variable: &str) -> Failure {
    Failure::usage(format!(
        "there is no {what}: give {option}, or run it in a job of `lockfast run`, where {variable} \
         says it"
    ))
}

/// A gate that is not there, or holds something else, is to be set up; it is no fault of a store.
fn explain(error: Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::InvalidConfig | ErrorKind::CorruptRecord | ErrorKind::TokenExhausted => CONFIG,
        _ if error.retry() == Retry::Later => UNAVAILABLE,
        _ => return error.into(),
    };
    Failure::new(code, format!("{error:#}"))
}
