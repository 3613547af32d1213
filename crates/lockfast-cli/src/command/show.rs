//! `lockfast show`: who holds one lock.

use super::view::{describe_holder, lock_value};
use crate::args::{Global, Show};
use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{self, Store};

/// Prints the lock's holders and how many wait.
///
/// # Errors
/// When the store cannot be asked.
///
/// # Cancel safety
/// Safe: it only looks.
pub(crate) async fn run(args: &Show, global: &Global, output: &Output) -> Outcome {
    let name = plan::name(&args.name)?;
    let store = Store::choose(global, output)?;
    let locker = store.connect_to_look(output).await?;
    let lock = locker.inspect(&name).await?;
    if output.json() {
        output.value(&lock_value(&lock))?;
        return Ok(0);
    }
    if lock.holders.is_empty() {
        output.line(&format!("{name}: free"))?;
    }
    for holder in &lock.holders {
        output.line(&format!("{name}: {} by {}", holder.mode, describe_holder(holder)))?;
    }
    if lock.waiting > 0 {
        output.line(&format!("{name}: {} waiting", lock.waiting))?;
    }
    Ok(0)
}
