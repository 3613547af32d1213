//! The socket between wrapper and guard: messages as JSON, each after its length.
//!
//! Sending never waits, because the other side may be stopped; what does not fit is kept and sent
//! while receiving.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The longest message: far more than the kernel takes as arguments, written as JSON.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const HEADER_BYTES: usize = 4;
/// The most file descriptors that are handed over.
const FDS_MAX: usize = 64;

/// One end of the socket.
pub(super) struct Link {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Link {
    /// Needs a runtime.
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let stream = UnixStream::from_std(socket)?;
        Ok(Self { stream, incoming: Vec::new(), outgoing: Vec::new() })
    }

    /// Sends a message, or as much as fits; the rest goes while receiving. That the other side is
    /// gone shows when receiving.
    pub(super) fn send(&mut self, message: &impl Serialize) {
        // These types always have a JSON form.
        let Ok(body) = serde_json::to_vec(message) else { return };
        let Ok(length) = u32::try_from(body.len()) else { return };
        self.outgoing.extend_from_slice(&length.to_be_bytes());
        self.outgoing.extend_from_slice(&body);
        self.write_some();
    }

    /// The next message; `None` when the other side is gone.
    ///
    /// # Cancel safety
    /// Safe: what was read stays for the next call.
    pub(super) async fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            let interest = match self.outgoing.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = self.stream.ready(interest).await?;
            if ready.is_writable() {
                self.write_some();
            }
            if ready.is_readable() {
                match self.stream.try_read_buf(&mut self.incoming) {
                    Ok(0) => return Ok(None),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn write_some(&mut self) {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.outgoing.clear(),
            }
        }
    }

    fn take_message<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some((header, rest)) = self.incoming.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*header) as usize;
        if length > BYTES_MAX {
            return Err(io::Error::other("a message is too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.incoming.drain(..HEADER_BYTES + length);
        Ok(Some(message))
    }
}

/// Hands file descriptors to the other side; the first thing that is sent.
pub(super) fn send_fds(socket: &Socket, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fds.len() > FDS_MAX || !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("no room for the file descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the file descriptors that [`send_fds`] sent.
pub(super) fn receive_fds(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(received.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (one, other) = Socket::pair().unwrap();
        send_fds(&one, &[io::stderr().as_fd(), io::stdout().as_fd()]).unwrap();
        assert_eq!(receive_fds(&other).unwrap().len(), 2);
        assert!(send_fds(&one, &[io::stderr().as_fd(); FDS_MAX + 1]).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut one, mut other) = (Link::new(one).unwrap(), Link::new(other).unwrap());
            // More than fits into the socket, so that it goes while receiving.
            let long = "x".repeat(2_000_000);
            one.send(&long);
            one.send(&"short");
            let reader = async {
                let first: String = other.receive().await.unwrap().unwrap();
                let second: String = other.receive().await.unwrap().unwrap();
                (first, second)
            };
            let (first, second) = tokio::select! {
                both = reader => both,
                _ = one.receive::<String>() => unreachable!(),
            };
            assert_eq!((first.len(), second.as_str()), (long.len(), "short"));
            drop(one);
            assert!(other.receive::<String>().await.unwrap().is_none());
        });
    }
}
