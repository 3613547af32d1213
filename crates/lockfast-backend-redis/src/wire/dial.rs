//! From an address to a connection that is ready for commands. Whoever finds the server in
//! another way (by asking a sentinel, from the map of a cluster) does it here.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lockfast_core::ErrorKind;
use lockfast_core::address::Secret;
use lockfast_net::tcp::{self, Keepalive, Unconnected};
use lockfast_net::tls::{Encryption, TlsStream, certificate_name};
use tokio::net::{TcpStream, UnixStream};

use super::connection::Connection;
use super::stream::{Socket, Stream};
use super::{Failure, Pipeline, cluster, failure, sentinel};
use crate::config::{Config, Endpoint};

/// A peer that is gone without a word is noticed within about half a minute even when nothing is
/// sent.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(15), interval: Duration::from_secs(5) };

/// How to get a connection.
pub struct Dialer {
    config: Config,
    encryption: Option<Encryption>,
    /// The sentinel that is asked first: the last one that knew the master.
    pub(crate) first_sentinel: AtomicUsize,
}

/// Who we are to a server.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a Secret>,
    pub(crate) database: u32,
}

impl Dialer {
    /// Reads the files that the configuration names.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let tls = match &config.endpoint {
            Endpoint::Tcp { tls, .. } => tls.as_ref(),
            Endpoint::Service(service) => service.tls.as_ref(),
            Endpoint::Cluster(nodes) => nodes.tls.as_ref(),
            Endpoint::Unix(_) => None,
        };
        let encryption = tls.map(Encryption::prepare).transpose()?;
        Ok(Self { config, encryption, first_sentinel: AtomicUsize::new(0) })
    }

    /// What it was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Connects and introduces us, within the time that a request may take.
    pub(crate) async fn dial(&self) -> Result<Connection, Failure> {
        match &self.config.endpoint {
            Endpoint::Service(service) => sentinel::dial_master(self, service).await,
            Endpoint::Cluster(nodes) => cluster::dial_any(self, &nodes.seeds).await,
            endpoint => self.dial_to(endpoint, self.login(), self.config.request_timeout).await,
        }
    }

    /// The same for one node of a cluster.
    pub(crate) fn for_node(&self, endpoint: Endpoint) -> Self {
        Self {
            config: Config { endpoint, ..self.config.clone() },
            encryption: self.encryption.clone(),
            first_sentinel: AtomicUsize::new(0),
        }
    }

    /// Who we are to the server that keeps the locks.
    pub(crate) fn login(&self) -> Login<'_> {
        Login {
            user: self.config.user.as_deref(),
            password: self.config.password.as_ref(),
            database: self.config.database,
        }
    }

    /// Connects to one server and introduces us.
    pub(crate) async fn dial_to(
        &self,
        endpoint: &Endpoint,
        login: Login<'_>,
        limit: Duration,
    ) -> Result<Connection, Failure> {
        match tokio::time::timeout(limit, self.dial_at_leisure(endpoint, login)).await {
            Ok(result) => result.map_err(|failed| failure::at(endpoint, failed)),
            Err(_) => Err(failure::of_silence(endpoint, limit)),
        }
    }

    async fn dial_at_leisure(
        &self,
        endpoint: &Endpoint,
        login: Login<'_>,
    ) -> Result<Connection, Failure> {
        let failed = |error| failure::of_io(endpoint, &error);
        // The handshake is not worth all the time, so that its silence is told apart.
        let limit = self.config.request_timeout.mul_f64(0.8);
        let mut connection = match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(failed)?;
                let socket = Socket::Unix(stream.into_std().map_err(failed)?);
                Connection::new(endpoint.clone(), Stream::new(socket, None))?
            }
            Endpoint::Service(_) | Endpoint::Cluster(_) => {
                return Err(Failure::new(ErrorKind::Internal, "a group of servers has no address"));
            }
            Endpoint::Tcp { host, port, .. } => {
                let stream =
                    tcp::connect(host, *port, KEEPALIVE).await.map_err(|error| match error {
                        Unconnected::Unknown(error) => Failure::new(
                            ErrorKind::Unreachable,
                            format!("the host of {endpoint} is not known: {error}"),
                        ),
                        Unconnected::Failed(error) => failed(error),
                    })?;
                let (stream, session) = match &self.encryption {
                    None => (stream, None),
                    Some(encryption) => {
                        let stream = encrypt(encryption, endpoint, host, stream, limit).await?;
                        let (stream, session) = stream.into_inner();
                        (stream, Some(session))
                    }
                };
                let socket = Socket::Tcp(stream.into_std().map_err(failed)?);
                Connection::new(endpoint.clone(), Stream::new(socket, session))?
            }
        };
        introduce(&mut connection, login).await?;
        Ok(connection)
    }
}

async fn introduce(connection: &mut Connection, login: Login<'_>) -> Result<(), Failure> {
    let mut pipeline = Pipeline::default();
    let user = login.user.unwrap_or("default");
    match login.password {
        Some(password) => pipeline.all(&["HELLO", "3", "AUTH", user, &password.0]),
        None => pipeline.all(&["HELLO", "3"]),
    }
    if login.database != 0 {
        pipeline.all(&["SELECT", &login.database.to_string()]);
    }
    match connection.ask(pipeline).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.kind() == ErrorKind::InvalidConfig => {
            let message = format!("database {}: {}", login.database, failure.message());
            Err(failure.with_message(message))
        }
        Err(failure) => Err(failure),
    }
}

async fn encrypt(
    encryption: &Encryption,
    endpoint: &Endpoint,
    host: &str,
    stream: TcpStream,
    limit: Duration,
) -> Result<TlsStream<TcpStream>, Failure> {
    let encrypting = encryption.encrypt(certificate_name(host)?, stream);
    match tokio::time::timeout(limit, encrypting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(failure::of_handshake(endpoint, &error)),
        // A server that expects plain text waits for the rest of a command.
        Err(_) => Err(failure::of_handshake(endpoint, &format!("no answer within {limit:?}"))),
    }
}
