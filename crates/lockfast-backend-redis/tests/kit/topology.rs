//! Servers that belong together: a master with its replica, a sentinel that watches them, a
//! cluster of three masters, and an address that can be pointed at one or the other.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::port::Port;
use super::server::{Redis, Setup};
use super::wait_until;

/// What takes a fresh group of servers to find itself.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(20);

/// Waits until a replica has all that its master has.
pub fn wait_for_sync(master: &Redis, replica: &Redis) {
    wait_until("the replica is in sync", SETTLE_TIME_MAX, || {
        replica.info("master_link_status") == "up"
            && replica.info("slave_repl_offset") == master.info("master_repl_offset")
    });
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
pub struct Cluster {
    pub nodes: [Redis; 3],
    _bus: [Port; 3],
}

/// Starts a cluster and waits until all its nodes know each other.
pub fn start_cluster() -> Cluster {
    let bus = [(); 3].map(|()| Port::take());
    let nodes = bus.each_ref().map(|port| {
        Setup::new()
            .line("cluster-enabled yes")
            .line("cluster-node-timeout 2000")
            .line(format!("cluster-port {}", port.number()))
            .start()
    });
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

/// An address behind which the server can be exchanged, as a virtual address does it.
#[derive(Debug)]
pub struct Signpost {
    address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Debug)]
struct Way {
    server: SocketAddr,
    open: Vec<TcpStream>,
}

impl Signpost {
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Mutex::new(Way { server, open: Vec::new() }));
        let shared = Arc::downgrade(&way);
        // The thread ends when a connection arrives after the signpost is gone; see Drop.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(way) = shared.upgrade() else { return };
                // A server that is down closes the connection, as the kernel would.
                let _ = join(client, &way);
            }
        });
        Self { address, way }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection and sends those to come to another server.
    pub fn turn_to(&self, server: SocketAddr) {
        let mut way = self.way.lock().unwrap();
        way.server = server;
        for stream in way.open.drain(..) {
            // It may have been closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Signpost {
    fn drop(&mut self) {
        self.turn_to(self.address);
        self.way = Arc::new(Mutex::new(Way { server: self.address, open: Vec::new() }));
        let _ = TcpStream::connect(self.address);
    }
}

fn join(client: TcpStream, way: &Mutex<Way>) -> io::Result<()> {
    let mut way = way.lock().unwrap();
    let server = TcpStream::connect_timeout(&way.server, Duration::from_secs(5))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    carry(client.try_clone()?, server.try_clone()?);
    carry(server.try_clone()?, client.try_clone()?);
    way.open.extend([client, server]);
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
