//! What one server says about itself, asked with as few rights as the store's user may have. What
//! it does not say is kept as the reason, never as a value.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use lockfast_core::diagnosis::{ClockSample, sample_clock};
use lockfast_core::error::quote;
use lockfast_core::{ErrorKind, Finding};

use crate::config::Endpoint;
use crate::record::GUARD_KEY;
use crate::wire::connection::Connection;
use crate::wire::dial::{Dialer, Login};
use crate::wire::{Failure, Pipeline, Reply, failure};

/// Settings that only CONFIG GET shows.
const SETTINGS: &[&str] =
    &["appendfsync", "no-appendfsync-on-rewrite", "protected-mode", "tcp-keepalive", "timeout"];

/// Why something is not known, and the right that would show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unseen {
    reason: String,
    right: &'static str,
}

impl Unseen {
    /// What is said of a check that needs it.
    pub(super) fn finding(&self, check: &'static str) -> Finding {
        let fix = format!("give {} to the user that looks", self.right);
        Finding::unknown(check, self.reason.clone(), fix)
    }
}

/// Something that was seen, or why not.
pub(super) type Seen<T> = Result<T, Unseen>;

/// One server.
#[derive(Debug)]
pub struct Facts {
    /// Where it is.
    pub endpoint: Endpoint,
    /// The address of its machine, unless it is on a socket of this one.
    pub peer: Option<IpAddr>,
    /// What kind of server it says to be, and its version.
    pub(super) software: String,
    pub(super) version: String,
    pub(super) mode: String,
    pub(super) role: String,
    pub(super) info: Seen<HashMap<String, String>>,
    pub(super) settings: HashMap<&'static str, Seen<String>>,
    pub(super) user: Seen<User>,
    pub(super) stranger: Seen<Stranger>,
    pub(super) samples: Seen<Vec<ClockSample>>,
    pub(super) fence: Seen<Option<String>>,
    pub(super) guard: Seen<Option<String>>,
}

/// Who we are to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) commands: String,
    pub(super) keys: String,
    /// Whether it gets in with any password.
    pub(super) is_open: bool,
    /// Whether it has more rights than these, by a selector.
    pub(super) has_more: bool,
}

/// What happens to whoever comes without a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// Is asked for one.
    Refused,
    /// Is let in, but may not touch locks.
    Powerless,
    /// May read and change locks.
    Admitted,
}

impl Facts {
    /// Asks the server that a dialer leads to.
    pub async fn gather(dialer: &Dialer) -> Result<Self, Failure> {
        let connection = dialer.dial().await?;
        let limit = dialer.config().request_timeout;
        let mut patient = Patient { connection, limit };
        let endpoint = patient.connection.incoming.endpoint().clone();
        let peer = patient.connection.incoming.stream().peer();
        let hello = fields(patient.ask(&["HELLO", "3"]).await?);
        let known = |name: &str| hello.get(name).cloned().unwrap_or_default();
        let info = patient.see(&["INFO"], "+info").await?.map(|reply| read_info(&reply));
        let mut settings = HashMap::new();
        for name in SETTINGS {
            settings.insert(*name, patient.setting(name).await?);
        }
        let is_single = known("mode") != "cluster";
        Ok(Self {
            peer,
            software: known("server"),
            version: known("version"),
            mode: known("mode"),
            role: known("role"),
            info,
            settings,
            user: patient.user().await?,
            fence: patient.key("lockfast:fence", is_single).await?,
            guard: patient.key(GUARD_KEY, is_single).await?,
            samples: patient.samples().await?,
            stranger: meet_stranger(dialer, &endpoint).await,
            endpoint,
        })
    }

    /// A field of INFO.
    pub(super) fn info(&self, name: &str) -> Seen<Option<&str>> {
        let info = self.info.as_ref().map_err(Clone::clone)?;
        Ok(info.get(name).map(String::as_str))
    }

    /// A field of INFO that there must be: what a server leaves out is not known.
    pub(super) fn told(&self, name: &str) -> Seen<&str> {
        let found = self.info(name)?;
        found.ok_or_else(|| Unseen { reason: format!("INFO says no {name}"), right: "+info" })
    }

    /// A number of INFO, likewise.
    pub(super) fn count(&self, name: &str) -> Seen<u64> {
        let text = self.told(name)?;
        let reason = || format!("INFO says that {name} is {}", quote(text));
        text.parse().map_err(|_| Unseen { reason: reason(), right: "+info" })
    }

    /// A setting of CONFIG GET.
    pub(super) fn setting(&self, name: &str) -> Seen<&str> {
        match self.settings.get(name) {
            Some(seen) => seen.as_deref().map_err(Clone::clone),
            None => Err(Unseen { reason: format!("{name} was not asked"), right: "+config|get" }),
        }
    }

    /// By how many seconds its clock is ahead of ours, and the error, as the quickest answer says.
    pub fn clock(&self) -> Option<(f64, f64)> {
        let samples = self.samples.as_ref().ok()?;
        samples.iter().min_by_key(|sample| sample.round_trip()).map(ClockSample::offset)
    }

    /// How long answers took, quickest first.
    pub fn round_trips(&self) -> Vec<Duration> {
        let samples = self.samples.as_deref().unwrap_or_default();
        let mut trips: Vec<_> = samples.iter().map(ClockSample::round_trip).collect();
        trips.sort_unstable();
        trips
    }

    /// What makes this start of this server different from every other, if it tells.
    pub fn run_id(&self) -> Option<&str> {
        self.info("run_id").ok().flatten()
    }
}

