//! `lockfast once`: run a scheduled command on one machine of all that start it.

use std::time::Duration;

use lockfast::Attempt;

use super::job::{self, Plan, Site, Terms};
use super::view::{describe_refusal, refusal_value};
use super::waiting::wait_for;
use crate::args::{Claim, Global, OnLost, Once};
use crate::exit::{Failure, NOT_ACQUIRED, Outcome};
use crate::guard::OnceTimes;
use crate::output::Output;
use crate::plan;

/// Runs the command, unless somebody else does or has just done so.
///
/// # Errors
/// With the exit codes of `run`.
///
/// # Cancel safety
/// Not safe: the command would be stopped by its guard.
pub(crate) async fn run(args: Once, global: &Global, output: &Output) -> Outcome {
    let busy = args.exit_busy.unwrap_or(NOT_ACQUIRED);
    let outcome = start_and_run(&args, global, output).await;
    outcome.map_err(|failure| failure.of_run().with_busy_code(busy))
}

async fn start_and_run(args: &Once, global: &Global, output: &Output) -> Outcome {
    let at_most = plan::span("--at-most", &args.at_most, plan::TTL_MIN)?;
    let at_least = args.at_least.as_deref().map_or(Ok(Duration::ZERO), |typed| {
        plan::span("--at-least", typed, Duration::from_millis(1))
    })?;
    let claim = Claim { label: args.label.clone(), ..Claim::default() };
    let plan = Plan::new("once", &args.name, &claim, OnLost::Kill, &args.work)?;
    let mut site = Site::prepare(&plan, &args.token, global, output).await?;
    let once = site.locker.once(&plan.name, at_most)?.at_least(at_least);
    let start = once.start();
    let attempt = wait_for(start, &site.locker, &plan.name, &mut site.signals, output).await?;
    let guard = match attempt {
        Attempt::Acquired(guard) => guard,
        Attempt::Taken(refusal) => {
            let message = format!("skipped: {}", describe_refusal(&refusal));
            return Err(Failure::taken(message, Some(refusal_value(&refusal))));
        }
    };
    let lease = guard.lease().clone();
    let times = OnceTimes { at_most, at_least, started_ns: guard.started().host_ns() };
    let terms = Terms { ttl: at_most, once: Some(times), ends_by_signal: false };
    let (verdict, supervisor) = site.supervise(&plan, &lease, terms, output).await;
    let released = guard.finish().await;
    if let Some(supervisor) = supervisor {
        supervisor.dismiss();
    }
    job::conclude(verdict, released, OnLost::Kill, output)
}
