//! Encrypted connections, with the provider named so that it does not depend on what else is in
//! the process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockfast_core::address::invalid;
use lockfast_core::{Address, Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_rustls::TlsConnector;

pub use tokio_rustls::client::TlsStream;

/// How an encrypted connection is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A file of certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The files of our own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate will do.
    pub insecure: bool,
}

impl Tls {
    /// The options that say so.
    pub const OPTIONS: &[&str] = &["ca", "cert", "insecure", "key"];

    /// Understands the options of an address.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for what is wrong alone or together.
    pub fn read(address: &Address) -> Result<Self> {
        let tls = Self::read_files(address)?;
        let insecure = address.choice("insecure", &[("true", true), ("false", false)])?;
        let insecure = insecure.unwrap_or(false);
        if insecure && tls.ca.is_some() {
            return Err(invalid("options ca and insecure=true contradict each other; drop one"));
        }
        Ok(Self { insecure, ..tls })
    }

    /// Understands the options that name files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for a certificate without its key.
    pub fn read_files(address: &Address) -> Result<Self> {
        let file = |name| address.option(name).map(PathBuf::from);
        let identity = match (file("cert"), file("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(invalid("options cert and key go together; give both or none")),
        };
        Ok(Self { ca: file("ca"), identity, insecure: false })
    }

    /// Refuses these options where nothing is encrypted: whoever gives them believes to be safe.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`], naming the first.
    pub fn refuse(address: &Address) -> Result<()> {
        match Self::OPTIONS.iter().find(|name| address.option(name).is_some()) {
            Some(name) => Err(invalid(format!("option {name} is of use only with tls=yes"))),
            None => Ok(()),
        }
    }
}

/// What is needed to encrypt connections; the files are read once.
#[derive(Clone, Debug)]
pub struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// Reads the files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`], naming the file that cannot be used.
    pub fn prepare(tls: &Tls) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let unusable =
            |error: rustls::Error| wrong(format!("the TLS options cannot be used: {error}"));
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

    /// The same for a server that must be told, while the two agree, which protocols are spoken.
    #[must_use]
    pub fn speaking(mut self, protocols: &[&[u8]]) -> Self {
        let config = Arc::make_mut(&mut self.0);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        self
    }

    /// Encrypts a connection to a server that answers to this name.
    ///
    /// # Errors
    /// What kept the two from agreeing.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    pub async fn encrypt<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        name: ServerName<'static>,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }

    /// What a server says that does not want to be spoken to. One that refuses our certificate, or
    /// wants one, says so after the two have agreed, and whoever writes then may not get to read it.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    pub async fn refusal<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        name: ServerName<'static>,
        stream: S,
    ) -> Option<io::Error> {
        match self.encrypt(name, stream).await {
            Ok(mut encrypted) => encrypted.read_u8().await.err(),
            Err(error) => Some(error),
        }
    }
}

/// The name that a host's certificate has to have.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] for a host that no certificate can be for.
pub fn certificate_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| invalid(format!("{host} is not a name for certificates")))
}

fn read_roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = match ca {
        Some(path) => read_certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(wrong(match ca {
            Some(path) => format!("{} holds no certificate that can be trusted", path.display()),
            None => {
                "the system has no certificates to trust; name a file with the option ca".into()
            }
        }));
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable("certificate", path, &error))
}

fn unreadable(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    wrong(format!("{} is not a {what} in PEM format: {error}", path.display()))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

/// Accepts every certificate, for whoever wants no more than that nobody listens in.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Tls> {
        Tls::read(&Address::parse(&format!("x://h?{options}")).unwrap())
    }

    #[test]
    fn the_options() {
        let tls = read("ca=/ca.pem&cert=/c.pem&key=/k.pem").unwrap();
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!(tls.identity, Some(("/c.pem".into(), "/k.pem".into())));
        assert!(read("insecure=true").unwrap().insecure);
        assert_eq!(read("insecure=false").unwrap(), Tls::default());
        let table = [
            ("cert=x", "go together"),
            ("key=x", "go together"),
            ("insecure=1", "true or false"),
            ("insecure=true&ca=x", "contradict"),
        ];
        for (options, expected) in table {
            let error = read(options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{options}");
            assert!(error.to_string().contains(expected), "{options}: {error}");
        }
        let plain = Address::parse("x://h?key=1").unwrap();
        assert!(Tls::refuse(&plain).unwrap_err().to_string().contains("option key is of use"));
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("rubbish"), "-----BEGIN CERTIFICATE-----\nx\n").unwrap();
        let table = [
            (Tls { ca: Some(path("none")), ..Tls::default() }, "not a certificate in PEM"),
            (Tls { ca: Some(path("rubbish")), ..Tls::default() }, "not a certificate in PEM"),
            (Tls { ca: Some(path("empty")), ..Tls::default() }, "no certificate that can be"),
            (
                Tls {
                    identity: Some((path("empty"), path("empty"))),
                    insecure: true,
                    ..Tls::default()
                },
                "not a private key in PEM",
            ),
        ];
        for (tls, expected) in table {
            let error = Encryption::prepare(&tls).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn names_for_certificates() {
        for host in ["localhost", "db.example.org", "127.0.0.1", "::1"] {
            assert!(certificate_name(host).is_ok(), "{host}");
        }
        let error = certificate_name("a b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    }
}
