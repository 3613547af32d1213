//! A stream that sends at once what is written in one go. The head of a request, its body and the
//! answer to a ping are written one after the other, and each would wake the server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// More than that is sent at once.
const BYTES_MAX: usize = 64 << 10;

/// See the module.
pub(super) struct Cork<S> {
    stream: S,
    kept: Vec<u8>,
    /// How much of that is sent.
    sent: usize,
    /// How much was kept when it was last to be sent: if it is still as much, nobody has more.
    known: usize,
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, kept: Vec::new(), sent: 0, known: 0 }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            let rest = &self.kept[self.sent..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.kept.clear();
        (self.sent, self.known) = (0, 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.kept.len() >= BYTES_MAX {
            ready!(self.poll_send(context))?;
        }
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.known != self.kept.len() {
            // Whoever else is about to write goes first.
            self.known = self.kept.len();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn what_is_written_in_one_go_is_sent_at_once() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut cork = Cork::new(near);
        let mut context = Context::from_waker(Waker::noop());
        let mut write = |cork: &mut Cork<_>, bytes: &[u8]| {
            assert!(Pin::new(&mut *cork).poll_write(&mut context, bytes).is_ready());
            Pin::new(cork).poll_flush(&mut context).is_ready()
        };
        assert!(!write(&mut cork, b"head"), "there may be more");
        assert!(!write(&mut cork, b" and body"), "there was more");
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut cork).poll_flush(&mut context).is_ready(), "there is no more");
        let mut read = [0; 64];
        let count = far.read(&mut read).await.unwrap();
        assert_eq!(&read[..count], b"head and body");
    }

    #[tokio::test]
    async fn what_does_not_fit_is_sent_later() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut cork = Cork::new(near);
        let sending = tokio::spawn(async move {
            for _ in 0..100 {
                tokio::io::AsyncWriteExt::write_all(&mut cork, &[7; 4096]).await.unwrap();
            }
            tokio::io::AsyncWriteExt::shutdown(&mut cork).await.unwrap();
        });
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        sending.await.unwrap();
        assert_eq!(all, [7; 4096 * 100]);
    }
}
