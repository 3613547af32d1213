//! Encrypted connections as the driver wants them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lockfast_core::BoxFuture;
use lockfast_net::drive::Socket;
use lockfast_net::tls;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use crate::config::Tls;
use crate::failure::Failure;

/// What is needed to encrypt connections to one host.
#[derive(Clone)]
pub(super) struct Encryption {
    encryption: tls::Encryption,
    name: ServerName<'static>,
}

impl Encryption {
    pub(super) fn prepare(tls: &Tls, host: &str) -> Result<Self, Failure> {
        let name = tls::certificate_name(host)?;
        Ok(Self { encryption: tls::Encryption::prepare(&tls.checks)?, name })
    }
}

/// Encrypts a connection once the server has agreed to.
pub(super) struct Connector(pub(super) Option<Encryption>);

impl TlsConnect<Socket> for Connector {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Encrypted>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let Some(Encryption { encryption, name }) = self.0 else {
                return Err(io::Error::other("encryption was not asked for"));
            };
            let plug = Arc::clone(&stream.0);
            let encrypted = encryption.encrypt(name, stream).await?;
            plug.note_encryption();
            Ok(Encrypted(encrypted))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted(tls::TlsStream<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
