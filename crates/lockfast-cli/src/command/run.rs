//! `lockfast run`: take the lock, run a command, let go when nothing of it is left.

use lockfast::Lease;

use super::job::{self, Plan, Site, Terms};
use super::waiting::wait_for;
use crate::args::{Global, Run};
use crate::exit::{NOT_ACQUIRED, Outcome};
use crate::lease_time::LeaseTime;
use crate::output::Output;
use crate::plan;

/// Runs the command.
///
/// # Errors
/// With the exit codes of `run`.
///
/// # Cancel safety
/// Not safe: the command would be stopped by its guard.
pub(crate) async fn run(args: Run, global: &Global, output: &Output) -> Outcome {
    let busy = args.exit_busy.unwrap_or(NOT_ACQUIRED);
    let outcome = hold_and_run(&args, global, output).await;
    outcome.map_err(|failure| failure.of_run().with_busy_code(busy))
}

async fn hold_and_run(args: &Run, global: &Global, output: &Output) -> Outcome {
    let time = LeaseTime::typed(&args.times)?;
    let options = plan::options(&args.claim)?;
    let plan = Plan::new("run", &args.name, &args.claim, args.on_lost, &args.work)?;
    let mut site = Site::prepare(&plan, &args.token, global, output).await?;
    let time = time.fit(site.locker.profile(), output);
    let lock = site.locker.any_lock(&plan.name, plan.mode)?.with_options(time.apply_to(options));
    let acquisition = lock.acquire_full();
    let guard = wait_for(acquisition, &site.locker, &plan.name, &mut site.signals, output).await?;
    let lease = Lease::clone(&guard);
    let terms = Terms { ttl: time.ttl, once: None, ends_by_signal: false };
    let (verdict, supervisor) = site.supervise(&plan, &lease, terms, output).await;
    let released = guard.release().await;
    if let Some(supervisor) = supervisor {
        supervisor.dismiss();
    }
    job::conclude(verdict, released, args.on_lost, output)
}
