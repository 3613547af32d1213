//! Encrypted connections, with the provider named so that it does not depend on what else is in
//! the process.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lockfast_core::{BoxFuture, ErrorKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::socket::Socket;
use crate::config::{Tls, TlsMode};
use crate::failure::Failure;

/// What is needed to encrypt connections; the files are read once.
#[derive(Clone)]
pub(super) struct Encryption {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Encryption {
    pub(super) fn prepare(tls: &Tls, host: &str) -> Result<Self, Failure> {
        let provider = Arc::new(ring::default_provider());
        let unusable = |error: rustls::Error| {
            Failure::new(
                ErrorKind::InvalidConfig,
                format!("the TLS options cannot be used: {error}"),
            )
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Failure::new(ErrorKind::InvalidConfig, format!("{host} is not a name for certificates"))
        })?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = if tls.mode == TlsMode::VerifyFull {
            builder.with_root_certificates(read_roots(tls.ca.as_deref())?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        };
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = read_certificates(cert)?;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable("private key", key, &error))?;
                builder.with_client_auth_cert(chain, key).map_err(unusable)?
            }
        };
        Ok(Self { config: Arc::new(config), name })
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
            let Some(Encryption { config, name }) = self.0 else {
                return Err(io::Error::other("encryption was not asked for"));
            };
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            Ok(Encrypted(stream))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted(tokio_rustls::client::TlsStream<Socket>);

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

fn read_roots(ca: Option<&Path>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let found = match ca {
        Some(path) => read_certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        let message = match ca {
            Some(path) => format!("{} holds no certificate that can be trusted", path.display()),
            None => {
                "the system has no certificates to trust; name a file with the option ca".into()
            }
        };
        return Err(Failure::new(ErrorKind::InvalidConfig, message));
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable("certificate", path, &error))
}

fn unreadable(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        ErrorKind::InvalidConfig,
        format!("{} is not a {what} in PEM format: {error}", path.display()),
    )
}

/// Accepts every certificate, as libpq does without sslmode=verify-full.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
