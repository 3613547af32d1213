//! A number in a file that checks fences: what a lock guards in the cases with several processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// The highest fence seen and the number, as two little-endian words, written in one call.
type Record = [u8; 16];

/// A fenced number. The file's own lock makes each step atomic; it is what a database would do.
#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("ledger"))?;
        Ok(Self(file))
    }

    /// Raises the fence, then reads; `None` when a later holder was here.
    pub(crate) fn read(&self, fence: u64) -> io::Result<Option<u64>> {
        self.step(fence, |number| number).map(|admitted| admitted.map(|(number, _)| number))
    }

    /// Writes the number; says whether it did, which it does not when a later holder was here.
    pub(crate) fn write(&self, fence: u64, number: u64) -> io::Result<bool> {
        self.step(fence, |_| number).map(|admitted| admitted.is_some())
    }

    /// The number, for whoever needs no lock any more.
    pub(crate) fn number(&self) -> io::Result<u64> {
        self.load().map(|(_, number)| number)
    }

    fn step(&self, fence: u64, next: impl Fn(u64) -> u64) -> io::Result<Option<(u64, u64)>> {
        flock(&self.0, FlockOperation::LockExclusive)?;
        let outcome = self.load().and_then(|(highest, number)| {
            if fence < highest {
                return Ok(None);
            }
            let next = next(number);
            self.store(fence, next)?;
            Ok(Some((number, next)))
        });
        flock(&self.0, FlockOperation::Unlock)?;
        outcome
    }

    fn load(&self) -> io::Result<(u64, u64)> {
        let mut record: Record = [0; 16];
        if self.0.metadata()?.len() > 0 {
            self.0.read_exact_at(&mut record, 0)?;
        }
        let (fence, number) = record.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        Ok((word(fence), word(number)))
    }

    fn store(&self, fence: u64, number: u64) -> io::Result<()> {
        let mut record: Record = [0; 16];
        record[..8].copy_from_slice(&fence.to_le_bytes());
        record[8..].copy_from_slice(&number.to_le_bytes());
        self.0.write_all_at(&record, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_fence_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.read(5).unwrap(), Some(0));
        assert!(ledger.write(5, 1).unwrap());
        let other = Ledger::open(directory.path()).unwrap();
        assert_eq!(other.read(6).unwrap(), Some(1));
        assert!(!ledger.write(5, 2).unwrap());
        assert_eq!(ledger.read(5).unwrap(), None);
        assert_eq!(ledger.number().unwrap(), 1);
    }
}
