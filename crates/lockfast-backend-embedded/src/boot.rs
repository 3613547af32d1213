//! What a start of the machine means: every holder from before it is dead.

use std::path::Path;

use lockfast_core::{Error, ErrorKind, Result};

use crate::client::{Clients, Life};
use crate::failure::Failure;
use crate::place::io_failure;
use crate::wire::Wire;

/// Ends all leases from before the machine was started. The last commits may be lost, so the
/// fence goes on from its ceiling. The caller has the write lock.
pub(crate) fn begin_boot(wire: &Wire, clients: &Clients, boot_id: String) -> Result<(), Failure> {
    let mut meta = wire.load_meta()?;
    if meta.boot_id == boot_id {
        return Ok(());
    }
    let listed = clients.list();
    let listed =
        listed.map_err(|error| io_failure(Path::new("clients"), "cannot be listed", error))?;
    if listed.iter().any(|client| matches!(clients.life(*client), Life::Alive(_))) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "living processes use this store that see another start of the machine, as in a \
             container with a boot id of its own; give each its own directory",
        )
        .into());
    }
    meta.fence = meta.fence.max(meta.fence_ceiling);
    meta.boot_id = boot_id;
    meta.watchers = 0;
    wire.set_full(true)?;
    let renew = || {
        wire.begin(true)?;
        wire.clear()?;
        wire.save_meta(&meta)?;
        wire.commit()
    };
    renew().inspect_err(|_| wire.roll_back())?;
    wire.set_full(false)?;
    listed.into_iter().for_each(|client| clients.remove(client));
    Ok(())
}
