//! The store's directory. It must be closed to all who may not use the store, and so must
//! everything in it that is used. The directory is opened once and its files are looked at and made
//! through that descriptor: as nobody else may write there, nothing can be exchanged between the
//! look and the use.

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::access::{Access, Part};
use crate::{file_system, way};

/// The database, and what SQLite puts beside it.
const DATABASE: &str = "lockfast.db";
const BESIDE_DATABASE: [&str; 3] = ["lockfast.db-wal", "lockfast.db-shm", "lockfast.db-journal"];
const WRITE_LOCK: &str = "write.lock";
const CLIENTS: &str = "clients";
const MACHINE: &str = "machine";
/// What [`MACHINE`] is while it is being written.
const MACHINE_NEXT: &str = "machine.next";

/// Device and number of a file, which no other has at the same time.
pub(crate) type Identity = (u64, u64);

/// A directory that can hold a store, open.
#[derive(Debug)]
pub(crate) struct Place {
    fd: OwnedFd,
    /// Without symbolic links, so that it means the same to every process.
    pub(crate) dir: PathBuf,
    access: Access,
}

impl Place {
    /// Makes the directory if it is missing and one user's, and checks that a store can be there.
    /// What is refused is left as it was. What a group shares is locked as long as this lives.
    pub(crate) fn prepare(dir: &Path, access: Access) -> Result<Self> {
        let dir = check_way(dir, &access)?;
        match std::fs::symlink_metadata(&dir) {
            Ok(found) if found.is_dir() || found.is_symlink() => {}
            Ok(_) => {
                let shown = shown(&dir);
                return Err(Error::new(
                    ErrorKind::InvalidUrl,
                    format!("{shown} is a file; the embedded store is a directory, so name one"),
                ));
            }
            Err(error) if access.group.is_some() => {
                return Err(io_failure(&dir, "was removed", error));
            }
            Err(_) => {
                file_system::check(&dir, &open_above(&dir)?)?;
                make_private(&dir)?;
            }
        }
        let place = Self::enter(&dir, access)?;
        file_system::check(&place.dir, &place.fd)?;
        place.lock()?;
        place.check_files()?;
        Ok(place)
    }

    /// Opens the directory if it is there and can be trusted. Nothing is made, and neither the file
    /// system nor the files are looked at.
    pub(crate) fn find(dir: &Path, access: Access) -> Result<Self> {
        let dir = check_way(dir, &access)?;
        Self::enter(&dir, access)
    }

    fn enter(dir: &Path, access: Access) -> Result<Self> {
        let dir = dir.canonicalize().map_err(|error| io_failure(dir, "cannot be found", error))?;
        let seen = rustix::fs::statat(CWD, &dir, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| io_failure(&dir, "cannot be looked at", error.into()))?;
        access.check(&dir, &seen, Part::Top)?;
        let fd = open_dir(&dir)?;
        access.check(&dir, &stat(&dir, &fd)?, Part::Top)?;
        Ok(Self { fd, dir, access })
    }

