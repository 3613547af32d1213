//! Connections to members of a cluster. The client library is named here only.

mod connection;
mod cork;
mod look;
mod message;
mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast_core::{ErrorKind, Result};
use lockfast_net::drive::{Plug, Raw, Socket};
use lockfast_net::tcp::{self, Keepalive, Unconnected};
use lockfast_net::tls::{Encryption, certificate_name};
use tokio::task::JoinSet;

pub(crate) use self::connection::{Connection, Stream};
pub(crate) use self::look::{Alarm, AlarmMember, Member, Permission};
#[cfg(test)]
pub(crate) use self::message::ResponseOp;
pub(crate) use self::message::{
    Against, AuthenticateRequest, AuthenticateResponse, Compare, DeleteRangeRequest, Done, Event,
    EventType, KeepAliveRequest, KeepAliveResponse, KeyValue, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeResponse, Op, PutRequest, RangeRequest, RangeResponse, Relation,
    RequestOp, StatusResponse, Target, TimeToLiveResponse, TxnRequest, TxnResponse,
    WatchCancelRequest, WatchCreateRequest, WatchOp, WatchRequest, WatchResponse,
};
use crate::config::{Config, Endpoint};
use crate::crew::Crew;
use crate::failure::{self, Failure, Fate};
use status::WANTS_USER;

const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3) };
/// The oldest server that has what is used: watches under numbers of our own, and learners.
const VERSION_MIN: (u32, u32) = (3, 4);

/// How much sooner than the next a member is tried: one that hangs does not hold up the others.
const STAGGER: Duration = Duration::from_millis(300);

/// Makes connections, to whichever member serves. Clones share what they know.
#[derive(Clone)]
pub(crate) struct Dialer {
    config: Arc<Config>,
    encryption: Option<Encryption>,
    crew: Crew,
    /// Which member is tried first.
    next: Arc<AtomicUsize>,
}

impl Dialer {
    /// Reads the files that the address names.
    pub(crate) fn new(config: Config, crew: Crew) -> Result<Self> {
        let encryption = match &config.tls {
            Some(tls) => Some(Encryption::prepare(tls)?.speaking(&[b"h2"])),
            None => None,
        };
        Ok(Self { config: Arc::new(config), encryption, crew, next: Arc::default() })
    }

