//! The clients of a store: each has two named pipes in `clients/`.
//!
//! `ID.alive` is open for reading and writing as long as the client lives, so the operating
//! system says when it died: whoever has it open for reading sees the end of the pipe. Through
//! `ID.wake` others tell it what happened to its claims; `ID.watch` exists while it watches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use lockfast_core::{ClientId, Error, ErrorKind, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::place::{io_failure, set_mode};

/// The directory of the clients.
#[derive(Debug)]
pub(crate) struct Clients {
    dir: OwnedFd,
    path: PathBuf,
    /// With what mode pipes are made.
    mode: Mode,
}

/// A client's pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Alive,
    Wake,
    Watch,
}

/// Whether another client is there.
#[derive(Debug)]
pub(crate) enum Life {
    /// It is; the descriptor is hung up when it dies.
    Alive(OwnedFd),
    /// Nobody has its pipe open.
    Dead,
    /// That cannot be seen; its leases end by their ttl.
    Unknown,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Done,
    /// The pipe is full, or cannot be opened; the other side finds out by itself.
    Later,
    /// Nobody reads it any more.
    NoReader,
}

impl Clients {
    /// The clients in a directory that is open.
    pub(crate) fn new((dir, path, mode): (OwnedFd, PathBuf, Mode)) -> Self {
        Self { dir, path, mode }
    }

    /// Where a client's pipe is.
    pub(crate) fn path(&self, client: ClientId, pipe: Pipe) -> PathBuf {
        self.path.join(file_name(client, pipe))
    }

    /// Makes a pipe of this client and holds it open, for reading and writing: then it never
    /// reports an end, and there is a reader as long as the client lives.
    pub(crate) fn make(&self, client: ClientId, pipe: Pipe) -> Result<OwnedFd> {
        let name = file_name(client, pipe);
        let make = || {
            rustix::fs::mknodat(&self.dir, &name, FileType::Fifo, self.mode, 0)?;
            set_mode(self.dir.as_fd(), Path::new(&name), FileType::Fifo, self.mode)?;
            self.open_pipe(&name, OFlags::RDWR)
        };
        let made = make().map_err(|error| match error {
            Errno::EXIST => Error::new(
                ErrorKind::Conflict,
                format!("client {client} is connected already; connect with an id of its own"),
            ),
            error => io_failure(&self.path(client, pipe), "cannot be made", error.into()),
        })?;
        if pipe == Pipe::Watch {
            // More room for bursts of events; a refusal leaves the usual 64 KiB.
            let _ = rustix::pipe::fcntl_setpipe_size(&made, 1 << 20);
        }
        Ok(made)
    }

    /// Whether a client is there.
    pub(crate) fn life(&self, client: ClientId) -> Life {
        match self.open_pipe(&file_name(client, Pipe::Alive), OFlags::RDONLY) {
            // Removing the file is not proof of death: somebody may have tidied up.
            Err(_) => Life::Unknown,
            Ok(pipe) if is_hung_up(pipe.as_fd()) => Life::Dead,
            Ok(pipe) => Life::Alive(pipe),
        }
    }

    /// Tells a client something.
    pub(crate) fn send(&self, client: ClientId, pipe: Pipe, message: &[u8]) -> Sent {
        let name = file_name(client, pipe);
        let writer = match self.open_pipe(&name, OFlags::WRONLY) {
            Ok(writer) => writer,
            Err(Errno::NXIO) => return Sent::NoReader,
            Err(_) => return Sent::Later,
        };
        // A reader of our own: should the client die just now, the write must not end this
        // process by a signal.
        let Ok(_reader) = self.open_pipe(&name, OFlags::RDONLY) else {
            return Sent::Later;
        };
        match rustix::io::write(&writer, message) {
            Ok(_) => Sent::Done,
            Err(_) => Sent::Later,
        }
    }

    /// Removes what is left of a client.
    pub(crate) fn remove(&self, client: ClientId) {
        for pipe in [Pipe::Wake, Pipe::Watch, Pipe::Alive] {
            self.remove_pipe(client, pipe);
        }
    }

    /// Removes one pipe of a client.
    pub(crate) fn remove_pipe(&self, client: ClientId, pipe: Pipe) {
        // It may never have existed, or somebody else was faster.
        let _ = rustix::fs::unlinkat(&self.dir, file_name(client, pipe), AtFlags::empty());
    }

    /// Every client that has left a trace.
    pub(crate) fn list(&self) -> io::Result<Vec<ClientId>> {
        let mut clients = Vec::new();
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            clients.extend(name.strip_suffix(".alive").and_then(parse_id));
        }
        Ok(clients)
    }

    fn open_pipe(&self, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&pipe)?.st_mode) {
            FileType::Fifo => Ok(pipe),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Whether nobody has a pipe open for writing.
pub(crate) fn is_hung_up(pipe: BorrowedFd<'_>) -> bool {
    matches!(rustix::io::read(pipe, &mut [0; 64]), Ok(0))
}

fn file_name(client: ClientId, pipe: Pipe) -> String {
    let kind = match pipe {
        Pipe::Alive => "alive",
        Pipe::Wake => "wake",
        Pipe::Watch => "watch",
    };
    format!("{client}.{kind}")
}

fn parse_id(text: &str) -> Option<ClientId> {
    if text.len() != 12 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 6];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(ClientId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients_in(dir: &Path) -> Clients {
        let mode = Mode::RUSR | Mode::WUSR;
        Clients::new((std::fs::File::open(dir).unwrap().into(), dir.to_owned(), mode))
    }

    #[test]
    fn the_end_of_a_client_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let clients = clients_in(dir.path());
        let client = ClientId::random().unwrap();
        assert!(matches!(clients.life(client), Life::Unknown));
        let alive = clients.make(client, Pipe::Alive).unwrap();
        let Life::Alive(watched) = clients.life(client) else {
            panic!("it is alive");
        };
        assert_eq!(clients.list().unwrap(), [client]);
        let witness = std::fs::File::options()
            .read(true)
            .write(true)
            .open(clients.path(client, Pipe::Alive))
            .unwrap();
        drop(alive);
        assert!(!is_hung_up(watched.as_fd()), "a witness has it open");
        drop(witness);
        assert!(is_hung_up(watched.as_fd()));
        assert!(matches!(clients.life(client), Life::Dead));
        clients.remove(client);
        assert!(clients.list().unwrap().is_empty());
    }

    #[test]
    fn a_message_arrives_or_it_is_known_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let clients = clients_in(dir.path());
        let client = ClientId::random().unwrap();
        assert_eq!(clients.send(client, Pipe::Wake, b"x"), Sent::Later);
        let wake = clients.make(client, Pipe::Wake).unwrap();
        assert_eq!(clients.send(client, Pipe::Wake, b"hello"), Sent::Done);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&wake, &mut bytes).unwrap(), 5);
        while clients.send(client, Pipe::Wake, &[0; 4096]) == Sent::Done {}
        assert_eq!(clients.send(client, Pipe::Wake, b"full"), Sent::Later);
        drop(wake);
        assert_eq!(clients.send(client, Pipe::Wake, b"x"), Sent::NoReader);
    }

    #[test]
    fn what_is_no_pipe_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let clients = clients_in(dir.path());
        let client = ClientId::random().unwrap();
        std::fs::write(clients.path(client, Pipe::Alive), "").unwrap();
        assert!(matches!(clients.life(client), Life::Unknown));
        std::fs::write(dir.path().join("é.alive"), "").unwrap();
        std::fs::write(dir.path().join("zzzzzzzzzzzz.alive"), "").unwrap();
        assert_eq!(clients.list().unwrap(), [client]);
    }
}
