//! The store's directory. Whoever can write there could forge grants and fences, so it must be
//! this user's alone, and so must everything in it that is used. The directory is opened once and
//! its files are looked at and made through that descriptor: as nobody else may write there,
//! nothing can be exchanged between the look and the use.

use std::fs::{DirBuilder, File};
use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::file_system;

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
    /// Who uses it.
    me: u32,
}

impl Place {
    /// Makes the directory if it is missing, and checks that a store can be there. What is refused
    /// is left as it was.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        Self::prepare_for(dir, rustix::process::geteuid().as_raw())
    }

    fn prepare_for(dir: &Path, me: u32) -> Result<Self> {
        // A slash at the end would follow a symbolic link.
        let dir: PathBuf = dir.components().collect();
        match std::fs::symlink_metadata(&dir) {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => check_link(&dir, found.uid(), me)?,
            Ok(_) => {
                let shown = shown(&dir);
                return Err(Error::new(
                    ErrorKind::InvalidUrl,
                    format!("{shown} is a file; the embedded store is a directory, so name one"),
                ));
            }
            Err(_) => {
                file_system::check(&dir, &open_above(&dir)?)?;
                make_private(&dir)?;
            }
        }
        let place = Self::open_for(&dir, me)?;
        file_system::check(&place.dir, &place.fd)?;
        place.check_files()?;
        Ok(place)
    }

    /// Opens the directory if it is there and this user's alone. Nothing is made, and neither the
    /// file system nor the files are looked at.
    pub(crate) fn open_mine(dir: &Path) -> Result<Self> {
        let me = rustix::process::geteuid().as_raw();
        let dir: PathBuf = dir.components().collect();
        if let Ok(found) = std::fs::symlink_metadata(&dir)
            && found.is_symlink()
        {
            check_link(&dir, found.uid(), me)?;
        }
        Self::open_for(&dir, me)
    }

    fn open_for(dir: &Path, me: u32) -> Result<Self> {
        let dir = dir.canonicalize().map_err(|error| io_failure(dir, "cannot be found", error))?;
        let seen = rustix::fs::statat(CWD, &dir, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| io_failure(&dir, "cannot be looked at", error.into()))?;
        check_mine(&dir, &seen, FileType::Directory, me)?;
        let fd = open_dir(&dir)?;
        let opened = stat(&dir, &fd)?;
        check_mine(&dir, &opened, FileType::Directory, me)?;
        Ok(Self { fd, dir, me })
    }

    /// Looks at everything that is there before any of it is used.
    pub(crate) fn check_files(&self) -> Result<()> {
        let files =
            [DATABASE, WRITE_LOCK, MACHINE, MACHINE_NEXT].into_iter().chain(BESIDE_DATABASE);
        for name in files {
            self.look(name, FileType::RegularFile)?;
        }
        self.look(CLIENTS, FileType::Directory)?;
        Ok(())
    }

    /// What a file of the directory is, if it is there and can be trusted.
    fn look(&self, name: &str, expected: FileType) -> Result<Option<Stat>> {
        let path = self.dir.join(name);
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => check_mine(&path, &found, expected, self.me).map(|()| Some(found)),
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
        match self.open(DATABASE, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io_failure(&path, "cannot be made", error.into())),
        }
        match self.look(DATABASE, FileType::RegularFile)? {
            Some(found) => Ok((path, identity(&found))),
            None => Err(io_failure(&path, "was removed", io::ErrorKind::NotFound.into())),
        }
    }

    /// The file whose lock lets one process write at a time.
    pub(crate) fn write_lock(&self) -> Result<File> {
        let file = self
            .open(WRITE_LOCK, OFlags::WRONLY | OFlags::CREATE)
            .map_err(|error| self.failure(WRITE_LOCK, "cannot be opened", error))?;
        let path = self.dir.join(WRITE_LOCK);
        check_mine(&path, &stat(&path, &file)?, FileType::RegularFile, self.me)?;
        Ok(file.into())
    }

    /// Where the clients' pipes are.
    pub(crate) fn clients(&self) -> Result<(OwnedFd, PathBuf)> {
        let path = self.dir.join(CLIENTS);
        match rustix::fs::mkdirat(&self.fd, CLIENTS, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io_failure(&path, "cannot be made", error.into())),
        }
        let dir = self
            .open(CLIENTS, OFlags::DIRECTORY)
            .map_err(|error| io_failure(&path, "cannot be opened", error.into()))?;
        check_mine(&path, &stat(&path, &dir)?, FileType::Directory, self.me)?;
        Ok((dir, path))
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
            let file = self.open(MACHINE_NEXT, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
            let mut file = File::from(file);
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            rustix::fs::renameat(&self.fd, MACHINE_NEXT, &self.fd, MACHINE)?;
            Ok(rustix::fs::fsync(&self.fd)?)
        };
        write().map_err(|error| io_failure(&self.dir.join(MACHINE), "cannot be written", error))
    }

    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
    }

    fn failure(&self, name: &str, what: &str, error: Errno) -> Error {
        io_failure(&self.dir.join(name), what, error.into())
    }
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

