//! `lockfast refresh`: print a value, and compute it by a command when it is not fresh.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockfast::{
    Error, ErrorKind, Lease, LockName, Locker, Mode, Refresh as Value, RefreshAttempt, RefreshGuard,
};
use serde_json::json;

use super::job::{Inside, Place, Plan, Site, Terms};
use super::waiting::{UNDO_TIME, wait_for};
use crate::args::{Claim, Global, OnLost, Refresh, Token};
use crate::exit::{Failure, LOST, Outcome, RUN_FAILED};
use crate::guard::{Ending, Verdict};
use crate::output::{Output, write_bytes};
use crate::plan;

/// The shortest time that a value is fresh or stale.
const TIME_MIN: Duration = Duration::from_millis(1);

/// What came of the command.
enum Computed {
    /// The value.
    Value(Vec<u8>),
    /// It failed with this code, and said why by itself.
    Failed(u8),
}

/// Prints the value, after the command has computed it if need be.
///
/// # Errors
/// With the exit codes of `run`.
///
/// # Cancel safety
/// Not safe: the command would be stopped by its guard.
pub(crate) async fn run(args: Refresh, global: &Global, output: &Output) -> Outcome {
    read_or_compute(&args, global, output).await.map_err(Failure::of_run)
}

async fn read_or_compute(args: &Refresh, global: &Global, output: &Output) -> Outcome {
    let fresh_for = plan::span("--for", &args.fresh_for, TIME_MIN)?;
    let stale_for = args.stale_for.as_deref();
    let stale_for =
        stale_for.map(|typed| plan::span("--stale-for", typed, TIME_MIN)).transpose()?;
    let claim = Claim { label: args.label.clone(), ..Claim::default() };
    let plan = Plan::new("refresh", &args.name, &claim, OnLost::Kill, &args.work)?;
    let (name, plan) = (plan.name.clone(), plan.under(Value::lock_of)?);
    let computed = match Site::enter(&plan, &Token::default(), global, output).await? {
        Place::Inside(inside) => compute_inside(inside, &plan, output)?,
        Place::Outside(mut site) => {
            let mut value = site.locker.refresh(&name, fresh_for)?;
            if let Some(stale_for) = stale_for {
                value = value.stale_for(stale_for)?;
            }
            let start = value.start();
            match wait_for(start, &site.locker, &plan.name, &mut site.signals, output).await? {
                RefreshAttempt::Fresh(bytes) => return print(&name, &bytes, false, output),
                RefreshAttempt::Granted(guard) => compute(guard, &plan, &mut site, output).await?,
            }
        }
    };
    match computed {
        Computed::Value(bytes) => print(&name, &bytes, true, output),
        Computed::Failed(code) => Ok(code),
    }
}

/// The job around us has the lock. Its own refresh stores what it prints.
fn compute_inside(inside: Inside, plan: &Plan, output: &Output) -> Result<Computed, Failure> {
    match inside.output(plan, Value::BYTES_MAX, output)? {
        (_, None) => Err(Failure::new(RUN_FAILED, too_long())),
        (Ending::Exit(0), Some(bytes)) => Ok(Computed::Value(bytes)),
        (ending, _) => Ok(Computed::Failed(ending.code())),
    }
}

/// Runs the command under the lock, and stores what it printed.
async fn compute(
    guard: RefreshGuard,
    plan: &Plan,
    site: &mut Site,
    output: &Output,
) -> Result<Computed, Failure> {
    let lease = guard.lease().clone();
    let ttl = site.locker.any_lock(&plan.name, Mode::Exclusive)?.lease_time();
    let terms = Terms { ttl, once: None, ends_by_signal: false };
    let captured = site.supervise_captured(plan, &lease, terms, Value::BYTES_MAX, output).await;
    let (verdict, supervisor, printed) = captured;
    let end = End { guard, lease: &lease, locker: &site.locker, plan, output };
    let computed = match verdict {
        Ok(verdict) => end.conclude(&verdict, printed).await,
        Err(failure) if failure.code() == LOST => end.give_back(Err(failure)).await,
        Err(failure) => {
            let why = failure.message().unwrap_or("Lockfast failed").to_owned();
            end.tell(&why, Err(failure)).await
        }
    };
    if let Some(supervisor) = supervisor {
        supervisor.dismiss();
    }
    computed
}

/// The end of a computation: nothing of the command is left, and the lock is held still.
struct End<'a> {
    guard: RefreshGuard,
    lease: &'a Lease,
    locker: &'a Locker,
    plan: &'a Plan,
    output: &'a Output,
}

impl End<'_> {
    async fn conclude(
        self,
        verdict: &Verdict,
        printed: Result<Option<Vec<u8>>, Failure>,
    ) -> Result<Computed, Failure> {
        if verdict.for_lease || !self.lease.is_held() {
            let lost = Failure::new(LOST, "the lease was lost while the command ran");
            return self.give_back(Err(lost)).await;
        }
        match (verdict.ending, printed?) {
            // Whatever it ended by: its output was closed.
            (_, None) => {
                let why = too_long();
                self.tell(&why, Err(Failure::new(RUN_FAILED, &why))).await
            }
            (Ending::Exit(0), Some(bytes)) => Ok(Computed::Value(self.guard.finish(bytes).await?)),
            (ending, _) if verdict.asked_by.is_some() => {
                // Somebody wanted us to end; that says nothing about the value.
                self.give_back(Ok(Computed::Failed(ending.code()))).await
            }
            (ending, _) => {
                let how = match ending {
                    Ending::Exit(code) => format!("with exit code {code}"),
                    Ending::Signal(number) => format!("by signal {number}"),
                };
                let why = format!("the command of {} ended {how}", self.plan.label);
                self.tell(&why, Ok(Computed::Failed(ending.code()))).await
            }
        }
    }

    /// Tells those who wait why there is no value.
    async fn tell(
        self,
        why: &str,
        computed: Result<Computed, Failure>,
    ) -> Result<Computed, Failure> {
        if let Err(error) = self.guard.fail(&Error::new(ErrorKind::Computation, why)).await {
            self.output.warn(&format!("those who wait could not be told: {error:#}"));
        }
        computed
    }

    /// Leaves it to the next.
    async fn give_back(self, computed: Result<Computed, Failure>) -> Result<Computed, Failure> {
        drop(self.guard);
        if tokio::time::timeout(UNDO_TIME, self.locker.settled()).await.is_err() {
            self.output.warn("the lock could not be released and is left to expire");
        }
        computed
    }
}

fn too_long() -> String {
    format!(
        "the command printed more than the {} bytes that a value may have, so that nothing was \
         stored; keep the data elsewhere, and print where it is",
        Value::BYTES_MAX
    )
}

fn print(name: &LockName, bytes: &[u8], computed: bool, output: &Output) -> Outcome {
    if !output.json() {
        write_bytes(bytes)?;
        return Ok(0);
    }
    let (value, encoding) = match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (STANDARD.encode(bytes), "base64"),
    };
    output.value(&json!({
        "name": name.as_str(),
        "value": value,
        "encoding": encoding,
        "computed": computed,
    }))?;
    Ok(0)
}
