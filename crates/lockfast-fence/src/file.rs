//! The gate of several processes on one machine: a file that holds the highest fence.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Fence, FencingToken, LockName, Result};
use rustix::fs::{FlockOperation, flock};

use crate::rule::{check_lock, judge};

/// As many digits as the highest fence has.
const DIGITS: usize = 16;

/// What the user whose gate it is may do with the file: read and write it.
const OWNER: u32 = 0o600;

/// A gate whose fence is in a file, for what processes of one machine write to: files, devices, other
/// programs.
///
/// The file holds sixteen digits and a line end. The kernel's lock on it (`flock`) makes check and
/// write one step; it must be on a file system of this machine. The file survives the death of
/// processes. It is not synced to the disk, because a crash of the machine ends the writers too.
///
/// ```
/// use lockfast::{Locker, fence::FileGate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let gate = FileGate::new("report", directory.join("report.fence"))?;
/// let locker = Locker::connect("memory:").await?;
/// let guard = locker.mutex("report")?.acquire().await?;
///
/// let passage = gate.check(&guard.token())?; // nobody else passes until it is dropped
/// std::fs::write(directory.join("report"), "all is well")?;
/// drop(passage);
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileGate {
    lock: LockName,
    path: PathBuf,
    /// The kernel's lock does not keep out those who share the open file.
    file: Mutex<File>,
}

impl FileGate {
    /// The gate of what this lock guards, in this file, which is made if it is not there.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let gate = lockfast_fence::FileGate::new("report", directory.path().join("fence"))?;
    /// assert_eq!(gate.seen()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::Permission`], or [`ErrorKind::InvalidConfig`] when the
    /// file cannot be made.
    pub fn new(lock: impl AsRef<str>, path: impl AsRef<Path>) -> Result<Self> {
        let (lock, path) = (LockName::new(lock)?, path.as_ref().to_owned());
        let opened = open(&path).and_then(|file| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file")),
        });
        let file = opened.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::PermissionDenied => ErrorKind::Permission,
                _ => ErrorKind::InvalidConfig,
            };
            let message = format!(
                "the gate's file {} cannot be opened; name one in a directory that is there and \
                 that you may write to",
                shown(&path)
            );
            Error::new(kind, message).with_lock(&lock).with_source(error)
        })?;
        Ok(Self { lock, path, file: Mutex::new(file) })
    }

    /// The open step of a new holder, before it reads: the same as [`FileGate::check`].
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let gate = lockfast_fence::FileGate::new("a", directory.path().join("fence"))?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// drop(gate.open(&token)?);
    /// assert_eq!(gate.seen()?, Some(token.fence));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`FileGate::check`].
    pub fn open(&self, token: &FencingToken) -> Result<Passage<'_>> {
        self.check(token)
    }

    /// Lets a fence pass that is not below the highest one seen, and remembers it. It waits while
    /// another thread or process is passing; nobody else passes until the answer is dropped.
    ///
    /// ```
    /// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let gate = lockfast_fence::FileGate::new("a", directory.path().join("fence"))?;
    /// # let token = |fence| -> lockfast_core::Result<FencingToken> {
    /// #     Ok(FencingToken { lock: LockName::new("a")?, fence: Fence::new(fence)? })
    /// # };
    /// drop(gate.check(&token(42)?)?);
    /// let refused = gate.check(&token(41)?).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::StaleFence);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`] with the fence that was seen, [`ErrorKind::DifferentLock`] for the
    /// fence of another lock, [`ErrorKind::CorruptRecord`] when the file holds something else or was
    /// removed or replaced, and [`ErrorKind::Internal`] when it cannot be used.
    pub fn check(&self, token: &FencingToken) -> Result<Passage<'_>> {
        check_lock(&self.lock, token)?;
        let locked = self.take()?;
        let before = self.load(&locked.0)?;
        if let Some(seen) = before {
            judge(token, seen)?;
        }
        if before != Some(token.fence) {
            let line = format!("{:0DIGITS$}\n", token.fence.get());
            locked.0.write_all_at(line.as_bytes(), 0).map_err(|error| self.unusable(error))?;
        }
        Ok(Passage { locked, before })
    }

    /// The highest fence that was seen: the floor of the next acquisition.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let gate = lockfast_fence::FileGate::new("a", directory.path().join("fence"))?;
    /// assert_eq!(gate.seen()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::CorruptRecord`] when the file holds something else, [`ErrorKind::Internal`] when
    /// it cannot be used.
    pub fn seen(&self) -> Result<Option<Fence>> {
        self.load(&self.take()?.0)
    }

    fn take(&self) -> Result<Locked<'_>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match flock(&*file, FlockOperation::LockExclusive) {
                Ok(()) => {
                    let locked = Locked(file);
                    self.check_place(&locked.0)?;
                    return Ok(locked);
                }
                // A signal, after which it is asked again.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.unusable(error.into())),
            }
        }
    }

    /// Whoever opens the path now must get this file: two files would be two gates.
    fn check_place(&self, file: &File) -> Result<()> {
        let ours = file.metadata().map_err(|error| self.unusable(error))?;
        let there = std::fs::metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(());
        }
        let message = format!(
            "the gate's file {} was removed or replaced since it was opened; keep it as long as \
             there are holders, and open the gate anew",
            shown(&self.path)
        );
        Err(Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.lock))
    }

    fn load(&self, file: &File) -> Result<Option<Fence>> {
        let mut line = [0; DIGITS + 1];
        let length = file.metadata().map_err(|error| self.unusable(error))?.len();
        if length == 0 {
            return Ok(None);
        }
        let read = file.read_exact_at(&mut line, 0);
        let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix('\n'));
        let fence = text.and_then(|text| Fence::parse(text).ok());
        match fence.filter(|_| read.is_ok() && length == line.len() as u64) {
            Some(fence) => Ok(Some(fence)),
            None => {
                let message = format!(
                    "the gate's file {} is to hold {DIGITS} digits and a line end, and does not; \
                     let nothing but the gate write it, and remove it when no holder is left",
                    shown(&self.path)
                );
                Err(Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.lock))
            }
        }
    }

    fn unusable(&self, error: io::Error) -> Error {
        let message = format!("the gate's file {} cannot be used", shown(&self.path));
        Error::new(ErrorKind::Internal, message).with_lock(&self.lock).with_source(error)
    }
}