fn make_private(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| io_failure(dir, "cannot be made", error))
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

/// Refuses a link in place of the directory that somebody else could turn elsewhere: then two
/// processes would use two stores. Systemd links the directories of its services, as root.
fn check_link(path: &Path, owner: u32, me: u32) -> Result<()> {
    if [me, 0].contains(&owner) {
        return Ok(());
    }
    let flaw = format!("is a symbolic link of user {owner}, and this is user {me}");
    let shown = shown(path);
    Err(Error::new(ErrorKind::Permission, format!("{shown} {flaw}; use the directory itself")))
}

/// Refuses what others may have made or may change.
fn check_mine(path: &Path, found: &Stat, expected: FileType, me: u32) -> Result<()> {
    let Some(flaw) = flaw(found.st_mode, found.st_uid, expected, me) else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Permission, format!("{} {flaw}", shown(path))))
}

/// What is wrong with a file, and what to do about it.
fn flaw(mode: u32, owner: u32, expected: FileType, me: u32) -> Option<String> {
    let kind = FileType::from_raw_mode(mode);
    let access = mode & 0o7777;
    // Others who can read a file could lock it and keep everybody waiting. A directory that they
    // can only read shows them nothing but names.
    let (what, open_to_others, remedy) = match expected {
        FileType::Directory => ("a directory", 0o022, "chmod go-w"),
        _ => ("a file", 0o077, "chmod go-rwx"),
    };
    if kind == FileType::Symlink {
        Some(format!("is a symbolic link, which may lead to what others own; use {what} itself"))
    } else if kind != expected {
        Some(format!("is not {what}; move it away, or use another directory"))
    } else if owner != me {
        Some(format!(
            "belongs to user {owner}, and this is user {me}; use a directory of this user's own, \
             or run as user {owner}"
        ))
    } else if access & open_to_others != 0 {
        let can = if access & 0o022 != 0 { "written" } else { "read" };
        Some(format!(
            "can be {can} by others (its mode is {access:04o}); use a new directory, or, if \
             nobody has touched it, run {remedy}"
        ))
    } else {
        None
    }
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
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_others_made_or_may_change_is_refused() {
        const DIR: u32 = 0o040_000;
        const FILE: u32 = 0o100_000;
        let table: &[(u32, u32, FileType, Option<&str>)] = &[
            (DIR | 0o700, 7, FileType::Directory, None),
            (DIR | 0o755, 7, FileType::Directory, None),
            (DIR | 0o2750, 7, FileType::Directory, None),
            (DIR | 0o700, 0, FileType::Directory, Some("belongs to user 0, and this is user 7")),
            (DIR | 0o775, 7, FileType::Directory, Some("written by others (its mode is 0775)")),
            (DIR | 0o1777, 7, FileType::Directory, Some("written by others (its mode is 1777)")),
            (FILE | 0o700, 7, FileType::Directory, Some("is not a directory")),
            (0o120_777, 7, FileType::Directory, Some("symbolic link")),
            (FILE | 0o600, 7, FileType::RegularFile, None),
            (FILE | 0o600, 8, FileType::RegularFile, Some("belongs to user 8")),
            (FILE | 0o660, 7, FileType::RegularFile, Some("written by others")),
            (FILE | 0o644, 7, FileType::RegularFile, Some("read by others (its mode is 0644)")),
            (0o120_777, 7, FileType::RegularFile, Some("symbolic link")),
            (0o010_600, 7, FileType::RegularFile, Some("is not a file")),
        ];
        for (mode, owner, expected, text) in table {
            let found = flaw(*mode, *owner, *expected, 7);
            assert_eq!(found.is_some(), text.is_some(), "{mode:o} {owner}: {found:?}");
            assert!(found.unwrap_or_default().contains(text.unwrap_or_default()), "{mode:o}");
        }
    }

    /// Whoever runs the tests is the other user here.
    #[test]
    fn a_directory_of_another_user_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let error = Place::prepare_for(dir.path(), me + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
        let text = format!("belongs to user {me}, and this is user {}", me + 1);
        assert!(error.to_string().contains(&text), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Place::prepare_for(dir.path(), me).is_ok());
    }

    #[test]
    fn a_link_of_somebody_else_is_not_followed() {
        let path = Path::new("/tmp/link");
        assert!(check_link(path, 7, 7).is_ok());
        assert!(check_link(path, 0, 7).is_ok());
        assert!(check_link(path, 0, 0).is_ok());
        for (owner, me) in [(8, 7), (7, 0)] {
            let error = check_link(path, owner, me).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission);
            assert!(error.to_string().contains("use the directory itself"), "{error}");
        }
    }

    #[test]
    fn what_is_made_is_private_and_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare(&dir.path().join("a/b/")).unwrap();
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
