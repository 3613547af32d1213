//! Finds a server that serves, and opens or resumes a session there.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{ErrorKind, Result, jitter};
use lockfast_net::tcp::{self, Keepalive, Unconnected};
use lockfast_net::tls::{Encryption, certificate_name};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::jute::{Reader, Writer};
use super::link::{self, Link, Stream, op};
use super::session::Proof;
use crate::config::{Config, Host};
use crate::failure::{self, Failure, Fate, code};

const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3) };
const PASSWORD_BYTES: usize = 16;
/// A server is given at least so much time to open a session.
const SHARE_MIN: Duration = Duration::from_millis(300);
/// The longest first reply that a ZooKeeper server gives.
const GREETING_BYTES_MAX: usize = 1024;
/// What is read of the answer to a command.
const WORD_BYTES_MAX: u64 = 1 << 20;

/// Opens sessions with the servers of one address.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) config: Config,
    encryption: Option<Encryption>,
    /// Which server is tried first next time.
    next: AtomicUsize,
    /// The last transaction that any session of ours has seen: no server that lacks it is used, so
    /// that what was seen by one session is seen by all.
    pub(super) seen: AtomicI64,
    /// Counts the connections that fell silent: whoever has another one sees whether it is alive.
    pub(super) doubts: watch::Sender<u64>,
}

/// Who a session is to the server.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    /// As asked for, then as the server allows.
    pub(super) timeout: Duration,
}

/// Which session timeouts the servers allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// Why there is no session, and whether another server may help.
enum Refusal {
    Here(Failure),
    Everywhere(Failure),
}

impl Identity {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { id: 0, password: vec![0; PASSWORD_BYTES], timeout }
    }
}

impl Dialer {
    pub(crate) fn new(config: Config) -> Result<Self> {
        let encryption = config.tls.as_ref().map(Encryption::prepare).transpose();
        let encryption = encryption.map_err(|error| error.with_backend("zookeeper"))?;
        let next = AtomicUsize::new((jitter() * config.hosts.len() as f64) as usize);
        let (seen, doubts) = (AtomicI64::new(0), watch::Sender::new(0));
        Ok(Self { config, encryption, next, seen, doubts })
    }

    /// Who decides. Servers that decide together count their elections in the upper half of each
    /// number of a transaction, from 1 on; there is nothing in it where one decides alone, unless it
    /// was one of several before. This only ever changes from one to several: see [`Self::ask_who`].
    pub(crate) fn proof(&self) -> Proof {
        if self.seen.load(Ordering::Relaxed) >> 32 == 0 { Proof::Any } else { Proof::Change }
    }