    /// Who does the work of its connections.
    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Connects to the first member that serves. Told is what the last of them said.
    pub(crate) async fn dial(&self) -> Result<Connection, Failure> {
        let count = self.config.endpoints.len();
        let start = self.next.load(Ordering::Relaxed);
        let mut untried = (0..count).map(|at| (start + at) % count);
        let mut dialing = JoinSet::new();
        let mut said = Failure::new(ErrorKind::Unreachable, "there is no member to connect to");
        loop {
            if let Some(at) = untried.next() {
                let (dialer, endpoint) = (self.clone(), self.config.endpoints[at].clone());
                dialing.spawn(async move { (at, dialer.dial_member(&endpoint).await) });
            } else if dialing.is_empty() {
                return Err(said);
            }
            let stagger = if untried.len() > 0 { STAGGER } else { Duration::MAX };
            let dialed = match tokio::time::timeout(stagger, dialing.join_next()).await {
                Ok(Some(Ok(dialed))) => dialed,
                Ok(_) | Err(_) => continue,
            };
            match dialed {
                (at, Ok(connection)) => {
                    self.next.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                // What is wrong with us is wrong everywhere.
                (_, Err(failure)) if failure.kind() == ErrorKind::Permission => {
                    return Err(failure);
                }
                (_, Err(failure)) => said = failure,
            }
        }
    }

    /// The next connection is to another member, if there is one.
    pub(crate) fn turn_away(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// Connects to a member that can serve us.
    pub(crate) async fn dial_member(&self, endpoint: &Endpoint) -> Result<Connection, Failure> {
        let connection = self.open(endpoint).await?;
        let shown = endpoint.to_string();
        match connection.status().await {
            Ok(status) => check_status(&shown, &status)?,
            // The newest servers tell it to the role root only. They are new enough, and a user
            // can prove who he is only to a member that serves and knows of a leader.
            Err(failure) if failure.message() == WANTS_USER && self.config.login.is_some() => {}
            Err(failure) => return Err(self.why_refused(endpoint).await.unwrap_or(failure)),
        }
        self.introduce(&connection).await?;
        Ok(connection)
    }

    /// Connects to a member, whatever it is.
    pub(crate) async fn open(&self, endpoint: &Endpoint) -> Result<Connection, Failure> {
        let limit = self.config.request_timeout;
        let shown = endpoint.to_string();
        let opening = self.open_stream(endpoint);
        match tokio::time::timeout(limit, opening).await {
            Ok(connection) => connection,
            Err(_) => Err(failure::of_silence(&shown, limit)),
        }
    }

    async fn open_stream(&self, endpoint: &Endpoint) -> Result<Connection, Failure> {
        let shown = endpoint.to_string();
        let broken =
            |message: String| Failure::new(ErrorKind::Unreachable, message).with(Fate::Broken);
        let stream = tcp::connect(&endpoint.host, endpoint.port, KEEPALIVE).await.map_err(
            |unconnected| match unconnected {
                Unconnected::Unknown(error) => broken(format!("{shown} is not known: {error}")),
                Unconnected::Failed(error) => broken(format!("{shown} cannot be reached: {error}")),
            },
        )?;
        let plug = stream.into_std().and_then(|stream| Plug::new(Raw::Tcp(stream)));
        let plug =
            plug.map_err(|error| broken(format!("{shown} cannot be listened to: {error}")))?;
        let (limit, plug) = (self.config.request_timeout, Arc::new(plug));
        let socket = Socket(Arc::clone(&plug));
        let Some(encryption) = &self.encryption else {
            return Connection::start(shown, (socket, plug), limit, &self.crew).await;
        };
        let name = certificate_name(&endpoint.host)?;
        let stream = encryption.encrypt(name, socket).await.map_err(|error| {
            let message = format!(
                "no encrypted connection to {shown}: {error}; without encryption the scheme is etcd:"
            );
            Failure::new(ErrorKind::TlsHandshake, message)
        })?;
        Connection::start(shown, (stream, plug), limit, &self.crew).await
    }

    /// What a server says that does not want our certificate, or that there is none: it does so only
    /// when both have agreed, and often too late for the first call.
    async fn why_refused(&self, endpoint: &Endpoint) -> Option<Failure> {
        let encryption = self.encryption.as_ref()?;
        let asking = async {
            let stream = tcp::connect(&endpoint.host, endpoint.port, KEEPALIVE).await.ok()?;
            encryption.refusal(certificate_name(&endpoint.host).ok()?, stream).await
        };
        let asked = tokio::time::timeout(self.config.request_timeout, asking).await;
        let said = asked.ok().flatten()?.to_string();
        if !said.contains("alert") {
            return None;
        }
        let hint = match self.config.tls.as_ref().is_some_and(|tls| tls.identity.is_some()) {
            true => "it may not know who signed our certificate",
            false => "it may want a certificate of ours, which the options cert and key name",
        };
        let message = format!("no encrypted connection to {endpoint}: {said}; {hint}");
        Some(Failure::new(ErrorKind::TlsHandshake, message))
    }

    /// A read that costs nothing, for what its answer tells beside the key.
    pub(crate) fn glance(&self) -> RangeRequest {
        let key = if self.config.prefix.is_empty() { "/" } else { &self.config.prefix };
        RangeRequest { key: key.as_bytes().to_vec(), keys_only: true, ..RangeRequest::default() }
    }

    /// Proves who we are, or finds out that nobody wants to know.
    pub(crate) async fn introduce(&self, connection: &Connection) -> Result<(), Failure> {
        if self.config.login.is_some() {
            return self.renew_token(connection, connection.token_number()).await;
        }
        // Leases are granted to everybody, so it would be noticed by the first lock only.
        let request = RangeRequest { serializable: true, ..self.glance() };
        match connection.range(request).await {
            Err(failure) if failure.message() == WANTS_USER => Err(failure),
            _ => Ok(()),
        }
    }

    /// Whether a request was refused because the member does not know who we are, and can be told.
    pub(crate) fn may_introduce(&self, failure: &Failure) -> bool {
        let wants_user = failure.message() == WANTS_USER && self.config.login.is_some();
        failure.handling == Fate::Stranger || wants_user
    }

    /// Asks for a new token and uses it from now on, unless there is a newer one than that.
    pub(crate) async fn renew_token(
        &self,
        connection: &Connection,
        number: u64,
    ) -> Result<(), Failure> {
        let _one_at_a_time = connection.renewing().await;
        if connection.token_number() != number {
            return Ok(());
        }
        let Some(login) = &self.config.login else {
            return Err(Failure::new(ErrorKind::Permission, WANTS_USER));
        };
        let request =
            AuthenticateRequest { name: login.user.clone(), password: login.password.0.clone() };
        match connection.authenticate(request).await {
            Ok(AuthenticateResponse { token, .. }) => connection.set_token(token),
            // Whoever names a user where nobody is asked for one is let in like everybody.
            Err(failure) if failure.message().contains("authentication is not enabled") => {
                connection.forget_token();
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Whether a member can serve us.
fn check_status(shown: &str, status: &StatusResponse) -> Result<(), Failure> {
    check_version(shown, &status.version)?;
    if status.is_learner {
        let message = format!("{shown} is a learner, which does not serve yet");
        return Err(Failure::new(ErrorKind::WrongNode, message));
    }
    if status.leader == 0 {
        let message = format!("{shown} knows of no leader: too few members can reach each other");
        return Err(Failure::new(ErrorKind::Unreachable, message));
    }
    Ok(())
}

fn check_version(shown: &str, version: &str) -> Result<(), Failure> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let found = match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => return Err(failure::of_nonsense("its version is not one")),
    };
    if found < VERSION_MIN {
        let message = format!(
            "{shown} runs etcd {version}; Lockfast needs {}.{} or newer",
            VERSION_MIN.0, VERSION_MIN.1
        );
        return Err(Failure::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused() {
        for version in ["3.4.0", "3.4.23", "3.5.1", "3.6.0-rc.1", "4.0.0"] {
            assert!(check_version("h:1", version).is_ok(), "{version}");
        }
        for (version, kind) in [
            ("3.3.27", ErrorKind::Unsupported),
            ("2.3.8", ErrorKind::Unsupported),
            ("", ErrorKind::CorruptRecord),
            ("new", ErrorKind::CorruptRecord),
        ] {
            assert_eq!(check_version("h:1", version).unwrap_err().kind(), kind, "{version}");
        }
    }
}
