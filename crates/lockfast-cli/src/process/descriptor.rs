//! Descriptors of this process that are known by their number only, and those that it hands down.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// From which number on those are that are handed down: scripts redirect 3 to 9.
const HANDED_DOWN_MIN: i32 = 64;

/// The same open file under a descriptor that every process below inherits, with a number that
/// scripts do not use.
///
/// # Errors
/// When there can be no more descriptors.
pub(crate) fn inheritable(file: impl AsFd) -> io::Result<OwnedFd> {
    let high = fcntl_dupfd_cloexec(&file, HANDED_DOWN_MIN)
        // Fewer descriptors are allowed; then any number will do.
        .or_else(|_| fcntl_dupfd_cloexec(&file, 0))?;
    fcntl_setfd(&high, FdFlags::empty())?;
    Ok(high)
}

/// The same open file under a descriptor that is ours.
///
/// # Errors
/// When it is not open, or the kernel refuses.
pub(crate) fn duplicate_file(number: i32) -> io::Result<File> {
    match duplicate(number) {
        Ok(copy) => Ok(File::from(copy)),
        // Some containers forbid it; opening it anew serves all but sockets.
        Err(_) => OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}")),
    }
}

/// Every socket of this process, once more.
///
/// # Errors
/// When the kernel does not allow it, as in some containers.
pub(crate) fn own_sockets() -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if let Some(number) = number
            && target.to_string_lossy().starts_with("socket:")
        {
            match duplicate(number) {
                Ok(socket) => found.push(socket),
                // It was closed meanwhile.
                Err(Errno::BADF) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(found)
}

fn duplicate(number: i32) -> Result<OwnedFd, Errno> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(own, number, PidfdGetfdFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_lives_as_long_as_its_copies() {
        let (one, mut other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        let copies = own_sockets().unwrap();
        drop(one);
        let open = other.read(&mut [0]).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        drop(copies);
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        assert_eq!(duplicate(1_000_000).unwrap_err(), Errno::BADF);
    }
}
