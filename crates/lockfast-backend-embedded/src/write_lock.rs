//! The lock that lets one process write at a time, and the proof that all of them mean the same
//! database.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use lockfast_core::{ErrorKind, Result};

use crate::failure::{Failure, Scope};
use crate::place::{Identity, Place, identify, shown};

/// The file that is locked, and the database that it guards.
#[derive(Debug)]
pub(crate) struct WriteLock {
    file: File,
    database: PathBuf,
    identity: Identity,
}

/// The write lock, held.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a File);

impl WriteLock {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        let file = place.write_lock()?;
        let (database, identity) = place.database()?;
        Ok(Self { file, database, identity })
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.database.clone()
    }

    /// Waits in the kernel and not in SQLite, which would sleep and try again.
    pub(crate) fn wait(&self) -> Result<Locked<'_>, Failure> {
        loop {
            match self.file.lock() {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::new(
                        ErrorKind::Unreachable,
                        format!("the write lock cannot be taken, try again ({error})"),
                    ));
                }
            }
        }
        let locked = Locked(&self.file);
        self.check()?;
        Ok(locked)
    }

    /// Whether the database is still the one that was looked at before it was opened. Otherwise
    /// others use a new one, and both sides would hold the same locks.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if identify(&self.database) == Some(self.identity) {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced while it was in use, so its leases are lost; connect again",
            shown(&self.database)
        );
        let failure = Failure::new(ErrorKind::Unreachable, message);
        Err(failure.with(Scope::Gone))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It can only fail if it is not held.
        let _ = self.0.unlock();
    }
}
