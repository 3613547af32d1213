//! Which process of the server a connection was told to be. The driver keeps that to itself, but
//! says it to whoever is asked to cancel what runs.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A request to cancel: its length, its code, the process, and a secret.
const REQUEST_BYTES: usize = 16;

/// The process that cancelling what a connection does would go to.
pub(super) async fn id_of(client: &Client) -> Option<i32> {
    let mut written = Vec::new();
    let stub = Stub(&mut written);
    client.cancel_token().cancel_query_raw(stub, Plain).await.ok()?;
    let request = written.get(written.len().checked_sub(REQUEST_BYTES)?..)?;
    Some(i32::from_be_bytes(request.get(8..12)?.try_into().ok()?))
}

/// A connection to nobody, who agrees to encrypt and writes down what is said.
struct Stub<'a>(&'a mut Vec<u8>);

impl AsyncRead for Stub<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stub<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().0.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Stub<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Encrypts nothing: nothing leaves this process.
struct Plain;

impl<'a> TlsConnect<Stub<'a>> for Plain {
    type Stream = Stub<'a>;
    type Error = io::Error;
    type Future = Ready<io::Result<Stub<'a>>>;

    fn connect(self, stream: Stub<'a>) -> Self::Future {
        ready(Ok(stream))
    }
}
