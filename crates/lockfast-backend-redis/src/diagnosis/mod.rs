//! What servers are like, and what that means for locks. Nothing is written there, and what this user
//! may not see is said to be unseen.
//!
//! | file | what it looks at |
//! |---|---|
//! | `facts.rs` | asks one server, and judges nothing |
//! | `version.rs` | versions with known holes |
//! | `data.rs` | memory and disk |
//! | `copies.rs` | role, replicas, failover |
//! | `access.rs` | encryption, users, rights |
//! | `service.rs` | connections, clock, latency, quarantine |
//! | `group.rs` | sentinels and clusters |

mod access;
mod copies;
mod data;
mod facts;
mod group;
mod service;
mod version;

use lockfast_core::{Address, Diagnosis, Finding, Result};

use crate::backend;
use crate::config::{Config, Endpoint, OnDataLoss};
use crate::wire::dial::Dialer;

pub use data::Memory;
pub use facts::Facts;

/// What is looked at: first of several servers together, then on each.
pub const CHECKS: &[&str] = &[
    group::SENTINELS,
    group::SLOTS,
    group::REACHABLE,
    access::ENCRYPTION,
    version::CHECK,
    copies::TOPOLOGY,
    copies::ROLE,
    data::PERSISTENCE,
    data::SAVING,
    data::EVICTION,
    data::EVICTED,
    data::MEMORY,
    copies::FAILOVER,
    copies::LAG,
    copies::SPLIT,
    service::GUARD,
    service::CLOCK_OFFSET,
    service::CLOCK_RATE,
    service::CLOCK_STEPS,
    service::LATENCY,
    service::IDLE,
    service::KEEPALIVE,
    service::CLIENTS,
    access::WIDTH,
    access::DEFAULT_USER,
    access::PROTECTED,
];

/// What the store's address says that changes the meaning of a fact.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    pub(crate) quarantine: bool,
    pub(crate) min_replicas: u32,
    /// Whether a replica takes over by itself.
    pub(crate) fails_over: bool,
    pub(crate) is_cluster: bool,
    /// Whether the server is one of several that vote.
    pub(crate) is_voter: bool,
}

impl Setting {
    /// Of one of several servers that vote.
    pub fn of_voter() -> Self {
        Self { is_voter: true, ..Self::default() }
    }

    fn of(config: &Config) -> Self {
        let is_cluster = matches!(config.endpoint, Endpoint::Cluster(_));
        Self {
            quarantine: config.on_data_loss != OnDataLoss::Warn,
            min_replicas: config.min_replicas,
            fails_over: is_cluster || matches!(config.endpoint, Endpoint::Service(_)),
            is_cluster,
            is_voter: false,
        }
    }
}

/// What is found on one server.
pub fn examine(facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut findings = vec![
        access::encryption(facts),
        version::version(facts),
        copies::topology(facts, setting),
        copies::role(facts),
        data::persistence(facts, setting),
        data::saving(facts),
        data::eviction(facts),
        data::evicted_keys(facts),
        data::memory(facts),
        copies::failover(facts, setting),
        copies::replica_lag(facts),
        copies::split_brain(facts, setting),
    ];
    // A node that votes keeps a fence for each lock, and knows no quarantine.
    let is_alone = !setting.is_voter && !setting.is_cluster;
    findings.extend(is_alone.then(|| service::guard(facts, setting)));
    findings.extend(service::timing(facts));
    findings.extend(is_alone.then(|| service::clock_steps(facts)));
    findings.extend([
        service::idle_timeout(facts),
        service::tcp_keepalive(facts),
        service::max_clients(facts),
        access::acl_width(facts),
        access::default_user(facts),
        access::protected_mode(facts),
    ]);
    findings
}

/// Looks at the servers at `address`.
pub(crate) async fn diagnose(address: Address) -> Result<Diagnosis> {
    let dialer = Dialer::new(Config::read(&address)?).map_err(|failure| failure.to_error())?;
    let setting = Setting::of(dialer.config());
    let found = match &dialer.config().endpoint {
        Endpoint::Service(service) => group::of_service(&dialer, service, &setting).await,
        Endpoint::Cluster(nodes) => group::of_cluster(&dialer, &nodes.seeds, &setting).await,
        _ => Facts::gather(&dialer).await.map(|facts| examine(&facts, &setting)),
    };
    let findings = found.map_err(|failure| failure.to_error())?;
    let profile = backend::profile(&dialer.config().on_data_loss);
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}
