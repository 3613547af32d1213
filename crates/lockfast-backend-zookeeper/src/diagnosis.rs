//! What the servers are like, and what that means for locks. Nothing is changed.

mod access;
mod ensemble;
mod server;
mod words;

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::diagnosis::judge_latency;
use lockfast_core::view::brief;
use lockfast_core::{Address, Diagnosis, ErrorKind, Finding, Moment};
use tokio::runtime::Handle;

use crate::backend::profile;
use crate::config::{Config, Host};
use crate::failure::{Failure, Fate};
use crate::store::{ENSEMBLE_NODE, guess_tick, no_chroot};
use crate::wire::{Dialer, Limits, Proof, Session};
use ensemble::{Members, Untold};
use words::{Answer, Words};

/// What is looked at, in the order in which it is told.
pub(crate) const CHECKS: &[&str] = &[
    "reachable",
    "version",
    "role",
    "members",
    "addresses",
    "followers",
    "session-timeouts",
    "tick",
    "durability",
    "directories",
    "connections",
    "encryption",
    "access",
    "latency",
];

/// How long the session lasts in which this is done, where the servers allow it.
const SESSION: Duration = Duration::from_secs(10);
/// P9: how long a dead waiter may delay others, and how long after its ttl the lock of a dead holder
/// may be free.
const WAITER_GONE_MAX: Duration = Duration::from_secs(2);
const HOLDER_GONE_MAX: Duration = Duration::from_secs(1);
/// How often the way to the leader is measured.
const ROUND_TRIPS: usize = 50;

/// See [`crate::diagnose`].
pub(crate) async fn diagnose(address: Address) -> lockfast_core::Result<Diagnosis> {
    let dialer = Arc::new(Dialer::new(Config::read(&address)?)?);
    let findings = look(&dialer).await.map_err(|failure| failure.to_error())?;
    // What it promises does not depend on how long sessions last.
    let profile = profile((Duration::ZERO, Duration::MAX), Proof::Any);
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}

/// A server of the address, and what it says of itself.
struct Patient<'a> {
    host: &'a Host,
    words: Words,
}

impl Patient<'_> {
    /// The server's unit of time.
    fn tick(&self) -> Option<Duration> {
        self.words.conf.value("tickTime", "=")?.parse().ok().map(Duration::from_millis)
    }
}

async fn look(dialer: &Arc<Dialer>) -> Result<Vec<Finding>, Failure> {
    let limits = dialer.find_limits().await?;
    let timeout = SESSION.clamp(limits.least, limits.most);
    let proof = dialer.proof();
    let session = Session::open(dialer, &Handle::current(), timeout, timeout, proof).await?;
    let config = &dialer.config;
    let access = read_access(&session, config).await?;
    let is_alone = proof == Proof::Any;
    let members = match session.get_at(ENSEMBLE_NODE).await {
        Ok(text) => Members::read(&String::from_utf8_lossy(&text), is_alone),
        Err(failure) if is_refusal(&failure) => Err(Untold::Forbidden),
        Err(failure) => return Err(failure),
    };
    let round_trips = measure(&session).await?;
    // The session that was just opened is a change, which every server has written by now.
    let mut patients = Vec::new();
    for host in &config.hosts {
        patients.push(Patient { host, words: Words::ask(dialer, host).await });
    }
    let mut findings: Vec<Finding> = patients.iter().map(server::judge_reach).collect();
    let serving: Vec<&Patient<'_>> =
        patients.iter().filter(|patient| patient.words.is_serving()).collect();
    findings.extend(serving.iter().map(|patient| server::judge_version(patient)));
    findings.extend(serving.iter().map(|patient| server::judge_role(patient)));
    findings.extend(ensemble::judge(&members, config.hosts.len(), &serving));
    let assumed = config.tick.unwrap_or_else(|| guess_tick(limits));
    let tick = serving.iter().filter_map(|patient| patient.tick()).max().unwrap_or(assumed);
    findings.push(judge_timeouts(limits, tick, is_alone));
    if !is_alone {
        findings.extend(serving.iter().map(|patient| server::judge_tick(patient, assumed)));
    }
    findings.extend(serving.iter().map(|patient| server::judge_durability(patient)));
    findings.extend(serving.iter().map(|patient| server::judge_directories(patient)));
    findings.extend(serving.iter().map(|patient| server::judge_connections(patient)));
    findings.push(access::look_at_way(config).await);
    findings.push(access::judge(access.as_deref(), config));
    findings.extend(judge_latency(&round_trips));
    Ok(findings)
}

/// Who may do what with the node that holds the locks; nothing if that is not to be known.
async fn read_access(
    session: &Session,
    config: &Config,
) -> Result<Option<Vec<access::Entry>>, Failure> {
    let path = if config.chroot.is_empty() { "/" } else { config.chroot.as_str() };
    match session.access_at(path).await {
        Ok(entries) => Ok(Some(entries)),
        Err(failure) if failure.handling.is_no_node() => {
            Err(Failure::new(ErrorKind::InvalidConfig, no_chroot(path)))
        }
        Err(failure) if is_refusal(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.handling, Fate::Refused(_))
}

/// How long the way to the leader and back takes.
async fn measure(session: &Session) -> Result<Vec<Duration>, Failure> {
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let asked = Moment::now();
        session.sync().await?;
        round_trips.push(Moment::now().since(asked));
    }
    Ok(round_trips)
}

/// A dead waiter is gone after the shortest session and a tick; the lock of a dead holder is free
/// within a tick of its ttl on one server, and within two and a quarter on an ensemble.
fn judge_timeouts(limits: Limits, tick: Duration, is_alone: bool) -> Finding {
    const CHECK: &str = "session-timeouts";
    let Limits { least, most } = limits;
    let fact = format!("sessions of {} to {}", brief(least), brief(most));
    let late = if is_alone { tick } else { tick * 9 / 4 };
    if least + tick > WAITER_GONE_MAX {
        return Finding::warn(
            CHECK,
            fact,
            format!("a waiter that dies delays those behind it for up to {}", brief(least + tick)),
            "set tickTime lower, and minSessionTimeout if it is set",
        );
    }
    if late > HOLDER_GONE_MAX {
        return Finding::warn(
            CHECK,
            fact,
            format!("the lock of a holder that dies is free up to {} after its ttl", brief(late)),
            "set tickTime lower",
        );
    }
    Finding::ok(CHECK, fact)
}

/// That a server does not tell, and what would let it.
fn untold(check: &'static str, patient: &Patient<'_>, word: &str, answer: &Answer) -> Finding {
    let reason = match answer {
        Answer::Forbidden => format!("the server does not answer {word}"),
        Answer::Failed(reason) => format!("{word} is not answered: {reason}"),
        Answer::Said(_) => format!("the server does not tell it in {word}"),
    };
    let fix = "allow its commands in zoo.cfg: 4lw.commands.whitelist=srvr,mntr,conf";
    Finding::unknown(check, reason, fix).at(patient.host.to_string())
}
