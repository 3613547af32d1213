//! What a cluster says about itself: which node has which slots.

use std::time::Duration;

use lockfast_core::ErrorKind;

use super::connection::Connection;
use super::dial::Dialer;
use super::{Failure, Pipeline, Reply, failure};
use crate::config::Endpoint;

/// How long one node may take, so that one that is silent does not keep us from the others.
const LIMIT: Duration = Duration::from_secs(1);

/// Slots from the first to the last, and the master that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) master: Endpoint,
}

/// Connects to the first node that answers.
pub(crate) async fn dial_any(dialer: &Dialer, nodes: &[Endpoint]) -> Result<Connection, Failure> {
    let limit = dialer.config().request_timeout.min(LIMIT);
    let mut failures = Vec::new();
    for node in nodes {
        match dialer.dial_to(node, dialer.login(), limit).await {
            Ok(connection) => return Ok(connection),
            Err(failure) => failures.push(failure),
        }
    }
    Err(sum_up(&failures))
}

fn sum_up(failures: &[Failure]) -> Failure {
    let kind = match failures.first() {
        Some(first) if failures.iter().all(|failure| failure.kind() == first.kind()) => {
            first.kind()
        }
        _ => ErrorKind::Unreachable,
    };
    let mut causes: Vec<&str> = failures.iter().map(|failure| failure.message()).collect();
    // The nodes that were named may be among those that are known.
    causes.sort_unstable();
    causes.dedup();
    Failure::new(kind, format!("no node of the cluster can be asked: {}", causes.join("; ")))
}

/// Asks the nodes in turn until one tells who has what.
pub(crate) async fn draw_map(dialer: &Dialer, nodes: &[Endpoint]) -> Result<Vec<Range>, Failure> {
    let mut failures = Vec::new();
    let limit = dialer.config().request_timeout.min(LIMIT);
    for node in nodes {
        let drawn = async {
            let mut connection = dialer.dial_to(node, dialer.login(), limit).await?;
            let mut pipeline = Pipeline::default();
            pipeline.all(&["CLUSTER", "SLOTS"]);
            let asked = tokio::time::timeout(LIMIT, connection.ask(pipeline)).await;
            let asked = asked.unwrap_or_else(|_| Err(failure::of_silence(node, LIMIT)));
            read_map(node, asked.map_err(|failure| of_refusal(node, failure))?)
        };
        match drawn.await {
            Ok(ranges) if !ranges.is_empty() => return Ok(ranges),
            Ok(_) => {
                let message = format!("the cluster of {node} has no slots yet");
                failures.push(Failure::new(ErrorKind::Unreachable, message));
            }
            Err(failure) => failures.push(failure),
        }
    }
    Err(sum_up(&failures))
}

/// A server that is alone has no map.
fn of_refusal(node: &Endpoint, failure: Failure) -> Failure {
    if failure.message().to_ascii_lowercase().contains("cluster support disabled") {
        let message = format!("{node} is not a node of a cluster; connect with redis: or rediss:");
        return Failure::new(ErrorKind::InvalidConfig, message);
    }
    failure
}

fn read_map(asked: &Endpoint, replies: Vec<Reply>) -> Result<Vec<Range>, Failure> {
    let nonsense = || failure::of_nonsense("a map of slots of another form");
    let rows = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
    let mut ranges = Vec::new();
    for row in rows.ok_or_else(nonsense)? {
        let mut row = row.into_list().map_err(|_| nonsense())?.into_iter();
        let slot = |reply: Option<Reply>| u16::try_from(reply?.as_int()?).ok();
        let (first, last) = (slot(row.next()), slot(row.next()));
        let master = row.next().and_then(|node| node.into_list().ok());
        let (Some(first), Some(last), Some([host, port, ..])) = (first, last, master.as_deref())
        else {
            return Err(nonsense());
        };
        let port = port.as_int().and_then(|port| u16::try_from(port).ok());
        let master = port.and_then(|port| locate(asked, host.as_text().unwrap_or_default(), port));
        ranges.push(Range { first, last, master: master.ok_or_else(nonsense)? });
    }
    Ok(ranges)
}

/// The node that another one names by `host:port`.
pub(crate) fn read_place(asked: &Endpoint, place: &str) -> Option<Endpoint> {
    let (host, port) = place.rsplit_once(':')?;
    locate(asked, host, port.parse().ok()?)
}

fn locate(asked: &Endpoint, host: &str, port: u16) -> Option<Endpoint> {
    let Endpoint::Tcp { host: own, tls, .. } = asked else { return None };
    // A node that does not know its address is where it was asked.
    let host = if host.is_empty() || host == "?" { own } else { host };
    Some(Endpoint::Tcp { host: host.to_owned(), port, tls: tls.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_what_another_says() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port, tls: None };
        let asked = tcp("a", 1);
        let table = [
            ("b:7000", Some(tcp("b", 7000))),
            ("::1:7000", Some(tcp("::1", 7000))),
            (":7000", Some(tcp("a", 7000))),
            ("?:7000", Some(tcp("a", 7000))),
            ("b", None),
            ("b:x", None),
            ("", None),
        ];
        for (place, node) in table {
            assert_eq!(read_place(&asked, place), node, "{place}");
        }
    }
}
