//! What servers that vote are like: each alone, and all together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{Address, Diagnosis, Error, ErrorKind, Finding, Result};

use crate::answer::to_error;
use crate::backend::{CONNECT_MAX, profile};
use crate::config::Config;
use crate::wire::{self, Dialer, Facts, Failure, Memory, Setting, examine};

/// What is looked at: first of all nodes together, then on each.
pub const CHECKS: &[&str] = &[
    QUORUM,
    REACHABLE,
    SERVERS,
    HOSTS,
    MEMORIES,
    CLOCKS,
    NODE_LATENCY,
    "encryption",
    "version",
    "topology",
    "role",
    "persistence",
    "saving",
    "eviction",
    "evicted-keys",
    "memory",
    "failover",
    "replica-lag",
    "split-brain",
    "clock-offset",
    "clock-rate",
    "latency",
    "idle-timeout",
    "tcp-keepalive",
    "max-clients",
    "acl-width",
    "default-user",
    "protected-mode",
];
const QUORUM: &str = "quorum";
const REACHABLE: &str = "reachable";
const SERVERS: &str = "distinct-servers";
const HOSTS: &str = "distinct-hosts";
const MEMORIES: &str = "persistence-mix";
const CLOCKS: &str = "clock-spread";
const NODE_LATENCY: &str = "node-latency";

/// A proposal that is further ahead of a node's clock is refused.
const SPREAD_SECONDS_MAX: f64 = 60.0;
/// From here on somebody does not keep clocks right.
const SPREAD_SECONDS_WARN: f64 = 1.0;
/// The lease that people use unless they say otherwise.
const TTL: Duration = Duration::from_secs(30);

/// What was learned of one node.
struct Node {
    name: String,
    looked: std::result::Result<Facts, Failure>,
}

/// Looks at the nodes at `address`.
pub(crate) async fn diagnose(address: Address) -> Result<Diagnosis> {
    let config = Config::read(&address)?;
    let nodes = look(&config).await?;
    if nodes.iter().all(|node| node.looked.is_err()) {
        let first = nodes.iter().find_map(|node| node.looked.as_ref().err());
        return Err(first.map_or_else(ended, to_error));
    }
    let seen: Vec<(&str, &Facts)> = nodes
        .iter()
        .filter_map(|node| Some((node.name.as_str(), node.looked.as_ref().ok()?)))
        .collect();
    let mut findings = vec![quorum(&config, seen.len())];
    findings.extend(nodes.iter().map(reachable));
    findings.extend([distinct_servers(&seen), distinct_hosts(&seen), memories(&config, &seen)]);
    findings.push(clock_spread(&seen));
    findings.extend(seen.iter().map(|(name, facts)| node_latency(&config, facts).at(*name)));
    let setting = Setting::of_voter();
    for (name, facts) in &seen {
        findings.extend(examine(facts, &setting).into_iter().map(|finding| finding.at(*name)));
    }
    let profile = profile(config.nodes.len());
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}

/// Looks at all nodes at once.
async fn look(config: &Config) -> Result<Vec<Node>> {
    let mut looks = Vec::new();
    for node in &config.nodes {
        let name = node.endpoint.to_string();
        let mut node: wire::Config = node.clone();
        node.request_timeout = CONNECT_MAX;
        let dialer = Dialer::new(node).map_err(|failure| to_error(&failure))?;
        looks.push((name, tokio::spawn(async move { Facts::gather(&dialer).await })));
    }
    let mut nodes = Vec::new();
    for (name, look) in looks {
        nodes.push(Node { name, looked: look.await.map_err(|_| ended())? });
    }
    Ok(nodes)
}

fn ended() -> Error {
    Error::new(ErrorKind::Internal, "the diagnosis ended").with_backend("redlock")
}

fn reachable(node: &Node) -> Finding {
    let finding = match &node.looked {
        Ok(_) => Finding::ok(REACHABLE, "yes"),
        Err(failure) => Finding::warn(
            REACHABLE,
            failure.message().to_owned(),
            "it has no vote, so that fewer others may fail",
            "start it, and see that this machine reaches it",
        ),
    };
    finding.at(&node.name)
}

