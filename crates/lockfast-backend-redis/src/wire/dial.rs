//! From an address to a connection that is ready for commands. Whoever finds the server in
//! another way (by asking a sentinel, from the map of a cluster) does it here.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lockfast_core::ErrorKind;
use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};

use super::connection::Connection;
use super::stream::{Socket, Stream};
use super::tls::Encryption;
use super::{Failure, Pipeline, cluster, sentinel};
use crate::config::{Config, Endpoint, Secret};

/// A peer that is gone without a word is noticed within about half a minute even when nothing is
/// sent, and sooner when something is.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
const USER_TIMEOUT_MS: u32 = 10_000;

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
            Ok(result) => result.map_err(|failure| failure.at(endpoint)),
            Err(_) => Err(Failure::of_silence(endpoint, limit)),
        }
    }

    async fn dial_at_leisure(
        &self,
        endpoint: &Endpoint,
        login: Login<'_>,
    ) -> Result<Connection, Failure> {
        let failed = |error| Failure::of_io(endpoint, &error);
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
                let stream = connect_tcp(host, *port).await.map_err(|error| match error {
                    Unconnected::Unknown(error) => Failure::new(
                        ErrorKind::Unreachable,
                        format!("the host of {endpoint} is not known: {error}"),
                    ),
                    Unconnected::Failed(error) => failed(error),
                })?;
                harden(&stream).map_err(failed)?;
                let (stream, session) = match &self.encryption {
                    None => (stream, None),
                    Some(encryption) => {
                        let stream = encryption.encrypt(endpoint, host, stream, limit).await?;
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
        Err(mut failure) => {
            if failure.kind == ErrorKind::InvalidConfig {
                failure.message = format!("database {}: {}", login.database, failure.message);
            }
            Err(failure)
        }
    }
}

enum Unconnected {
    Unknown(io::Error),
    Failed(io::Error),
}

async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream, Unconnected> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(Unconnected::Unknown)?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => Unconnected::Failed(error),
        None => Unconnected::Unknown(io::Error::other("it has no address")),
    })
}

fn harden(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_neither_lingers_nor_hangs() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        harden(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), USER_TIMEOUT_MS);
    }
}