/// A server that is being asked.
struct Patient {
    connection: Connection,
    limit: Duration,
}

impl Patient {
    /// One reply, which may be a complaint.
    async fn ask(&mut self, command: &[&str]) -> Result<Reply, Failure> {
        let mut pipeline = Pipeline::default();
        pipeline.all(command);
        let asked = tokio::time::timeout(self.limit, self.connection.exchange(pipeline)).await;
        let replies = asked.unwrap_or_else(|_| {
            Err(failure::of_silence(self.connection.incoming.endpoint(), self.limit))
        })?;
        replies.into_iter().next().ok_or_else(|| failure::of_nonsense("no reply"))
    }

    /// The same; a complaint is why it was not seen.
    async fn see(&mut self, command: &[&str], right: &'static str) -> Result<Seen<Reply>, Failure> {
        let reply = self.ask(command).await?;
        Ok(match reply.failure() {
            Some(failure) => Err(Unseen { reason: failure.message().to_owned(), right }),
            None => Ok(reply),
        })
    }

    async fn setting(&mut self, name: &str) -> Result<Seen<String>, Failure> {
        let right = "+config|get";
        let seen = self.see(&["CONFIG", "GET", name], right).await?;
        Ok(seen.and_then(|reply| {
            let found = fields(reply).remove(name);
            found.ok_or_else(|| Unseen { reason: format!("the server has no {name}"), right })
        }))
    }

    async fn user(&mut self) -> Result<Seen<User>, Failure> {
        let name = match self.see(&["ACL", "WHOAMI"], "+acl|whoami").await? {
            Ok(reply) => reply.as_text().unwrap_or_default().to_owned(),
            Err(unseen) => return Ok(Err(unseen)),
        };
        let seen = self.see(&["ACL", "GETUSER", &name], "+acl|getuser").await?;
        Ok(seen.map(|reply| {
            let mut user = User { name, ..User::default() };
            for (key, value) in reply.into_pairs() {
                match key.as_text() {
                    Some("commands") => user.commands = words(value),
                    Some("keys") => user.keys = words(value),
                    Some("flags") => {
                        user.is_open = words(value).split(' ').any(|it| it == "nopass");
                    }
                    Some("selectors") => {
                        user.has_more = value.into_list().is_ok_and(|list| !list.is_empty());
                    }
                    _ => {}
                }
            }
            user
        }))
    }

    /// The value of a key of ours, where all of a data set have one.
    async fn key(&mut self, key: &str, is_there: bool) -> Result<Seen<Option<String>>, Failure> {
        if !is_there {
            return Ok(Ok(None));
        }
        let seen = self.see(&["GET", key], "+get ~lockfast:*").await?;
        Ok(seen.map(|reply| reply.as_text().map(str::to_owned)))
    }

    /// What its clock says, in microseconds since 1970; or why that is not seen, or is not told.
    async fn time(&mut self) -> Result<u64, Result<Unseen, Failure>> {
        let reply = self.see(&["TIME"], "+time").await.map_err(Err)?.map_err(Ok)?;
        read_time(reply).ok_or_else(|| Err(failure::of_nonsense("no time")))
    }

    async fn samples(&mut self) -> Result<Seen<Vec<ClockSample>>, Failure> {
        match sample_clock(self, |patient| Box::pin(patient.time())).await {
            Ok(samples) => Ok(Ok(samples)),
            Err(Ok(unseen)) => Ok(Err(unseen)),
            Err(Err(failure)) => Err(failure),
        }
    }
}

/// Comes without a password, and looks whether a lock could be touched.
async fn meet_stranger(dialer: &Dialer, endpoint: &Endpoint) -> Seen<Stranger> {
    let nobody = Login { user: None, password: None, database: 0 };
    let limit = dialer.config().request_timeout;
    let unseen = |failure: Failure| Unseen {
        reason: failure.message().to_owned(),
        right: "another connection",
    };
    let connection = match dialer.dial_to(endpoint, nobody, limit).await {
        Ok(connection) => connection,
        Err(failure) if failure.kind() == ErrorKind::Permission => return Ok(Stranger::Refused),
        Err(failure) => return Err(unseen(failure)),
    };
    let mut patient = Patient { connection, limit };
    // The right is looked at first, also on a node of a cluster that does not have the key.
    let reply = patient.ask(&["EXISTS", "lockfast:fence"]).await.map_err(unseen)?;
    Ok(match reply.failure() {
        Some(failure) if failure.kind() == ErrorKind::Permission => Stranger::Powerless,
        _ => Stranger::Admitted,
    })
}

fn fields(reply: Reply) -> HashMap<String, String> {
    let text = |reply: &Reply| reply.as_text().map(str::to_owned);
    let pairs = reply.into_pairs().into_iter();
    pairs.filter_map(|(key, value)| text(&key).zip(text(&value))).collect()
}

fn read_info(reply: &Reply) -> HashMap<String, String> {
    let lines = reply.as_text().unwrap_or_default().lines();
    let pairs = lines.filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A list of words, or what is one text already.
fn words(reply: Reply) -> String {
    match reply.into_list() {
        Ok(list) => list.iter().filter_map(Reply::as_text).collect::<Vec<_>>().join(" "),
        Err(reply) => reply.as_text().unwrap_or_default().to_owned(),
    }
}

fn read_time(reply: Reply) -> Option<u64> {
    let list = reply.into_list().ok()?;
    let number = |at: usize| list.get(at)?.as_text()?.parse::<u64>().ok();
    number(0)?.checked_mul(1_000_000)?.checked_add(number(1)?)
}