/// How many nodes may fail or forget, in the row of the table that is on the store's page.
fn quorum(config: &Config, reached: usize) -> Finding {
    let (count, quorum) = (config.nodes.len(), config.quorum);
    let fact = format!(
        "{quorum} of {count} nodes must agree: {} may be out of reach, {} may forget",
        count - quorum,
        spare(config)
    );
    if reached < quorum {
        return Finding::warn(
            QUORUM,
            format!("{fact}; {reached} can be reached"),
            "nothing is granted or renewed",
            "start the others, and see that this machine reaches them",
        );
    }
    let (meaning, fix) = match count {
        1 => ("one node is no better than the Redis store", "use three nodes or more, or redis:"),
        _ if count % 2 == 0 => (
            "an even number of nodes tolerates no more failures than one node less",
            "add a node, or take one away",
        ),
        _ => return Finding::ok(QUORUM, fact),
    };
    Finding::warn(QUORUM, fact, meaning, fix)
}

/// How many nodes may forget before two can hold one lock.
fn spare(config: &Config) -> usize {
    (2 * config.quorum).saturating_sub(config.nodes.len() + 1)
}

fn distinct_servers(seen: &[(&str, &Facts)]) -> Finding {
    let mut twins = Vec::new();
    let mut silent = Vec::new();
    for (at, (name, facts)) in seen.iter().enumerate() {
        let Some(id) = facts.run_id() else {
            silent.push(*name);
            continue;
        };
        let twin = seen[..at].iter().find(|(_, earlier)| earlier.run_id() == Some(id));
        twins.extend(twin.map(|(twin, _)| format!("{twin} and {name}")));
    }
    if !twins.is_empty() {
        return Finding::hazard(
            SERVERS,
            format!("{} are one server", twins.join(", ")),
            "a server that votes twice makes a quorum of fewer machines, so the store refuses it",
            "name each server once",
        );
    }
    if !silent.is_empty() {
        let reason = format!("{} do not tell which server they are", silent.join(", "));
        return Finding::unknown(SERVERS, reason, "give +info to the user that looks");
    }
    Finding::ok(SERVERS, format!("{} that are not the same", seen.len()))
}

fn distinct_hosts(seen: &[(&str, &Facts)]) -> Finding {
    // This machine has many names for itself.
    let host = |facts: &Facts| {
        let peer = facts.peer.map(|peer| peer.to_canonical());
        peer.filter(|peer| !peer.is_loopback())
    };
    let hosts: BTreeSet<Option<IpAddr>> = seen.iter().map(|(_, facts)| host(facts)).collect();
    let fact = format!("{} nodes on {} machines", seen.len(), hosts.len());
    if hosts.len() == seen.len() {
        return Finding::ok(HOSTS, fact);
    }
    Finding::warn(
        HOSTS,
        fact,
        "nodes on one machine fail and forget together, and its crash may take a quorum with it",
        "run each node on a machine of its own",
    )
}

/// Whether so many nodes may forget at their next start that two could hold one lock.
fn memories(config: &Config, seen: &[(&str, &Facts)]) -> Finding {
    let mut counts = [0_usize; 3];
    let mut unseen = Vec::new();
    for (name, facts) in seen {
        match facts.memory() {
            Ok(Memory::Lasting) => counts[0] += 1,
            Ok(Memory::AlmostLasting) => counts[1] += 1,
            Ok(Memory::Fleeting) => counts[2] += 1,
            Err(_) => unseen.push(*name),
        }
    }
    let [lasting, almost, fleeting] = counts;
    let spare = spare(config);
    let fact = format!(
        "{lasting} keep everything, {almost} all but the last second, {fleeting} forget when they \
         are started anew; {spare} may"
    );
    let meaning = "two can hold one lock when that many are started anew while it is held";
    let fix = "set appendonly yes and appendfsync always on all nodes, or a higher quorum";
    if fleeting > spare {
        return Finding::hazard(MEMORIES, fact, meaning, fix);
    }
    if !unseen.is_empty() {
        let reason = format!("what {} remember cannot be seen", unseen.join(", "));
        return Finding::unknown(MEMORIES, reason, "give +info +config|get to the user that looks");
    }
    if fleeting + almost > spare {
        return Finding::warn(MEMORIES, fact, meaning, fix);
    }
    Finding::ok(MEMORIES, fact)
}

