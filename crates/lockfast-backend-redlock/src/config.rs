//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a quorum with which two could hold one lock.

use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{Address, Error, ErrorKind, Result};

use crate::record::event_channel;
use crate::wire;

const OPTIONS: &[&str] = &["node_timeout", "on_restart", "quorum"];
/// Votes are kept as bits, and nobody has so many servers.
const NODES_MAX: usize = 31;
const NODE_TIME_MIN: Duration = Duration::from_millis(5);
const NODE_TIME_MAX: Duration = Duration::from_millis(50);
const INQUIRY_TIME_MIN: Duration = Duration::from_millis(250);
const RENEWAL_TIME_MIN: Duration = Duration::from_millis(50);
const RENEWAL_TIME_MAX: Duration = Duration::from_secs(1);

/// An address that was understood.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) nodes: Vec<wire::Config>,
    /// How many nodes must agree.
    pub(crate) quorum: usize,
    /// How long one node may take, if that does not follow from the ttl.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) on_restart: OnRestart,
}

/// What becomes of a lease on a node that has forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRestart {
    /// It goes on without that node.
    Leave,
    /// It is written there again, as long as a quorum of the others still has it.
    Relock,
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        let nodes = wire::Config::read_several(address, OPTIONS)?;
        check_nodes(&nodes)?;
        let count = nodes.len();
        let majority = count / 2 + 1;
        let quorum = match address.number("quorum")? {
            None => majority,
            Some(quorum) => usize::try_from(quorum).unwrap_or(usize::MAX),
        };
        if quorum < majority || quorum > count {
            return Err(wrong(format!(
                "quorum={quorum} does not go with {count} nodes; it is from {majority}, so that \
                 two holders cannot both have one, to {count}"
            )));
        }
        let on_restart = match address.option("on_restart") {
            None | Some("leave") => OnRestart::Leave,
            Some("relock") => OnRestart::Relock,
            Some(other) => {
                return Err(wrong(format!(
                    "option on_restart is {}; it can be leave or relock",
                    quote(other)
                )));
            }
        };
        Ok(Self { nodes, quorum, node_timeout: address.span("node_timeout")?, on_restart })
    }

    /// How long one node may take to answer about a lease of this length.
    pub(crate) fn node_limit(&self, ttl: Duration) -> Duration {
        self.node_timeout.unwrap_or_else(|| (ttl / 100).clamp(NODE_TIME_MIN, NODE_TIME_MAX))
    }

    /// How long one node may take to renew a lease of this length: longer than to grant it, because
    /// nobody waits for it but the lease. What a node was given for an acquisition it has here too, as
    /// far as the lease can wait.
    pub(crate) fn renewal_limit(&self, ttl: Duration) -> Duration {
        let limit = (ttl / 10).clamp(RENEWAL_TIME_MIN, RENEWAL_TIME_MAX);
        limit.max(self.node_timeout.unwrap_or_default().min(ttl / 3))
    }

    /// How long one node may take to answer what is not about a lease.
    pub(crate) fn inquiry_limit(&self) -> Duration {
        self.node_timeout.unwrap_or_default().max(INQUIRY_TIME_MIN)
    }

    /// To which nodes publish what happens in our database.
    pub(crate) fn event_channel(&self) -> String {
        event_channel(self.nodes.first().map_or(0, |node| node.database))
    }

    /// What stands before the name of every lock.
    pub(crate) fn prefix(&self) -> &str {
        self.nodes.first().map_or("", |node| &node.prefix)
    }
}

fn check_nodes(nodes: &[wire::Config]) -> Result<()> {
    if nodes.is_empty() {
        return Err(wrong(
            "the URL names no nodes; give the servers with commas between them, as in \
             \"redlock://h1,h2,h3\"",
        ));
    }
    if nodes.len() > NODES_MAX {
        return Err(wrong(format!("{} nodes are too many; at most {NODES_MAX}", nodes.len())));
    }
    for (at, node) in nodes.iter().enumerate() {
        if let Some(earlier) = nodes[..at].iter().position(|it| it.endpoint == node.endpoint) {
            return Err(one_server(earlier, at, &node.endpoint));
        }
    }
    Ok(())
}

/// The error of a server that is named twice, whatever it is called.
pub(crate) fn one_server(first: usize, second: usize, endpoint: &wire::Endpoint) -> Error {
    Error::new(ErrorKind::InvalidConfig, one_server_message(first, second, endpoint))
        .with_backend("redlock")
}

