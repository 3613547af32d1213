//! `lockfast fence`: check a fence where something is written, for scripts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockfast::fence::FileGate;
use lockfast::fence::sql::{Check, Dialect, TableGate};
use lockfast::{Error, ErrorKind, Fence as Number, FencingToken, LockName, Retry};
use lockfast_core::error::quote;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use serde_json::json;

use crate::args::{Fence, FenceStep, Gate};
use crate::exit::{CONFIG, Failure, NOT_EXECUTABLE, NOT_PERMITTED, Outcome, UNAVAILABLE};
use crate::output::Output;
use crate::plan;
use crate::process::{descriptor, lookup};

/// How long a database that somebody else writes to is waited for.
const BUSY_TIME: Duration = Duration::from_secs(10);

/// Lets the fence pass, or refuses it.
///
/// # Errors
/// When it is stale, and when it cannot be checked.
pub(crate) fn run(args: &Fence, output: &Output) -> Outcome {
    match &args.step {
        FenceStep::Check { gate, command } if !command.is_empty() => {
            run_inside(gate, command, output).map_err(Failure::of_run)
        }
        FenceStep::Check { gate, .. } | FenceStep::Open { gate } => {
            let claim = Claim::new(gate)?;
            let passed = match (&gate.place.file, &gate.place.sql) {
                (Some(path), _) => claim.file(path)?.check(&claim.token).map(drop),
                (None, url) => claim.pass_database(url.as_deref(), gate.table.as_deref())?,
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

    /// Asks the table in a database. The outer failures are those of the way there.
    fn pass_database(
        &self,
        url: Option<&OsStr>,
        table: Option<&OsStr>,
    ) -> Result<lockfast::Result<()>, Failure> {
        let path = sqlite_path(url.unwrap_or_default())?;
        let mut gate = TableGate::new(Dialect::Sqlite, &self.gate)?;
        if let Some(table) = table {
            gate = gate.with_table(plan::text(table, "the table")?)?;
        }
        let check = gate.check(&self.token)?;
        let highest = ask(path, &check).map_err(|error| explain_sqlite(path, error, &check))?;
        Ok(check.admit(Some(highest)))
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

fn sqlite_path(url: &OsStr) -> Result<&Path, Failure> {
    let path = url.as_bytes().strip_prefix(b"sqlite:").unwrap_or_default();
    if path.is_empty() {
        return Err(Failure::config(format!(
            "--sql {} is not sqlite:PATH; in other databases run the gate's statement in the \
             transaction that writes",
            quote(&shown_scheme(url))
        )));
    }
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// What may be shown of a URL that could hold a password.
fn shown_scheme(url: &OsStr) -> String {
    let url = url.to_string_lossy();
    url.split_once(':').map_or_else(|| url.to_string(), |(scheme, _)| format!("{scheme}:…"))
}

/// Raises the fence, in a transaction of its own; the highest that is known then.
fn ask(path: &Path, check: &Check<'_>) -> rusqlite::Result<i64> {
    // A database that is not there is a slip, and not one to be made.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY_TIME)?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let parameters = (check.fence(), check.lock());
    let highest = transaction.query_row(check.sql(), parameters, |row| row.get(0))?;
    transaction.commit()?;
    Ok(highest)
}

fn explain_sqlite(path: &Path, error: rusqlite::Error, check: &Check<'_>) -> Failure {
    use rusqlite::ErrorCode::{CannotOpen, NotADatabase, PermissionDenied, ReadOnly};
    let code = match error.sqlite_error_code() {
        Some(CannotOpen | NotADatabase) => CONFIG,
        Some(PermissionDenied | ReadOnly) => NOT_PERMITTED,
        _ => return explain(check.explain(error)),
    };
    let shown = quote(&path.to_string_lossy());
    Failure::new(code, format!("the fence cannot be checked in the database {shown}: {error}"))
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
