//! `lockfast renew`: more time for a lock that `acquire` took.

use lockfast::{Error, ErrorKind, LockName, Moment};
use lockfast_core::error::quote;
use lockfast_core::time::wall_clock;
use serde_json::json;

use crate::args::{Global, Renew};
use crate::exit::{Failure, NOT_ACQUIRED, Outcome};
use crate::lease_time::LeaseTime;
use crate::output::{Output, timestamp, write_out};
use crate::plan::{self, Store};

/// Prolongs the lease and prints its new deadline.
///
/// # Errors
/// When this holder does not have the lock; nothing is created or changed then.
///
/// # Cancel safety
/// Safe: the lease was prolonged or not.
pub(crate) async fn run(args: &Renew, global: &Global, output: &Output) -> Outcome {
    let name = plan::name(&args.name)?;
    let ttl = plan::ttl(&args.ttl)?;
    let holder = plan::holder(&args.holder)?;
    let store = Store::choose(global, output)?;
    let locker = store.connect_to_look(output).await?;
    let time = LeaseTime::of(Some(ttl)).fit(locker.profile(), output);
    let renewed = locker.renew_detached(&name, holder, time.ttl).await;
    let deadline = renewed.map_err(|error| not_held(&name, error))?;
    let left = deadline.remaining(Moment::now());
    let deadline = timestamp(wall_clock() + left);
    if output.json() {
        output.value(&json!({
            "name": name.as_str(),
            "deadline": deadline,
            "remaining_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        write_out(&format!("deadline={deadline}\n"))?;
    }
    Ok(0)
}

/// The same words for every way of not having it.
pub(super) fn not_held(name: &LockName, error: Error) -> Failure {
    match error.kind() {
        ErrorKind::NotHeld | ErrorKind::Lost => {
            let cause = error.loss().map_or_else(String::new, |cause| format!(" ({cause})"));
            Failure::new(NOT_ACQUIRED, format!("{}{cause}", not_held_text(name)))
        }
        _ => error.into(),
    }
}

pub(super) fn not_held_text(name: &LockName) -> String {
    format!(
        "lock {} is not held by this holder; nothing was changed, see lockfast show",
        quote(name.as_str())
    )
}