pub(crate) fn one_server_message(first: usize, second: usize, node: &wire::Endpoint) -> String {
    format!(
        "nodes {} and {} are one server ({node}); a server that votes twice makes a quorum of \
         fewer machines, so name each once",
        first + 1,
        second + 1
    )
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn where_the_nodes_are() {
        let config = read("redlock://u:p%40@a:1,b,[::1]:2/3?prefix=x:&quorum=3").unwrap();
        let nodes: Vec<String> =
            config.nodes.iter().map(|node| node.endpoint.to_string()).collect();
        assert_eq!(nodes, ["a:1", "b:6379", "[::1]:2"]);
        assert_eq!((config.quorum, config.prefix()), (3, "x:"));
        assert!(!format!("{config:?}").contains("p@"));
        for (count, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            let hosts: Vec<String> = (0..count).map(|at| format!("h{at}")).collect();
            let config = read(&format!("redlock://{}", hosts.join(","))).unwrap();
            assert_eq!(config.quorum, quorum, "{count} nodes");
        }
    }

    #[test]
    fn a_node_has_a_little_of_the_ttl() {
        let config = read("redlock://a").unwrap();
        let table = [(100, 5), (500, 5), (1_000, 10), (5_000, 50), (30_000, 50)];
        for (ttl, limit) in table {
            let limit = Duration::from_millis(limit);
            assert_eq!(config.node_limit(Duration::from_millis(ttl)), limit, "{ttl} ms");
        }
        let config = read("redlock://a?node_timeout=300ms").unwrap();
        assert_eq!(config.node_limit(Duration::from_secs(1)), Duration::from_millis(300));
        for (options, limit) in [("", 250), ("?node_timeout=20ms", 250), ("?node_timeout=1s", 1000)]
        {
            let config = read(&format!("redlock://a{options}")).unwrap();
            assert_eq!(config.inquiry_limit(), Duration::from_millis(limit), "{options}");
        }
    }

    #[test]
    fn a_node_has_more_time_to_renew() {
        let table = [
            ("", 100, 50),
            ("", 2_000, 200),
            ("", 30_000, 1_000),
            ("?node_timeout=800ms", 300, 100),
            ("?node_timeout=800ms", 2_000, 666),
            ("?node_timeout=800ms", 6_000, 800),
            ("?node_timeout=800ms", 30_000, 1_000),
            ("?node_timeout=20ms", 2_000, 200),
        ];
        for (options, ttl, limit) in table {
            let config = read(&format!("redlock://a{options}")).unwrap();
            let given = config.renewal_limit(Duration::from_millis(ttl));
            assert_eq!(given.as_millis(), limit, "{options}, {ttl} ms");
        }
    }

    /// L26, L27, L28 and C46 of the list of bad inputs, and what a person may mistype.
    #[test]
    fn addresses_that_are_refused() {
        use ErrorKind::{InvalidConfig, InvalidUrl};
        let table = [
            ("redlock://", InvalidConfig, "no nodes"),
            ("redlock:///0", InvalidConfig, "no nodes"),
            ("redlock://a,b,a", InvalidConfig, "nodes 1 and 3 are one server"),
            ("redlock://a,b:6379,b", InvalidConfig, "nodes 2 and 3 are one server"),
            ("redlock://a,b,c,d,e?quorum=0", InvalidConfig, "from 3"),
            ("redlock://a,b,c,d,e?quorum=2", InvalidConfig, "from 3"),
            ("redlock://a,b,c,d,e?quorum=6", InvalidConfig, "to 5"),
            ("redlock://a,b,c,d?quorum=2", InvalidConfig, "from 3"),
            ("redlock://a?on_restart=maybe", InvalidConfig, "leave or relock"),
            ("redlock://a?quorum=x", InvalidUrl, "a whole number"),
            ("redlock://a?quorum=-1", InvalidUrl, "a whole number"),
            ("redlock://a?node_timeout=5", InvalidUrl, "as 500ms, 3s or 2m"),
            ("redlock://a,,b", InvalidUrl, "no host"),
            ("redlock://a,b:0", InvalidUrl, "port"),
            ("redlock://a,b/x", InvalidUrl, "database number"),
            ("redlock://u:sec@ret@a,b", InvalidUrl, "%40"),
            ("redlock:a,b", InvalidUrl, "two slashes"),
            ("redlock://a?ca=x", InvalidUrl, "only with tls=yes"),
            ("redlock://a?min_replicas=1", InvalidUrl, "it knows node_timeout"),
        ];
        for (url, kind, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("ret"), "{error}");
        }
        let many: Vec<String> = (0..32).map(|at| format!("h{at}")).collect();
        let error = read(&format!("redlock://{}", many.join(","))).unwrap_err();
        assert!(error.to_string().contains("at most 31"), "{error}");
    }
}
