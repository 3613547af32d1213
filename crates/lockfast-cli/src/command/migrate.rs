//! `lockfast migrate`: create or upgrade the schema of a store that has one.

use lockfast::Migration;
use serde_json::json;

use crate::args::Global;
use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::Store;

/// Brings the schema up to date and tells what that took.
///
/// # Errors
/// When the store cannot be reached, or this user may not change its schema.
///
/// # Cancel safety
/// Safe: it can be run again.
pub(crate) async fn run(global: &Global, output: &Output) -> Outcome {
    let store = Store::choose(global, output)?;
    let migration = lockfast::migrate(store.url()).await?;
    if output.json() {
        let (from, version) = match migration {
            Migration::NoSchema => (None, None),
            Migration::Unchanged { version } => (Some(version), Some(version)),
            Migration::Changed { from, to } => (from, Some(to)),
        };
        let changed = matches!(migration, Migration::Changed { .. });
        output.value(&json!({ "changed": changed, "from": from, "version": version }))?;
    } else {
        output.line(&migration.to_string())?;
    }
    Ok(0)
}
