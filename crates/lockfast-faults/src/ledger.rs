//! A number in a file that checks fences: what a lock guards in tests with several processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// The highest fence seen and the number, as two little-endian words, written in one call.
type Record = [u8; 16];

/// A fenced number. The file's own lock makes each step atomic; it is what a database would do.
#[derive(Debug)]
pub struct Ledger(File);

/// What came of [`Ledger::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Whether the fence was let through.
    pub admitted: bool,
    /// The highest fence that was seen before.
    pub highest: u64,
    /// The number, after the step if it was let through.
    pub number: u64,
}

impl Ledger {
    /// The ledger of a directory, made if it is not there.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::at(&directory.join("ledger"))
    }

    /// The ledger in this file, made if it is not there.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self(file))
    }

    /// Raises the fence, then reads; `None` when a later holder was here.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn read(&self, fence: u64) -> io::Result<Option<u64>> {
        self.step(fence, |number| number).map(|count| count.admitted.then_some(count.number))
    }

    /// Writes the number; says whether it did, which it does not when a later holder was here.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn write(&self, fence: u64, number: u64) -> io::Result<bool> {
        self.step(fence, |_| number).map(|count| count.admitted)
    }

    /// Makes the number one more, unless a later holder was here.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn count(&self, fence: u64) -> io::Result<Count> {
        self.step(fence, |number| number + 1)
    }

    /// The number, for whoever needs no lock any more.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn number(&self) -> io::Result<u64> {
        self.load().map(|(_, number)| number)
    }

    fn step(&self, fence: u64, next: impl Fn(u64) -> u64) -> io::Result<Count> {
        flock(&self.0, FlockOperation::LockExclusive)?;
        let outcome = self.load().and_then(|(highest, number)| {
            if fence < highest {
                return Ok(Count { admitted: false, highest, number });
            }
            let number = next(number);
            self.store(fence, number)?;
            Ok(Count { admitted: true, highest, number })
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
        let count = |fence| ledger.count(fence).unwrap();
        assert_eq!(count(6), Count { admitted: true, highest: 6, number: 2 });
        assert_eq!(count(5), Count { admitted: false, highest: 6, number: 2 });
        assert_eq!(count(7), Count { admitted: true, highest: 6, number: 3 });
    }
}