    /// Asks for the shortest and the longest session to see which the servers allow.
    pub(crate) async fn find_limits(&self) -> Result<Limits, Failure> {
        const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);
        let shortest = self.find_limit(Duration::from_millis(1));
        let (least, most) = tokio::try_join!(shortest, self.find_limit(LONGEST))?;
        Ok(Limits { least, most })
    }

    /// What the servers make of a session that is to last so long.
    async fn find_limit(&self, asked: Duration) -> Result<Duration, Failure> {
        let mut link = self.open(Identity::new(asked)).await?;
        let found = link.identity.timeout;
        link.close().await;
        Ok(found)
    }

    /// What a server answers to one of its commands of four letters.
    pub(crate) async fn ask_word(&self, host: &Host, word: &str) -> Result<String, Failure> {
        let limit = self.config.request_timeout;
        let asking = async {
            let mut stream = self.connect(host).await.map_err(|refusal| match refusal {
                Refusal::Here(failure) | Refusal::Everywhere(failure) => failure,
            })?;
            let broken = |error| failure::of_break(format!("{host} broke off: {error}"));
            stream.write_all(word.as_bytes()).await.map_err(broken)?;
            stream.flush().await.map_err(broken)?;
            let mut said = Vec::new();
            let mut stream = stream.take(WORD_BYTES_MAX);
            stream.read_to_end(&mut said).await.map_err(broken)?;
            Ok(String::from_utf8_lossy(&said).into_owned())
        };
        let silence = |_| failure::of_silence(&host.to_string(), limit);
        timeout(limit, asking).await.map_err(silence)?
    }

    /// Opens or resumes a session at the first server that serves, for as long as a request may
    /// take.
    pub(super) async fn open(&self, identity: Identity) -> Result<Link, Failure> {
        let limit = self.config.request_timeout;
        let mut last = None;
        let trying = async {
            loop {
                for _ in &self.config.hosts {
                    match self.try_next(&identity).await {
                        Ok(link) => return Ok(link),
                        Err(Refusal::Everywhere(failure)) => return Err(failure),
                        Err(Refusal::Here(failure)) => last = Some(failure),
                    }
                }
                sleep(Duration::from_millis(50).mul_f64(1.0 + jitter())).await;
            }
        };
        match timeout(limit, trying).await {
            Ok(opened) => opened,
            Err(_) => {
                Err(last.unwrap_or_else(|| failure::of_silence(&self.config.endpoint(), limit)))
            }
        }
    }

    /// Tries another server first next time, if this one is next.
    pub(super) fn avoid(&self, endpoint: &str) {
        let next = self.next.load(Ordering::Relaxed);
        let hosts = &self.config.hosts;
        if hosts[next % hosts.len()].to_string() == endpoint {
            let after = next.wrapping_add(1);
            // Somebody else may have gone on already.
            let _ = self.next.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// One server has no more than its share of the time, and of that of a session that would end.
    fn share(&self, identity: &Identity) -> Duration {
        let hosts = self.config.hosts.len();
        let share = self.config.request_timeout / hosts.min(3) as u32;
        match identity.id {
            0 => share,
            _ if hosts == 1 => share,
            _ => share.min((identity.timeout / 3).max(SHARE_MIN)),
        }
    }

    async fn try_next(&self, identity: &Identity) -> Result<Link, Refusal> {
        let hosts = &self.config.hosts;
        let host = &hosts[self.next.load(Ordering::Relaxed) % hosts.len()];
        let share = self.share(identity);
        let opened = match timeout(share, self.shake(host, identity)).await {
            Ok(opened) => opened,
            Err(_) => Err(Refusal::Here(failure::of_silence(&host.to_string(), share))),
        };
        if opened.is_err() {
            self.avoid(&host.to_string());
        }
        opened
    }

    async fn shake(&self, host: &Host, identity: &Identity) -> Result<Link, Refusal> {
        let stream = self.connect(host).await?;
        let asked = i32::try_from(identity.timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = Writer::default()
            .int(0)
            .long(self.seen.load(Ordering::Relaxed))
            .int(asked)
            .long(identity.id)
            .bytes(&identity.password)
            .bool(false);
        let mut link = Link::new(stream, host.to_string());
        let greet = async {
            link.write(&hello.into_frame()).await?;
            link.read_frame(GREETING_BYTES_MAX).await
        };
        let here = |failure| Refusal::Here(no_zookeeper(host, &failure));
        let greeting = greet.await.map_err(here)?;
        let mut reader = Reader::new(&greeting);
        let parts = (|| {
            let _version = reader.int()?;
            Some((reader.int()?, reader.long()?, reader.bytes()?.to_vec()))
        })();
        let Some((granted, id, password)) = parts else {
            return Err(here(failure::of_nonsense("its first reply is too short")));
        };
        if id == 0 || granted <= 0 || (identity.id != 0 && identity.id != id) {
            return Err(Refusal::Everywhere(failure::of_end()));
        }
        let timeout = Duration::from_millis(u64::try_from(granted).unwrap_or(0));
        link.identity = Identity { id, password, timeout };
        if let Some((user, password)) = &self.config.login {
            let login = format!("{user}:{}", password.0);
            let body = Writer::default().int(0).text("digest").bytes(login.as_bytes());
            link.write(&op::frame(op::AUTH_XID, op::AUTH, body.into_bytes()))
                .await
                .map_err(here)?;
        }
        match self.ask_who(&mut link).await {
            Ok(()) => Ok(link),
            Err(failure) if failure.handling == Fate::Ended => Err(Refusal::Everywhere(failure)),
            Err(failure) => Err(here(failure)),
        }
    }

    /// Unless several decide anyway, has the servers agree on a change that changes nothing, so that
    /// who decides is known before anything else is sent. A server becomes one of several only by being started anew, which ends
    /// its connections; and then neither its configuration, which is empty at first, nor what it knows
    /// of earlier transactions tells that it is one.
    async fn ask_who(&self, link: &mut Link) -> Result<(), Failure> {
        // No other request has it.
        const XID: i32 = 0;
        if self.proof() == Proof::Change {
            return Ok(());
        }
        link.write(&op::frame(XID, op::MULTI, op::no_change("/").into_bytes())).await?;
        loop {
            let reply = link.read_frame(GREETING_BYTES_MAX).await?;
            let mut reader = Reader::new(&reply);
            match (reader.int(), reader.long(), reader.int()) {
                (Some(XID), Some(zxid), Some(0)) => {
                    self.seen.fetch_max(zxid, Ordering::Relaxed);
                    return Ok(());
                }
                (Some(XID), _, Some(code::SESSION_EXPIRED)) => return Err(failure::of_end()),
                (Some(XID), _, Some(error)) => return Err(failure::of_refusal(error)),
                (Some(op::AUTH_XID), _, Some(error)) => link::note_login(error),
                _ => return Err(failure::of_nonsense("a reply to nothing")),
            }
        }
    }

    async fn connect(&self, host: &Host) -> Result<Stream, Refusal> {
        let stream = tcp::connect(&host.name, host.port, KEEPALIVE)
            .await
            .map_err(|error| Refusal::Here(no_connection(host, &error)))?;
        let Some(encryption) = &self.encryption else { return Ok(Box::new(stream)) };
        let failed =
            |message: String| Refusal::Here(Failure::new(ErrorKind::TlsHandshake, message));
        let name = certificate_name(&host.name).map_err(|error| failed(error.to_string()))?;
        match encryption.encrypt(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(failed(format!("no encrypted connection to {host}: {error}"))),
        }
    }
}

fn no_connection(host: &Host, error: &Unconnected) -> Failure {
    let message = match error {
        Unconnected::Unknown(error) => format!("{} cannot be found: {error}", quote(&host.name)),
        // Servers take a connection before they know whether there is room for it.
        Unconnected::Failed(error) if is_cut(error) => {
            return no_zookeeper(host, &failure::of_break(error.to_string()));
        }
        Unconnected::Failed(error) => format!("{host} cannot be reached: {error}"),
    };
    Failure::new(ErrorKind::Unreachable, message)
}

/// Whether the server had taken the connection, and ended it before anything was sent.
fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn no_zookeeper(host: &Host, failure: &Failure) -> Failure {
    let said = failure.message();
    let message = format!(
        "{host} does not serve: {said}; it is no ZooKeeper server, has no quorum, lags behind the \
         others, has no connection left for this address (maxClientCnxns), or wants encryption \
         (zookeepers:)"
    );
    Failure::new(ErrorKind::Unreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B260
    #[test]
    fn a_connection_that_is_taken_and_ended_may_be_one_too_many() {
        let host = Host { name: "h".into(), port: 2181 };
        let said = |kind: io::ErrorKind| {
            no_connection(&host, &Unconnected::Failed(kind.into())).message().to_owned()
        };
        assert!(said(io::ErrorKind::BrokenPipe).contains("maxClientCnxns"));
        assert!(said(io::ErrorKind::ConnectionReset).contains("maxClientCnxns"));
        assert!(said(io::ErrorKind::ConnectionRefused).contains("cannot be reached"));
    }
}
