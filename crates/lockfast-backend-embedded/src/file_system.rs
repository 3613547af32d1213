//! Which file systems can hold a store: those that are known to be of this machine alone. On any
//! other, a machine that shares it would not see our locks and pipes.

use std::os::fd::OwnedFd;
use std::path::Path;

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};

use crate::place::{io_failure, shown};

/// By their number in `statfs`. What is missing here is refused, so that a file system that
/// nobody thought of is not taken for a local one.
const LOCAL: &[u64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0xCA45_1A4E, // bcachefs
    0x2FC1_2FC1, // ZFS
    0xF2F5_2010, // F2FS
    0x3153_464A, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS
    0x7366_746E, // NTFS, by the kernel
    0x2405_1905, // UBIFS
    0x72B6,      // JFFS2
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs, on a file system of the machine
    0x6175_6673, // aufs, likewise
    0xF15F,      // eCryptfs, likewise: encrypted home directories
];

/// Those of them that keep nothing when the machine is started anew: tmpfs and ramfs.
const IN_MEMORY: &[u64] = &[0x0102_1994, 0x8584_58F6];

/// The numbers of those that several machines share, for the message.
const SHARED: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x786F_4256, "vboxsf"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x1983_0326, "BeeGFS"),
];

/// Whatever a program serves. Only the type of the mount says what is behind it.
const FUSE: u64 = 0x6573_5546;
/// A disk of this machine, and what containers without rights have in place of overlayfs.
const FUSE_LOCAL: &[&str] = &["fuseblk", "fuse.fuse-overlayfs"];

/// A file system as it presents itself.
pub(crate) struct FileSystem {
    magic: u64,
    mount_type: Option<String>,
    /// How many bytes can still be written.
    pub(crate) bytes_free: u64,
}

impl FileSystem {
    /// The one that a directory is on.
    pub(crate) fn of(path: &Path, dir: &OwnedFd) -> Result<Self> {
        let failed =
            |error: rustix::io::Errno| io_failure(path, "cannot be looked at", error.into());
        let kind = rustix::fs::fstatfs(dir).map_err(failed)?;
        let device = rustix::fs::fstat(dir).map_err(failed)?.st_dev;
        // Without /proc only the number is known, which is enough for all but FUSE.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_type(&mounts, rustix::fs::major(device), rustix::fs::minor(device));
        let block = u64::try_from(kind.f_bsize).unwrap_or_default();
        Ok(Self {
            magic: kind.f_type as u64,
            mount_type: mount.map(str::to_owned),
            bytes_free: kind.f_bavail.saturating_mul(block),
        })
    }

    /// One that cannot be mounted for a test.
    #[cfg(test)]
    pub(crate) fn made_up(magic: u64, mount_type: &str, bytes_free: u64) -> Self {
        Self { magic, mount_type: Some(mount_type.to_owned()), bytes_free }
    }

    /// Why it cannot hold a store, if it cannot.
    pub(crate) fn flaw(&self) -> Option<String> {
        flaw(self.magic, self.mount_type.as_deref())
    }

    /// Whether it is gone when the machine is started anew.
    pub(crate) fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&(self.magic & 0xFFFF_FFFF))
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match &self.mount_type {
            Some(mount_type) => quote(mount_type),
            None => format!("0x{:x}", self.magic & 0xFFFF_FFFF),
        }
    }
}

/// Refuses a directory on a file system that other machines may share.
pub(crate) fn check(path: &Path, dir: &OwnedFd) -> Result<()> {
    let Some(flaw) = FileSystem::of(path, dir)?.flaw() else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "{} is on {flaw}; use a directory on a disk of this machine, or a store with a server",
            shown(path)
        ),
    ))
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

/// Why a file system cannot hold a store.
fn flaw(magic: u64, mount_type: Option<&str>) -> Option<String> {
    // The kernel keeps a signed word, and the numbers have 32 bits.
    let magic = magic & 0xFFFF_FFFF;
    if let Some((_, name)) = SHARED.iter().find(|(known, _)| *known == magic) {
        return Some(format!("{name}, where locks of several machines cannot be trusted"));
    }
    let is_local = match mount_type {
        Some(mount_type) if magic == FUSE => FUSE_LOCAL.contains(&mount_type),
        _ => LOCAL.contains(&magic),
    };
    if is_local {
        return None;
    }
    let name = mount_type.map_or_else(|| "unknown".to_owned(), quote);
    Some(format!(
        "a file system of type {name} (0x{magic:x}), which is not known to be of this machine \
         alone, and another would not see its locks"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_local_is_taken() {
        let table: &[(u64, Option<&str>, Option<&str>)] = &[
            (0xEF53, Some("ext4"), None),
            (0xEF53, None, None),
            (0x0102_1994, Some("tmpfs"), None),
            // A subvolume has a device that no mount names.
            (0x9123_683E, None, None),
            (0xFFFF_FFFF_9123_683E, Some("btrfs"), None),
            (0x794C_7630, Some("overlay"), None),
            (0xF15F, Some("ecryptfs"), None),
            (0x6573_5546, Some("fuseblk"), None),
            (0x6573_5546, Some("fuse.fuse-overlayfs"), None),
            (0x6969, Some("nfs4"), Some("NFS")),
            (0xFFFF_FFFF_FF53_4D42, None, Some("CIFS")),
            (0xFE53_4D42, None, Some("SMB2")),
            (0x0102_1997, Some("9p"), Some("9p")),
            (0x786F_4256, Some("vboxsf"), Some("vboxsf")),
            (0x6573_5546, Some("virtiofs"), Some("\"virtiofs\"")),
            (0x6573_5546, Some("fuse.sshfs"), Some("\"fuse.sshfs\"")),
            (0x6573_5546, Some("fuse.mergerfs"), Some("\"fuse.mergerfs\"")),
            (0x6573_5546, Some("fuse.s3-of-tomorrow"), Some("\"fuse.s3-of-tomorrow\"")),
            (0x6573_5546, Some("fuse"), Some("\"fuse\"")),
            (0x6573_5546, None, Some("unknown (0x65735546)")),
            (0x1234_5678, Some("newfs"), Some("\"newfs\" (0x12345678)")),
            (0x4D44, Some("vfat"), Some("\"vfat\"")),
        ];
        for (magic, mount_type, expected) in table {
            let found = flaw(*magic, *mount_type);
            assert_eq!(found.is_some(), expected.is_some(), "{magic:x} {mount_type:?}: {found:?}");
            let found = found.unwrap_or_default();
            assert!(found.contains(expected.unwrap_or_default()), "{magic:x}: {found}");
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
