//! What the members, the way to them and our rights are like, and what that means for locks. Nothing is
//! changed but for one lease that is granted to see how long it lasts at least, and revoked at once.

mod claims;
mod cluster;
mod rights;
mod version;

use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use lockfast_core::diagnosis::{Way, judge_latency};
use lockfast_core::{Address, Diagnosis, ErrorKind, Finding, Moment};
use tokio::runtime::Handle;

use crate::config::{Config, Endpoint};
use crate::crew::Crew;
use crate::failure::{self, Failure};
use crate::key::Space;
use crate::wire::{Connection, Dialer, LeaseGrantRequest, RangeRequest, StatusResponse};

/// What is looked at, in the order in which it is told.
pub(crate) const CHECKS: &[&str] = &[
    "reachable",
    "cluster",
    "version",
    "leader",
    "members",
    "alarms",
    "space",
    "users",
    "rights",
    "claims",
    "encryption",
    "ttl-min",
    "latency",
];

/// The shortest lease of members with the usual election timeout.
pub(crate) const TTL_MIN_USUAL: Duration = Duration::from_secs(2);

/// What helps where the newest servers tell nobody else.
const TELL_ROOT: &str = "ask as a user with the role root";

/// How often a member is asked for how quickly it answers.
const ROUND_TRIPS: usize = 30;
/// No longer than that, however slow the answers are.
const ROUND_TRIPS_TIME_MAX: Duration = Duration::from_secs(3);

/// See [`crate::diagnose`].
pub(crate) async fn diagnose(address: Address) -> lockfast_core::Result<Diagnosis> {
    let crew = Crew::new(Handle::current());
    let dialer = Dialer::new(Config::read(&address)?, crew.clone())?;
    let looked = tokio::select! {
        looked = look(&dialer) => looked,
        () = crew.run() => Err(failure::of_closing()),
    };
    let findings = looked.map_err(|failure| failure.to_error())?;
    let profile = crate::backend::profile(TTL_MIN_USUAL);
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}

/// A member that the address names, and what it said of itself.
struct Named<'a> {
    endpoint: &'a Endpoint,
    /// Refused where only the role root is told.
    status: Result<StatusResponse, Failure>,
    cluster: Option<u64>,
}

impl Named<'_> {
    /// Whether it answers, but does not tell this user about itself.
    fn is_reserved(&self) -> bool {
        self.cluster.is_some() && self.status.is_err()
    }
}

async fn look(dialer: &Dialer) -> Result<Vec<Finding>, Failure> {
    let config = dialer.config();
    let mut named = Vec::new();
    for endpoint in &config.endpoints {
        named.push(ask_status(dialer, endpoint).await);
    }
    if let [Named { status: Err(failure), cluster: None, .. }] = named.as_slice() {
        return Err(failure.clone());
    }
    let mut findings: Vec<Finding> = named.iter().map(cluster::judge_reachable).collect();
    findings.push(cluster::judge_identity(&named));
    let serving = match dialer.dial().await {
        Ok(serving) => serving,
        Err(failure) if failure.kind() == ErrorKind::Permission => return Err(failure),
        Err(failure) => {
            findings.push(cluster::without_leader(&failure));
            return Ok(findings);
        }
    };
    let members = serving.members().await;
    findings.push(version::judge(&named, members.as_ref().map_or(0, Vec::len)));
    findings.push(cluster::look_at_leader(dialer, &serving, &named).await);
    findings.push(cluster::judge_members(&members));
    findings.push(cluster::judge_alarms(serving.alarms().await));
    findings.push(cluster::judge_space(&named));
    findings.extend(rights::look(config, &serving).await?);
    findings.push(claims::look(config, &serving).await);
    findings.push(judge_way(config).await);
    findings.push(look_at_ttl(&serving).await);
    findings.extend(look_at_latency(config, &serving).await);
    Ok(findings)
}

/// What could not be looked at.
fn unseen(check: &'static str, failure: &Failure) -> Finding {
    let fix = match failure.kind() {
        ErrorKind::Permission => "ask as a user with more rights",
        _ => "repeat it",
    };
    Finding::unknown(check, failure.message(), fix)
}

async fn ask_status<'a>(dialer: &Dialer, endpoint: &'a Endpoint) -> Named<'a> {
    let connection = match dialer.open(endpoint).await {
        Ok(connection) => connection,
        Err(failure) => return Named { endpoint, status: Err(failure), cluster: None },
    };
    let status = match connection.status().await {
        Err(failure) if failure.kind() == ErrorKind::Permission => {
            match dialer.introduce(&connection).await {
                Ok(()) => connection.status().await,
                Err(failure) => Err(failure),
            }
        }
        status => status,
    };
    let cluster = match &status {
        Ok(status) => status.header.as_ref().map(|header| header.cluster_id),
        Err(failure) if failure.kind() == ErrorKind::Permission => connection.cluster().await.ok(),
        Err(_) => None,
    };
    Named { endpoint, status, cluster }
}

async fn judge_way(config: &Config) -> Finding {
    let places: Vec<(String, u16)> =
        config.endpoints.iter().map(|it| (it.host.clone(), it.port)).collect();
    let resolving = tokio::task::spawn_blocking(move || {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for (host, port) in &places {
            addresses.extend((host.as_str(), *port).to_socket_addrs().ok()?.map(|it| it.ip()));
        }
        Some(addresses)
    });
    let addresses = resolving.await.ok().flatten().unwrap_or_default();
    let is_local = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    let tls = config.tls.as_ref();
    let (is_encrypted, is_checked) = (tls.is_some(), tls.is_some_and(|tls| !tls.insecure));
    Way { is_local, is_encrypted, is_checked }.judge(
        "use etcds:, and add ca if the certificate is your own",
        "leave out insecure=true, and add ca if the certificate is your own",
    )
}

/// The server gives its own minimum to whoever asks for less.
async fn look_at_ttl(serving: &Connection) -> Finding {
    const CHECK: &str = "ttl-min";
    let granted = match serving.grant(LeaseGrantRequest { ttl: 1, id: 0 }).await {
        Ok(granted) => granted,
        Err(failure) => return unseen(CHECK, &failure),
    };
    // If it is not revoked, it ends by itself.
    let _ = serving.revoke(granted.id).await;
    let least = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or_default());
    let fact = format!("leases last {least:?} at least");
    if least <= TTL_MIN_USUAL {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        format!(
            "the members wait for longer than usual before they choose a leader, so that leases \
             between {TTL_MIN_USUAL:?} and {least:?} are refused"
        ),
        "lower --election-timeout if the network between the members allows it",
    )
}

async fn look_at_latency(config: &Config, serving: &Connection) -> Option<Finding> {
    let key = Space::new(&config.prefix).span().from;
    let start = Moment::now();
    let mut round_trips = Vec::new();
    while round_trips.len() < ROUND_TRIPS && Moment::now().since(start) < ROUND_TRIPS_TIME_MAX {
        let before = Moment::now();
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        match serving.range(request).await {
            Ok(_) => round_trips.push(Moment::now().since(before)),
            Err(failure) => return Some(unseen("latency", &failure)),
        }
    }
    judge_latency(&round_trips)
}