/// Opens the file, and makes it if it is missing: whatever the umask of this process is, its user can
/// open it again.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            let mode = file.metadata()?.mode();
            if mode & OWNER != OWNER {
                file.set_permissions(Permissions::from_mode(mode & 0o7777 | OWNER))?;
            }
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).truncate(false).open(path)
        }
        Err(error) => Err(error),
    }
}

fn shown(path: &Path) -> String {
    quote(&path.display().to_string())
}

/// The file while nobody else has it, in this process or another.
#[derive(Debug)]
struct Locked<'gate>(MutexGuard<'gate, File>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It fails for no file that could be locked.
        let _ = flock(&*self.0, FlockOperation::Unlock);
    }
}

/// The way through a [`FileGate`]; the next one waits until it is dropped.
///
/// ```
/// # use lockfast_core::{Fence, FencingToken, LockName};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let gate = lockfast_fence::FileGate::new("a", directory.path().join("fence"))?;
/// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
/// let passage = gate.check(&token)?;
/// // Write here.
/// drop(passage);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "what is written after it was dropped is not checked"]
pub struct Passage<'gate> {
    locked: Locked<'gate>,
    before: Option<Fence>,
}

impl Passage<'_> {
    /// The highest fence that was seen before this one came.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let gate = lockfast_fence::FileGate::new("a", directory.path().join("fence"))?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(gate.check(&token)?.seen_before(), None);
    /// assert_eq!(gate.check(&token)?.seen_before(), Some(token.fence));
    /// # Ok(())
    /// # }
    /// ```
    pub fn seen_before(&self) -> Option<Fence> {
        self.before
    }
}

/// The gate's open file. A process that inherits it, and outlives this one without the passage having
/// been dropped, keeps the gate held until it ends.
impl AsFd for Passage<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.locked.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::rule::tests::token;

    #[test]
    fn a_file_remembers_for_all_who_open_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        let gates = [FileGate::new("a", &path).unwrap(), FileGate::new("a", &path).unwrap()];
        drop(gates[0].open(&token("a", 42)).unwrap());
        let error = gates[1].check(&token("a", 41)).unwrap_err();
        assert_eq!(error.fence_seen().unwrap().get(), 42);
        drop(gates[1].check(&token("a", 43)).unwrap());
        assert_eq!(gates[0].seen().unwrap().unwrap().get(), 43);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "0000000000000043\n");
        let error = gates[0].check(&token("b", 50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DifferentLock);
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_no_second_gate() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        let first = FileGate::new("a", &path).unwrap();
        drop(first.check(&token("a", 50)).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first.check(&token("a", 51)).unwrap_err().kind(), ErrorKind::CorruptRecord);
        let second = FileGate::new("a", &path).unwrap();
        drop(second.check(&token("a", 60)).unwrap());
        assert_eq!(first.check(&token("a", 55)).unwrap_err().kind(), ErrorKind::CorruptRecord);
        assert_eq!(second.seen().unwrap().unwrap().get(), 60);
    }

    #[test]
    fn what_is_no_regular_file_is_no_gate() {
        let error = FileGate::new("a", "/dev/null").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }

    #[test]
    fn threads_that_share_a_gate_pass_one_by_one_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        let shared = FileGate::new("a", &path).unwrap();
        let (next, passed) = (AtomicU64::new(1), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for own in [false, false, true, true] {
                let (path, shared, next, passed) = (&path, &shared, &next, &passed);
                scope.spawn(move || {
                    let of_its_own = FileGate::new("a", path).unwrap();
                    let gate = if own { &of_its_own } else { shared };
                    for _ in 0..200 {
                        let fence = next.fetch_add(1, Ordering::SeqCst);
                        if let Ok(_passage) = gate.check(&token("a", fence)) {
                            // Whoever else were inside would hold this.
                            passed.try_lock().unwrap().push(fence);
                        }
                    }
                });
            }
        });
        let passed = passed.into_inner().unwrap();
        assert!(passed.is_sorted(), "a lower fence passed after a higher one");
        assert_eq!(passed.last(), Some(&800));
    }

    #[test]
    fn what_is_no_gate_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        for text in
            ["42", "42\n", "0000000000000042", "0000000000000000\n", "a\n", "00000000000000421\n"]
        {
            std::fs::write(&path, text).unwrap();
            let gate = FileGate::new("a", &path).unwrap();
            let error = gate.check(&token("a", 50)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{text:?}");
            assert!(error.to_string().contains("16 digits"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let missing = FileGate::new("a", directory.path().join("no/fence")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::InvalidConfig);
        assert!(missing.to_string().contains("in a directory that is there"), "{missing}");
    }
}
