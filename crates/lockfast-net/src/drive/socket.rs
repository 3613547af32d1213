//! A connection before it is encrypted: over TCP, or by a socket of this machine. It never blocks,
//! and whoever drives it may be on any runtime: each is told by a [`Readiness`] of its own.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::{lock, remember, wake};

/// A socket of the operating system.
#[derive(Debug)]
pub enum Raw {
    /// Over TCP.
    Tcp(TcpStream),
    /// On this machine.
    Unix(UnixStream),
}

/// A socket and who is told of what arrives.
#[derive(Debug)]
pub struct Plug {
    raw: Raw,
    /// Whether something may have arrived. It is cleared before reading, so that whatever arrives
    /// later sets it again.
    may_read: AtomicBool,
    /// Whether the other side has sent all that it will.
    has_ended: AtomicBool,
    /// Who reads, and waits for something to arrive.
    reader: Mutex<Option<Waker>>,
    is_clogged: AtomicBool,
    is_encrypted: AtomicBool,
    /// By which the runtime of whoever made the connection is told, while it wants to be.
    listening: Mutex<Option<Readiness>>,
}

impl Plug {
    /// Whoever makes it listens. Needs a tokio runtime.
    pub fn new(raw: Raw) -> io::Result<Self> {
        let plug = Self {
            raw,
            may_read: AtomicBool::new(true),
            has_ended: AtomicBool::new(false),
            reader: Mutex::default(),
            is_clogged: AtomicBool::new(false),
            is_encrypted: AtomicBool::new(false),
            listening: Mutex::default(),
        };
        plug.listen()?;
        Ok(plug)
    }

    /// Lets the present runtime be told of what arrives, and of what has arrived.
    pub fn listen(&self) -> io::Result<()> {
        let mut listening = lock(&self.listening);
        if listening.is_none() {
            *listening = Some(Readiness::new(self)?);
        }
        Ok(())
    }

    /// Leaves it to somebody else, unless there is something that could not be written.
    pub fn ignore(&self) {
        if !self.is_clogged.load(Ordering::SeqCst) {
            *lock(&self.listening) = None;
        }
    }

    /// Whether what goes through it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted.load(Ordering::Relaxed)
    }

    /// What goes through it is encrypted from now on.
    pub fn note_encryption(&self) {
        self.is_encrypted.store(true, Ordering::Relaxed);
    }

    /// Whether it never leaves this machine.
    pub fn is_local(&self) -> bool {
        match &self.raw {
            Raw::Tcp(socket) => socket.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()),
            Raw::Unix(_) => true,
        }
    }

    /// Something may have arrived: whoever reads looks.
    pub(super) fn stir(&self) {
        self.may_read.store(true, Ordering::SeqCst);
        wake(&self.reader);
    }

    /// Nothing more will arrive: what is there is read to its end, and nobody has to be told.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    fn poll_listening(
        &self,
        context: &mut Context<'_>,
        poll: fn(&Readiness, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match &*lock(&self.listening) {
            Some(readiness) => poll(readiness, context),
            None => Poll::Pending,
        }
    }
}

/// The connection as the driver of the protocol sees it.
#[derive(Debug)]
pub struct Socket(pub Arc<Plug>);

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let plug = &self.0;
        loop {
            if plug.may_read.swap(false, Ordering::SeqCst) {
                let free = buffer.initialize_unfilled();
                let wanted = free.len();
                let read = match &plug.raw {
                    Raw::Tcp(socket) => { socket }.read(free),
                    Raw::Unix(socket) => { socket }.read(free),
                };
                match read {
                    Ok(count) => {
                        // Less than there was room for was all that there was, unless the end
                        // comes behind it; nothing is the end.
                        let is_more = count == wanted || plug.has_ended.load(Ordering::SeqCst);
                        if is_more || count == 0 {
                            plug.may_read.store(true, Ordering::SeqCst);
                        }
                        buffer.advance(count);
                        return Poll::Ready(Ok(()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            remember(&plug.reader, context);
            // It may have been stirred before it was known who reads.
            if plug.may_read.load(Ordering::SeqCst) {
                continue;
            }
            ready!(plug.poll_listening(context, Readiness::poll_read))?;
            plug.may_read.store(true, Ordering::SeqCst);
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let plug = &self.0;
        loop {
            let written = match &plug.raw {
                Raw::Tcp(socket) => { socket }.write(bytes),
                Raw::Unix(socket) => { socket }.write(bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => {
                    plug.is_clogged.store(false, Ordering::SeqCst);
                    return Poll::Ready(other);
                }
            }
            plug.is_clogged.store(true, Ordering::SeqCst);
            plug.listen()?;
            ready!(plug.poll_listening(context, Readiness::poll_write))?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let how = std::net::Shutdown::Write;
        Poll::Ready(match &self.0.raw {
            Raw::Tcp(socket) => socket.shutdown(how),
            Raw::Unix(socket) => socket.shutdown(how),
        })
    }
}

/// How a runtime knows that a socket can be read or written. It has a descriptor of its own, so
/// that several runtimes can know it.
#[derive(Debug)]
pub enum Readiness {
    /// Over TCP.
    Tcp(tokio::net::TcpStream),
    /// On this machine.
    Unix(tokio::net::UnixStream),
}

impl Readiness {
    /// Lets the present runtime know; also of what has arrived before.
    pub fn new(plug: &Plug) -> io::Result<Self> {
        Ok(match &plug.raw {
            Raw::Tcp(socket) => Self::Tcp(tokio::net::TcpStream::from_std(socket.try_clone()?)?),
            Raw::Unix(socket) => Self::Unix(tokio::net::UnixStream::from_std(socket.try_clone()?)?),
        })
    }

    /// Whether something can be read. Only what arrives from now on makes it ready again.
    pub fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match self {
            Self::Tcp(socket) => socket.poll_read_ready(context),
            Self::Unix(socket) => socket.poll_read_ready(context),
        };
        polled.map_ok(|()| self.clear(Interest::READABLE))
    }

    /// Whether the other side has sent all that it will. Then it can be read for ever.
    pub(super) fn has_ended(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let is_end = |ready: Poll<io::Result<Ready>>| matches!(ready, Poll::Ready(Ok(it)) if it.is_read_closed());
        match self {
            Self::Tcp(socket) => is_end(pin!(socket.ready(Interest::READABLE)).poll(&mut context)),
            Self::Unix(socket) => is_end(pin!(socket.ready(Interest::READABLE)).poll(&mut context)),
        }
    }

    /// Whether something can be written, likewise.
    fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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
