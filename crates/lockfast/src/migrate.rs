//! Bringing the schema of a store up to date, for whom the application itself may not create it.

use lockfast_core::{Error, ErrorKind, Migration, Result};

use crate::connect;
use crate::lease::keeper::Keeper;

/// Creates the schema of the store at `url`, or changes it to the one that this version works with.
/// Stores without a schema answer [`Migration::NoSchema`] and are not touched.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// assert_eq!(lockfast::migrate("memory:").await?, lockfast::Migration::NoSchema);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// Safe: a migration that has begun goes on to its end, and it can be asked for again.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] before anything is touched; what the store meets.
pub async fn migrate(url: &str) -> Result<Migration> {
    let (address, entry) = connect::resolve(url)?;
    let Some(migrate) = entry.migrate else {
        return Ok(Migration::NoSchema);
    };
    // The caller may have any executor; the keeper's is one that stores can work on.
    let done = Keeper::of_this_process()?.runtime().spawn(migrate(address)).await;
    done.map_err(|error| Error::new(ErrorKind::Internal, "the migration ended").with_source(error))?
}
