//! Servers that belong together: a master with its replica, a sentinel that watches them, and a
//! cluster of three masters.

use std::time::Duration;

use super::{Redis, Setup};
use crate::port::Port;
use crate::wait::wait_until;

/// What takes a fresh group of servers to find itself.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(20);

/// Waits until a replica has all that its master has, and the master knows that all replicas listen:
/// a replica says so a little earlier.
pub fn wait_for_sync(master: &Redis, replica: &Redis) {
    wait_until("the replica is in sync", SETTLE_TIME_MAX, || {
        replica.info("master_link_status") == "up"
            && replica.info("slave_repl_offset") == master.info("master_repl_offset")
            && are_online(master)
    });
}

fn are_online(master: &Redis) -> bool {
    let said = master.cli(&["INFO", "replication"]);
    let mut replicas = said.lines().filter(|line| line.contains(",state=")).peekable();
    replicas.peek().is_some() && replicas.all(|line| line.contains(",state=online"))
}

/// Cuts a replica off: it stays a replica, of a master that is not there.
pub fn cut_off(replica: &Redis) {
    replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    wait_until("the link is down", SETTLE_TIME_MAX, || {
        replica.info("master_link_status") == "down"
    });
}

/// Makes a replica a master.
pub fn promote(replica: &Redis) {
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_until("it is a master", SETTLE_TIME_MAX, || replica.info("role") == "master");
}

/// A sentinel that knows `master` under the name `main` and its replica, and fails over alone
/// after 500 ms.
pub fn watch_over(master: &Redis, replica: &Redis) -> Redis {
    let sentinel = Setup::new()
        .sentinel()
        .line(format!("sentinel monitor main 127.0.0.1 {} 1", master.port()))
        .line("sentinel down-after-milliseconds main 500")
        .line("sentinel failover-timeout main 3000")
        .start();
    wait_until("the sentinel sees both", SETTLE_TIME_MAX, || {
        let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", "main"]);
        sentinel.try_cli(&["SENTINEL", "CKQUORUM", "main"]).1.starts_with("OK")
            && replicas.contains(&replica.port().to_string())
            && replicas.contains("master-link-status\nok")
    });
    sentinel
}

/// Three masters that share the slots, and the ports of the bus between them.
#[derive(Debug)]
pub struct Cluster {
    /// The servers, in the order of their slots.
    pub nodes: [Redis; 3],
    _bus: [Port; 3],
}

fn node(bus: &Port) -> Setup {
    Setup::new()
        .line("cluster-enabled yes")
        .line("cluster-node-timeout 2000")
        .line(format!("cluster-port {}", bus.number()))
}

/// Starts a cluster and waits until all its nodes know each other.
pub fn start_cluster() -> Cluster {
    start_cluster_of(|setup| setup)
}

/// The same of nodes to whose setup something is added.
pub fn start_cluster_of(more: impl Fn(Setup) -> Setup) -> Cluster {
    let bus = [(); 3].map(|()| Port::take());
    let nodes = bus.each_ref().map(|port| more(node(port)).start());
    for (node, slots) in nodes.iter().zip([("0", "5461"), ("5462", "10922"), ("10923", "16383")]) {
        node.cli(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]);
    }
    for (node, bus) in nodes.iter().zip(&bus).skip(1) {
        let (port, bus) = (node.port().to_string(), bus.number().to_string());
        nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    wait_until("the cluster is up", SETTLE_TIME_MAX, || {
        nodes.iter().all(|node| {
            let said = node.cli(&["CLUSTER", "INFO"]);
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        })
    });
    Cluster { nodes, _bus: bus }
}

/// Gives the first master a replica, to whose setup something is added, and waits until all know
/// it.
pub fn add_replica(cluster: &Cluster, more: impl Fn(Setup) -> Setup) -> Redis {
    let bus = Port::take();
    let replica = more(node(&bus)).start();
    let (port, bus) = (replica.port().to_string(), bus.number().to_string());
    cluster.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    let master = cluster.nodes[0].cli(&["CLUSTER", "MYID"]);
    wait_until("it is a replica", SETTLE_TIME_MAX, || {
        replica.try_cli(&["CLUSTER", "REPLICATE", &master]).1 == "OK"
    });
    wait_until("all know it", SETTLE_TIME_MAX, || {
        let knows = |node: &Redis| {
            node.cli(&["CLUSTER", "NODES"]).lines().any(|line| {
                line.contains(&format!(":{port}@")) && line.contains(&format!("slave {master}"))
            })
        };
        replica.info("master_link_status") == "up" && cluster.nodes.iter().all(knows)
    });
    replica
}
