//! A number in a file that checks fences: what a lock guards in tests with several processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lockfast_core::{Error, Fence, FencingToken, LockName};
use lockfast_fence::FileGate;

/// What the gate calls it; each ledger has a file of its own.
const NAME: &str = "ledger";

/// A fenced number, for all processes and threads that open it: a gate, and the number in a file
/// beside that of the gate.
#[derive(Debug)]
pub struct Ledger {
    gate: FileGate,
    number: File,
}

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
        let gate = FileGate::new(NAME, path).map_err(io::Error::other)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".number");
        let mut options = OpenOptions::new();
        let number = options.read(true).write(true).create(true).truncate(false).open(beside)?;
        Ok(Self { gate, number })
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
        self.load()
    }

    fn step(&self, fence: u64, next: impl Fn(u64) -> u64) -> io::Result<Count> {
        let token = token(fence).map_err(io::Error::other)?;
        let passage = match self.gate.check(&token) {
            Ok(passage) => passage,
            Err(error) => {
                let seen = error.fence_seen().ok_or_else(|| io::Error::other(error))?;
                return Ok(Count { admitted: false, highest: seen.get(), number: self.load()? });
            }
        };
        let number = next(self.load()?);
        self.number.write_all_at(&number.to_le_bytes(), 0)?;
        let highest = passage.seen_before().map_or(0, Fence::get);
        Ok(Count { admitted: true, highest, number })
    }

    fn load(&self) -> io::Result<u64> {
        let mut number = [0; 8];
        if self.number.metadata()?.len() > 0 {
            self.number.read_exact_at(&mut number, 0)?;
        }
        Ok(u64::from_le_bytes(number))
    }
}

fn token(fence: u64) -> Result<FencingToken, Error> {
    Ok(FencingToken { lock: LockName::new(NAME)?, fence: Fence::new(fence)? })
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

    /// B102: the kernel's lock of a file does not keep out threads that share the open file.
    #[test]
    fn threads_that_share_a_ledger_lose_no_count() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        assert!(ledger.count(5).unwrap().admitted);
                    }
                });
            }
        });
        assert_eq!(ledger.number().unwrap(), 2000);
    }
}
