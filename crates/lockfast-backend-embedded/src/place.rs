//! The store's directory: whether it may be one, and what the machine says about itself.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};
use rustix::fs::OFlags;

/// A directory that can hold a store.
#[derive(Debug)]
pub(crate) struct Place {
    /// Without symbolic links, so that it means the same to every process.
    pub(crate) dir: PathBuf,
}

impl Place {
    /// Makes the directory if it is missing, and checks that a store can be there.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        if dir.exists() && !dir.is_dir() {
            return Err(Error::new(
                ErrorKind::InvalidUrl,
                format!("{} is a file; the embedded store is a directory, so name one", shown(dir)),
            ));
        }
        make_private(dir)?;
        let dir = dir.canonicalize().map_err(|error| io_failure(dir, "cannot be found", error))?;
        check_file_system(&dir)?;
        let clients = dir.join("clients");
        make_private(&clients)?;
        check_mine(&clients)?;
        Ok(Self { dir })
    }

    /// The database. It is made here, so that nobody else can read it; SQLite then opens it.
    pub(crate) fn database(&self) -> Result<PathBuf> {
        let path = self.dir.join("lockfast.db");
        // An existing file must not even be opened: closing it again would drop the locks that
        // another connection of this process has on it.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(path),
            Err(error) => Err(io_failure(&path, "cannot be made", error)),
        }
    }

    /// The file whose lock lets one process write at a time.
    pub(crate) fn write_lock(&self) -> Result<File> {
        let path = self.dir.join("write.lock");
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(|error| io_failure(&path, "cannot be opened", error))
    }

    /// Where the clients' pipes are.
    pub(crate) fn clients(&self) -> PathBuf {
        self.dir.join("clients")
    }
}

/// Which start of the machine this is.
pub(crate) fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(PATH)
        .map_err(|error| io_failure(Path::new(PATH), "cannot be read", error))?;
    Ok(id.trim().to_owned())
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

/// Whoever can write there could pretend to be any client.
fn check_mine(clients: &Path) -> Result<()> {
    let found = std::fs::symlink_metadata(clients)
        .map_err(|error| io_failure(clients, "cannot be looked at", error))?;
    let me = rustix::process::geteuid().as_raw();
    let flaw = if !found.is_dir() {
        "is not a directory".to_owned()
    } else if found.uid() != me {
        format!("belongs to user {}, and this is user {me}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        "can be written by others".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Permission,
        format!("{} {flaw}; use a directory that is this user's alone", shown(clients)),
    ))
}

fn check_file_system(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| io_failure(dir, "cannot be looked at", error);
    let kind = rustix::fs::statfs(dir).map_err(|error| failed(error.into()))?;
    let device = std::fs::metadata(dir).map_err(failed)?.dev();
    // Without /proc only the number is known, which is enough for all but FUSE.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_type(&mounts, rustix::fs::major(device), rustix::fs::minor(device));
    match network_file_system(kind.f_type as u64, mount) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} is on {name}, where locks of several machines cannot be trusted; use a \
                 directory on a disk of this machine, or a store with a server",
                shown(dir)
            ),
        )),
    }
}

/// The type in `/proc/self/mountinfo` of what is mounted from a device.
fn mount_type(mounts: &str, major: u32, minor: u32) -> Option<&str> {
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let is_it = mount.split(' ').nth(2) == Some(device.as_str());
        is_it.then(|| rest.split(' ').next()).flatten()
    })
}

/// The name of a file system that other machines may share.
fn network_file_system(magic: u64, mount_type: Option<&str>) -> Option<String> {
    const BY_MAGIC: &[(u64, &str)] = &[
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB2"),
        (0x0102_1997, "9p"),
        (0x5346_414F, "AFS"),
        (0x6B41_4653, "AFS"),
        (0x7375_7245, "Coda"),
        (0x00C3_6400, "Ceph"),
        (0x0BD0_0BD0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x7461_636F, "OCFS2"),
        (0x0116_1970, "GFS2"),
    ];
    const FUSE: u64 = 0x6573_5546;
    const FUSE_NETWORK: &[&str] = &[
        "virtiofs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.glusterfs",
        "fuse.gcsfuse",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.curlftpfs",
        "fuse.davfs",
        "fuse.ceph-fuse",
        "fuse.moosefs",
        "fuse.lizardfs",
        "fuse.seaweedfs",
        "fuse.smbnetfs",
    ];
    // The kernel keeps a signed word, and the numbers have 32 bits.
    let magic = magic & 0xFFFF_FFFF;
    if magic == FUSE {
        return mount_type
            .filter(|mount_type| FUSE_NETWORK.contains(mount_type))
            .map(str::to_owned);
    }
    BY_MAGIC.iter().find(|(known, _)| *known == magic).map(|(_, name)| (*name).to_owned())
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

    #[test]
    fn network_file_systems_are_known_by_number_or_mount() {
        let table: &[(u64, Option<&str>, Option<&str>)] = &[
            (0xEF53, Some("ext4"), None),
            (0x0102_1994, Some("tmpfs"), None),
            (0x9123_683E, Some("btrfs"), None),
            (0x794C_7630, Some("overlay"), None),
            (0x6969, Some("nfs4"), Some("NFS")),
            (0xFFFF_FFFF_FF53_4D42, None, Some("CIFS")),
            (0xFE53_4D42, None, Some("SMB2")),
            (0x0102_1997, Some("9p"), Some("9p")),
            (0x6573_5546, Some("fuse.sshfs"), Some("fuse.sshfs")),
            (0x6573_5546, Some("virtiofs"), Some("virtiofs")),
            (0x6573_5546, Some("fuse.mergerfs"), None),
            (0x6573_5546, Some("fuseblk"), None),
            (0x6573_5546, None, None),
        ];
        for (magic, mount_type, expected) in table {
            let found = network_file_system(*magic, *mount_type);
            assert_eq!(found.as_deref(), *expected, "{magic:x} {mount_type:?}");
        }
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

    #[test]
    fn the_mount_is_found_by_its_device() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      40 22 0:35 / /mnt/a\\040b rw - fuse.sshfs me@host: rw\n\
                      rubbish\n";
        assert_eq!(mount_type(mounts, 254, 0), Some("ext4"));
        assert_eq!(mount_type(mounts, 0, 35), Some("fuse.sshfs"));
        assert_eq!(mount_type(mounts, 0, 3), None);
    }
}
