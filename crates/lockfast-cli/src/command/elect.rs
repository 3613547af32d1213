//! `lockfast elect`: keep a command running on exactly one machine.

use lockfast::{Campaign, Leader, LeaderEvent, Lease, Released};

use super::job::{self, Plan, Site, Terms};
use super::waiting::wait_for;
use crate::args::{Claim, Elect, Global, OnLost, Token};
use crate::exit::{self, Failure, LOST, Outcome};
use crate::lease_time::LeaseTime;
use crate::output::Output;
use crate::plan;

/// Runs the command whenever it is elected, until the command ends by itself or a signal comes.
///
/// # Errors
/// With the exit codes of `run`.
///
/// # Cancel safety
/// Not safe: the command would be stopped by its guard.
pub(crate) async fn run(args: Elect, global: &Global, output: &Output) -> Outcome {
    campaign(&args, global, output).await.map_err(Failure::of_run)
}

async fn campaign(args: &Elect, global: &Global, output: &Output) -> Outcome {
    let time = LeaseTime::typed(&args.times)?;
    let claim = Claim {
        label: args.label.clone(),
        lock_delay: args.lock_delay.clone(),
        ..Claim::default()
    };
    let options = plan::options(&claim)?;
    let plan = Plan::new("elect", &args.name, &claim, OnLost::Kill, &args.work)?;
    let mut site = Site::prepare(&plan, &Token::default(), global, output).await?;
    let time = time.fit(site.locker.profile(), output);
    let leader = site.locker.leader(&plan.name)?.with_options(time.apply_to(options));
    let terms = Terms { ttl: time.ttl, once: None, ends_by_signal: true };
    loop {
        let election = be_elected(&leader);
        let (campaign, lease) =
            wait_for(election, &site.locker, &plan.name, &mut site.signals, output).await?;
        output.note(&format!("elected with term {}", lease.fence()));
        let (verdict, supervisor) = site.supervise(&plan, &lease, terms, output).await;
        let asked = verdict.as_ref().ok().and_then(|verdict| verdict.asked_by);
        // Nothing of the command is left, so the next may lead.
        let resigned = campaign.resign().await;
        if let Some(supervisor) = supervisor {
            supervisor.dismiss();
        }
        let released = resigned.map(|released| released.unwrap_or(Released::StillHeld));
        match (job::conclude(verdict, released, OnLost::Kill, output), asked) {
            (Err(failure), None) if failure.code() == LOST => {
                output.note("deposed; standing for election again");
            }
            (Err(failure), Some(signal)) if failure.code() == LOST => {
                return Ok(exit::of_signal(signal.as_raw()));
            }
            (outcome, _) => return outcome,
        }
    }
}

async fn be_elected(leader: &Leader) -> lockfast::Result<(Campaign, Lease)> {
    let mut campaign = leader.campaign()?;
    loop {
        if let LeaderEvent::Elected { lease, .. } = campaign.next().await? {
            return Ok((campaign, lease));
        }
    }
}
