//! Encrypted connections, with the provider named so that it does not depend on what else is in
//! the process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::ErrorKind;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Failure;
use crate::config::{Endpoint, Tls};

/// What is needed to encrypt connections; the files are read once.
#[derive(Clone)]
pub(crate) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    pub(crate) fn prepare(tls: &Tls) -> Result<Self, Failure> {
        let provider = Arc::new(ring::default_provider());
        let unusable = |error: rustls::Error| {
            Failure::new(
                ErrorKind::InvalidConfig,
                format!("the TLS options cannot be used: {error}"),
            )
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = if tls.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        } else {
            builder.with_root_certificates(read_roots(tls.ca.as_deref())?)
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
        Ok(Self(Arc::new(config)))
    }

    pub(crate) async fn encrypt(
        &self,
        endpoint: &Endpoint,
        host: &str,
        stream: TcpStream,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Failure::new(ErrorKind::InvalidUrl, format!("{host} is not a name for certificates"))
        })?;
        let connecting = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream);
        match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(Failure::of_handshake(endpoint, &error)),
            // A server that expects plain text waits for the rest of a command.
            Err(_) => Err(Failure::of_handshake(endpoint, &format!("no answer within {limit:?}"))),
        }
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

/// Accepts every certificate, for the option insecure.
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