fn clock_spread(seen: &[(&str, &Facts)]) -> Finding {
    let clocks: Option<Vec<(f64, f64)>> = seen.iter().map(|(_, facts)| facts.clock()).collect();
    let Some(clocks) = clocks else {
        let reason = "a node does not tell its time";
        return Finding::unknown(CLOCKS, reason, "give +time to the user that looks");
    };
    let latest = clocks.iter().map(|(offset, _)| *offset).fold(f64::MIN, f64::max);
    let earliest = clocks.iter().map(|(offset, _)| *offset).fold(f64::MAX, f64::min);
    let error: f64 = clocks.iter().map(|(_, error)| *error).fold(0.0, f64::max) * 2.0;
    of_spread((latest - earliest).max(0.0), error)
}

fn of_spread(spread: f64, error: f64) -> Finding {
    let fact = format!("the nodes' clocks differ by {spread:.3} s ± {error:.3} s");
    if spread - error > SPREAD_SECONDS_MAX {
        return Finding::hazard(
            CLOCKS,
            fact,
            "nodes whose clock is behind refuse proposals, and when too many forget, fences can \
             fall back by as much",
            "let all of them follow a time server (chrony, systemd-timesyncd)",
        );
    }
    if spread - error > SPREAD_SECONDS_WARN {
        return Finding::warn(
            CLOCKS,
            fact,
            "when more nodes forget than the quorum can spare, fences can fall back by as much",
            "let all of them follow a time server (chrony, systemd-timesyncd)",
        );
    }
    Finding::ok(CLOCKS, fact)
}

/// Whether a node answers within what an acquisition gives it.
fn node_latency(config: &Config, facts: &Facts) -> Finding {
    let trips = facts.round_trips();
    let Some(p99) = trips.get(trips.len().saturating_sub(1) * 99 / 100) else {
        return Finding::unknown(NODE_LATENCY, "no answer was measured", "give +time to the user");
    };
    let limit = config.node_limit(TTL);
    let fact = format!("{p99:.1?} of the {limit:?} that an acquisition waits for it");
    if *p99 < limit {
        return Finding::ok(NODE_LATENCY, fact);
    }
    Finding::warn(
        NODE_LATENCY,
        fact,
        "its vote often comes too late, so that fewer others may fail",
        format!("set the option node_timeout to more than {}", quote(&format!("{p99:.0?}"))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    fn read(url: &str) -> Config {
        Config::read(&Address::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn rows_of_the_quorum() {
        let table = [
            ("redlock://a", 1, Severity::Warn, "1 of 1 nodes must agree: 0 may be out of reach, 0"),
            (
                "redlock://a,b",
                2,
                Severity::Warn,
                "2 of 2 nodes must agree: 0 may be out of reach, 1",
            ),
            (
                "redlock://a,b,c",
                3,
                Severity::Ok,
                "2 of 3 nodes must agree: 1 may be out of reach, 0",
            ),
            ("redlock://a,b,c", 1, Severity::Warn, "1 can be reached"),
            ("redlock://a,b,c?quorum=3", 3, Severity::Ok, "0 may be out of reach, 2 may forget"),
            (
                "redlock://a,b,c,d,e?quorum=4",
                5,
                Severity::Ok,
                "1 may be out of reach, 2 may forget",
            ),
        ];
        for (url, reached, severity, words) in table {
            let found = quorum(&read(url), reached);
            assert_eq!(found.severity, severity, "{url} {found:?}");
            assert!(found.fact.contains(words), "{url} {found:?}");
        }
    }

    #[test]
    fn clocks_that_differ() {
        for (spread, error, severity) in [
            (0.9, 0.0, Severity::Ok),
            (1.2, 0.3, Severity::Ok),
            (1.2, 0.1, Severity::Warn),
            (60.2, 0.1, Severity::Unsafe),
        ] {
            assert_eq!(of_spread(spread, error).severity, severity, "{spread} {error}");
        }
    }
}
