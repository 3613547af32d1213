//! An open socket, perhaps encrypted. Whichever thread is there reads and writes it, and neither
//! ever waits: who has to wait does it on a runtime of its own choice.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::ClientConnection;
use tokio::io::Interest;

/// A socket that does not block, and what encrypts it.
pub(crate) struct Stream {
    socket: Socket,
    session: Option<Mutex<ClientConnection>>,
}

/// A socket of the operating system.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// A socket that does not block.
    pub(crate) fn new(socket: Socket, session: Option<ClientConnection>) -> Self {
        Self { socket, session: session.map(Mutex::new) }
    }

    /// The address of the machine at the other end; none for a socket of this machine.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.peer_addr().ok().map(|peer| peer.ip()),
            Socket::Unix(_) => None,
        }
    }

    /// Reads what has arrived. Nothing at all is the end.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            None => Raw(&self.socket).read(bytes),
            Some(session) => self.read_encrypted(&mut lock(session), bytes),
        }
    }

    fn read_encrypted(
        &self,
        session: &mut ClientConnection,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match session.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            session.read_tls(&mut Raw(&self.socket))?;
            let processed = session.process_new_packets();
            if session.wants_write() {
                // What the protocol has to say; if it cannot now, it is said with what we send.
                let _ = session.write_tls(&mut Raw(&self.socket));
            }
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Whether less than was asked for means that nothing more is there now.
    pub(crate) fn tells_end_by_short_read(&self) -> bool {
        self.session.is_none()
    }

    /// Writes some of it; [`Stream::flush`] must follow the last.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => Raw(&self.socket).write(bytes),
            Some(session) => {
                let mut session = lock(session);
                self.write_encrypted(&mut session)?;
                session.writer().write(bytes)
            }
        }
    }

    /// Writes what is encrypted and not yet written.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.session.as_ref().map_or(Ok(()), |session| self.write_encrypted(&mut lock(session)))
    }

    fn write_encrypted(&self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Raw(&self.socket))?;
        }
        Ok(())
    }

    /// Ends the connection for everybody who still has it.
    pub(crate) fn close(&self) {
        if let Some(session) = &self.session {
            let mut session = lock(session);
            session.send_close_notify();
            let _ = self.write_encrypted(&mut session);
        }
        // It may have ended by itself.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// The socket without its encryption.
struct Raw<'a>(&'a Socket);

impl io::Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        recv(self.0, bytes, RecvFlags::empty()).map(|(_, count)| count).map_err(io::Error::from)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes, SendFlags::NOSIGNAL).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(session: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a runtime knows that a stream can be read or written. It has a descriptor of its own, so
/// that several runtimes can know it.
pub(crate) enum Readiness {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Readiness {
    /// Lets the present runtime know; also of what has arrived before.
    pub(crate) fn new(stream: &Stream) -> io::Result<Self> {
        Ok(match &stream.socket {
            Socket::Tcp(socket) => Self::Tcp(tokio::net::TcpStream::from_std(socket.try_clone()?)?),
            Socket::Unix(socket) => {
                Self::Unix(tokio::net::UnixStream::from_std(socket.try_clone()?)?)
            }
        })
    }

    /// Whether something can be read. What arrives from now on makes it ready again, so what is
    /// there must be read until there is no more.
    pub(crate) fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match self {
            Self::Tcp(socket) => socket.poll_read_ready(context),
            Self::Unix(socket) => socket.poll_read_ready(context),
        };
        polled.map_ok(|()| self.clear(Interest::READABLE))
    }

    /// Whether something can be written, likewise.
    pub(crate) fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match self {
            Self::Tcp(socket) => socket.poll_write_ready(context),
            Self::Unix(socket) => socket.poll_write_ready(context),
        };
        polled.map_ok(|()| self.clear(Interest::WRITABLE))
    }

    fn clear(&self, interest: Interest) {
        let nothing = || Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock));
        let _ = match self {
            Self::Tcp(socket) => socket.try_io(interest, nothing),
            Self::Unix(socket) => socket.try_io(interest, nothing),
        };
    }
}
