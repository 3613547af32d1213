//! `lockfast acquire`: take a lock for a script; nothing renews it.

use lockfast::{DetachedLease, Label, Moment};
use lockfast_core::error::printable;
use lockfast_core::time::wall_clock;
use rustix::process::getppid;
use serde_json::json;

use super::waiting::wait_for;
use crate::args::{Acquire, Global};
use crate::exit::{self, Failure, Outcome};
use crate::lease_time::LeaseTime;
use crate::output::{Output, timestamp, write_out};
use crate::plan::{self, Store};
use crate::process::signals::Signals;

/// Takes the lock and prints what renewing and releasing it needs.
///
/// # Errors
/// When it is not acquired, or when that cannot be printed; then nothing stays locked.
///
/// # Cancel safety
/// Nothing stays locked.
pub(crate) async fn run(args: &Acquire, global: &Global, output: &Output) -> Outcome {
    let name = plan::name(&args.name)?;
    let ttl = plan::ttl(&args.ttl)?;
    let options = plan::options(&args.claim)?;
    let mode = plan::mode(&args.claim)?;
    let label = of_caller(plan::label(&args.claim)?);
    let store = Store::choose(global, output)?;
    // From here on a signal is an outcome that is printed, and not an end without a word.
    let mut signals =
        Signals::listen().map_err(|error| Failure::internal("no signal handlers", error))?;
    let locker = tokio::select! {
        locker = store.connect_for(label, output) => locker?,
        signal = signals.next() => return Err(Failure::quiet(exit::of_signal(signal.as_raw()))),
    };
    let time = LeaseTime::of(Some(ttl)).fit(locker.profile(), output);
    let lock = locker.any_lock(&name, mode)?.with_options(options.ttl(time.ttl));
    let acquisition = lock.acquire_detached();
    let lease = wait_for(acquisition, &locker, &name, &mut signals, output).await?;
    if let Err(failure) = print(&lease, output) {
        // Nobody knows the holder id, so nobody could ever release it.
        locker.release_detached(&name, lease.holder).await?;
        return Err(failure);
    }
    Ok(0)
}

/// The label of whoever called us and goes on when we have ended.
fn of_caller(mut label: Label) -> Label {
    let Some(caller) = getppid() else { return label };
    let name = std::fs::read_to_string(format!("/proc/{}/comm", caller.as_raw_pid()));
    if let (Ok(name), Ok(pid)) = (name, u32::try_from(caller.as_raw_pid())) {
        label.program = printable(name.trim_end_matches('\n')).into_owned();
        label.pid = pid;
    }
    label
}

fn print(lease: &DetachedLease, output: &Output) -> Result<(), Failure> {
    let left = lease.deadline.remaining(Moment::now());
    let deadline = timestamp(wall_clock() + left);
    let holder = lease.holder.to_hex();
    if output.json() {
        return output.value(&json!({
            "name": lease.name.as_str(),
            "holder": holder,
            "fence": lease.fence.get(),
            "deadline": deadline,
            "remaining_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        }));
    }
    write_out(&format!("holder={holder}\nfence={}\ndeadline={deadline}\n", lease.fence))
}
