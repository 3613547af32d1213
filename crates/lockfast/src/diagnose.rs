//! Looking at a store's servers: what they guarantee as they are set up.

use lockfast_core::{Diagnosis, Error, ErrorKind, Result};

use crate::connect;
use crate::lease::keeper::Keeper;

/// Looks at the servers of the store at `url`: how they are set up, and what that means for a lock.
/// Nothing is changed there.
///
/// # Cancel safety
/// Safe: it only looks.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] before anything is touched; what the store meets.
pub async fn diagnose(url: &str) -> Result<Diagnosis> {
    let (address, entry) = connect::resolve(url)?;
    let Some(diagnose) = entry.diagnose else {
        return Err(Error::new(ErrorKind::Unsupported, "this store cannot be looked at"));
    };
    // The caller may have any executor; the keeper's is one that stores can work on.
    let done = Keeper::of_this_process()?.runtime().spawn(diagnose(address)).await;
    done.map_err(|error| Error::new(ErrorKind::Internal, "the diagnosis ended").with_source(error))?
}
