//! `lockfast release`: give back a lock that `acquire` took.

use lockfast::ReleaseOutcome;
use serde_json::json;

use super::renew::{not_held, not_held_text};
use crate::args::{Global, Release};
use crate::exit::{Failure, NOT_ACQUIRED, Outcome};
use crate::output::Output;
use crate::plan::{self, Store};

/// Gives the lock back.
///
/// # Errors
/// When this holder does not have it; nothing is changed then.
///
/// # Cancel safety
/// Safe: it was released or not.
pub(crate) async fn run(args: &Release, global: &Global, output: &Output) -> Outcome {
    let name = plan::name(&args.name)?;
    let holder = plan::holder(&args.holder)?;
    let store = Store::choose(global, output)?;
    let locker = store.connect_to_look(output).await?;
    let released = locker.release_detached(&name, holder).await;
    match released.map_err(|error| not_held(&name, error))? {
        ReleaseOutcome::Released => {
            if output.json() {
                output.value(&json!({ "name": name.as_str(), "released": true }))?;
            }
            Ok(0)
        }
        ReleaseOutcome::NotHeld => Err(Failure::new(NOT_ACQUIRED, not_held_text(&name))),
    }
}