    /// A file is made first and then gets its mode, by SQLite as well. Nobody of a group may see it
    /// in between and take it for one that the group does not share.
    fn lock(&self) -> Result<()> {
        if self.access.group.is_none() {
            return Ok(());
        }
        loop {
            match rustix::fs::flock(&self.fd, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_failure(&self.dir, "cannot be locked", error.into())),
            }
        }
    }

    /// Whether nobody makes files there, now and as long as this lives.
    pub(crate) fn is_still(&self) -> bool {
        let shared = FlockOperation::NonBlockingLockShared;
        self.access.group.is_none() || rustix::fs::flock(&self.fd, shared).is_ok()
    }

    /// Who owns the directory.
    pub(crate) fn owner(&self) -> Result<u32> {
        stat(&self.dir, &self.fd).map(|found| found.st_uid)
    }

    /// Looks at everything that is there before any of it is used.
    pub(crate) fn check_files(&self) -> Result<()> {
        let files =
            [DATABASE, WRITE_LOCK, MACHINE, MACHINE_NEXT].into_iter().chain(BESIDE_DATABASE);
        for name in files {
            self.look(name, Part::File)?;
        }
        self.look(CLIENTS, Part::Directory)?;
        Ok(())
    }

    /// What a file of the directory is, if it is there and can be trusted.
    fn look(&self, name: &str, part: Part) -> Result<Option<Stat>> {
        let path = self.dir.join(name);
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => self.access.check(&path, &found, part).map(|()| Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_failure(&path, "cannot be looked at", error.into())),
        }
    }

    /// The database and which file it is. It is made here, so that nobody else can read it; SQLite
    /// then opens it.
    pub(crate) fn database(&self) -> Result<(PathBuf, Identity)> {
        let path = self.dir.join(DATABASE);
        // An existing file must not even be opened: closing it again would drop the locks that
        // another connection of this process has on it.
        self.make(DATABASE).map_err(|error| self.failure(DATABASE, "cannot be made", error))?;
        match self.look(DATABASE, Part::File)? {
            Some(found) => Ok((path, identity(&found))),
            None => Err(io_failure(&path, "was removed", io::ErrorKind::NotFound.into())),
        }
    }

    /// The file whose lock lets one process write at a time.
    pub(crate) fn write_lock(&self) -> Result<File> {
        let file = self
            .make(WRITE_LOCK)
            .and_then(|_| self.open(WRITE_LOCK, OFlags::WRONLY))
            .map_err(|error| self.failure(WRITE_LOCK, "cannot be opened", error))?;
        let path = self.dir.join(WRITE_LOCK);
        self.access.check(&path, &stat(&path, &file)?, Part::File)?;
        Ok(file.into())
    }

    /// Where the clients' pipes are, and with what mode they are made.
    pub(crate) fn clients(&self) -> Result<(OwnedFd, PathBuf, Mode)> {
        let path = self.dir.join(CLIENTS);
        let mode = self.access.directory_mode();
        let is_new = match rustix::fs::mkdirat(&self.fd, CLIENTS, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(self.failure(CLIENTS, "cannot be made", error)),
        };
        if is_new {
            set_mode(self.fd.as_fd(), Path::new(CLIENTS), FileType::Directory, mode)
                .map_err(|error| self.failure(CLIENTS, "cannot be made", error))?;
        }
        let dir = self
            .open(CLIENTS, OFlags::DIRECTORY)
            .map_err(|error| self.failure(CLIENTS, "cannot be opened", error))?;
        self.access.check(&path, &stat(&path, &dir)?, Part::Directory)?;
        Ok((dir, path, self.access.file_mode()))
    }

    /// What is written about the machine that the store is on, if anything is.
    pub(crate) fn read_machine(&self) -> Result<Option<String>> {
        let failed =
            |error: io::Error| io_failure(&self.dir.join(MACHINE), "cannot be read", error);
        match self.open(MACHINE, OFlags::RDONLY) {
            Ok(file) => io::read_to_string(File::from(file)).map(Some).map_err(failed),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Writes that down. Whoever reads sees all of it or what was there before, also after a crash
    /// of the machine.
    pub(crate) fn write_machine(&self, text: &str) -> Result<()> {
        let write = || -> io::Result<()> {
            // Somebody may have been killed in the middle of it.
            match rustix::fs::unlinkat(&self.fd, MACHINE_NEXT, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let mut file = File::from(self.make(MACHINE_NEXT)?.ok_or(Errno::EXIST)?);
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            rustix::fs::renameat(&self.fd, MACHINE_NEXT, &self.fd, MACHINE)?;
            Ok(rustix::fs::fsync(&self.fd)?)
        };
        write().map_err(|error| io_failure(&self.dir.join(MACHINE), "cannot be written", error))
    }

    /// Makes a file if it is missing, with its mode whatever the umask of this process is.
    fn make(&self, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
        match self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                rustix::fs::fchmod(&file, self.access.file_mode())?;
                Ok(Some(file))
            }
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, self.access.file_mode())
    }

    fn failure(&self, name: &str, what: &str, error: Errno) -> Error {
        io_failure(&self.dir.join(name), what, error.into())
    }
}

/// The path without a slash at its end, which would follow a symbolic link, if nobody else could
/// lead it elsewhere.
fn check_way(dir: &Path, access: &Access) -> Result<PathBuf> {
    let dir: PathBuf = dir.components().collect();
    if let Some(group) = &access.group {
        way::check(&dir, access, group)?;
    } else if let Ok(found) = std::fs::symlink_metadata(&dir)
        && found.is_symlink()
    {
        access.check_link(&dir, found.uid())?;
    }
    Ok(dir)
}

/// Which file this is.
fn identity(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}

/// Which file a path leads to.
pub(crate) fn identify(path: &Path) -> Option<Identity> {
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(identity(&found))
}

/// Refuses a time namespace of its own: there, the time since the start of the machine is not
/// what other processes see.
pub(crate) fn check_clock() -> Result<()> {
    // Kernels without time namespaces do not have the file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if !is_clock_shifted(&offsets) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "this process is in a time namespace whose clock is not the machine's, so others would \
         see its leases end too early or too late; use a store with a server",
    ))
}

fn is_clock_shifted(offsets: &str) -> bool {
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("boottime") && words.any(|offset| offset != "0")
    })
}

/// Makes a directory and those above it that are missing, each for this user alone.
fn make_private(dir: &Path) -> Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    let make = |path: &Path| match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => set_mode(CWD, path, FileType::Directory, Mode::RWXU),
        // Somebody was faster; what it is, is looked at later.
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    };
    missing
        .into_iter()
        .rev()
        .try_for_each(make)
        .map_err(|error| io_failure(dir, "cannot be made", error.into()))
}

/// Gives what this process has just made its mode, whatever its umask has left of that. It need not
/// be possible to open it, and nothing that has taken its place is changed.
pub(crate) fn set_mode(
    dir: BorrowedFd<'_>,
    name: &Path,
    kind: FileType,
    mode: Mode,
) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&made)?;
    let has = Mode::from_raw_mode(found.st_mode);
    if has.contains(mode) && !(Mode::RWXU | Mode::RWXG | Mode::RWXO).intersects(has - mode) {
        return Ok(());
    }
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || FileType::from_raw_mode(found.st_mode) != kind {
        return Err(Errno::INVAL);
    }
    // A descriptor that only stands for a path is changed through this link.
    rustix::fs::chmod(format!("/proc/self/fd/{}", made.as_raw_fd()), mode)
}

/// The nearest directory above that is there.
pub(crate) fn open_above(dir: &Path) -> Result<OwnedFd> {
    let above = dir.ancestors().find_map(|above| above.canonicalize().ok());
    open_dir(&above.unwrap_or_else(|| ".".into()))
}

pub(crate) fn open_dir(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, dir, flags, Mode::empty())
        .map_err(|error| io_failure(dir, "cannot be opened", error.into()))
}

fn stat(path: &Path, fd: &OwnedFd) -> Result<Stat> {
    rustix::fs::fstat(fd.as_fd())
        .map_err(|error| io_failure(path, "cannot be looked at", error.into()))
}

/// The error for something that the operating system refused.
pub(crate) fn io_failure(path: &Path, what: &str, error: io::Error) -> Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Permission, "use a directory that this user may write to")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            (ErrorKind::InvalidUrl, "the embedded store is a directory, so name one")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Unreachable, "the disk is full, so make room and try again")
        }
        _ => (ErrorKind::Unreachable, "see to it and try again"),
    };
    Error::new(kind, format!("{} {what}; {advice}", shown(path))).with_source(error)
}

/// A path for people.
pub(crate) fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Group;
    use std::os::unix::fs::PermissionsExt as _;

    fn own(group: Option<Group>) -> Access {
        Access { me: rustix::process::geteuid().as_raw(), group }
    }

    impl Place {
        /// A place for tests, of who runs them.
        pub(crate) fn prepare_own(dir: &Path) -> Self {
            Self::prepare(dir, own(None)).unwrap()
        }
    }

    /// Whoever runs the tests is the other user here.
    #[test]
    fn a_directory_of_another_user_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let other = Access { me: me + 1, group: None };
        let error = Place::prepare(dir.path(), other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
        let text = format!("belongs to user {me}, and this is user {}", me + 1);
        assert!(error.to_string().contains(&text), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Place::prepare(dir.path(), own(None)).is_ok());
    }

    #[test]
    fn what_is_made_is_private_and_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare_own(&dir.path().join("a/b/"));
        let (path, first) = place.database().unwrap();
        assert_eq!(place.database().unwrap(), (path.clone(), first));
        assert_eq!(identify(&path), Some(first));
        place.write_lock().unwrap();
        place.clients().unwrap();
        assert_eq!(place.read_machine().unwrap(), None);
        place.write_machine("first\n").unwrap();
        place.write_machine("second\n").unwrap();
        assert_eq!(place.read_machine().unwrap().as_deref(), Some("second\n"));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir.path().join("a/b")).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{:?} is {mode:o}", entry.path());
            names.push(entry.file_name());
        }
        names.sort();
        assert_eq!(names, ["clients", "lockfast.db", "machine", "write.lock"]);
    }

    #[test]
    fn what_a_group_shares_is_still_while_nobody_makes_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o2770)).unwrap();
        let group = Some(Group::of(rustix::process::getegid().as_raw()));
        let prepare = || Place::prepare(dir.path(), own(group.clone()));
        let find = || Place::find(dir.path(), own(group.clone())).unwrap();
        let first = prepare().unwrap();
        assert!(!find().is_still(), "files may be made now");
        std::thread::scope(|scope| {
            let second = scope.spawn(prepare);
            // What is there already is no reason to wait for one who only looks.
            first.write_lock().unwrap();
            drop(first);
            second.join().unwrap().unwrap();
        });
        let looking = find();
        assert!(looking.is_still() && find().is_still());
        looking.check_files().unwrap();
    }

    #[test]
    fn a_shifted_clock_is_noticed() {
        for (offsets, expected) in [
            ("", false),
            ("monotonic           0         0\nboottime            0         0\n", false),
            ("monotonic           5         0\nboottime            0         0\n", false),
            ("monotonic           0         0\nboottime       864000         0\n", true),
            ("boottime 0 7\n", true),
        ] {
            assert_eq!(is_clock_shifted(offsets), expected, "{offsets}");
        }
    }
}
