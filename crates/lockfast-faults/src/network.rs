//! The network between the servers of a cluster: each is told addresses of ours for the others, so
//! that one can be cut off from them while its clients still reach it.
//!
//! Whose connection it is follows from the process at its other end, so nothing about the servers'
//! protocol has to be known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::port::Port;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// The network of one cluster, whose servers are called by numbers. Dropping it cuts everything.
#[derive(Debug, Default)]
pub struct Network {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    entries: Vec<Port>,
    /// Which process each server is.
    pids: BTreeMap<usize, u32>,
    /// Who is cut off.
    apart: BTreeSet<usize>,
    open: Vec<Arc<Connection>>,
    is_over: bool,
}

/// A connection from one server to another.
#[derive(Debug)]
struct Connection {
    from: Option<usize>,
    to: usize,
    ends: Vec<TcpStream>,
    /// Whatever is sent vanishes.
    is_silent: AtomicBool,
    is_over: AtomicBool,
}

impl Network {
    /// A network without servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on a free port of loopback, and sends connections to the server of this number at
    /// `address`. The others are told the address that is returned.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn entry(&self, server: usize, address: SocketAddr) -> SocketAddr {
        let port = Port::take();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        let entry = listener.local_addr().unwrap();
        self.lock().entries.push(port);
        let shared = Arc::downgrade(&self.shared);
        // It ends when a connection arrives after the network is gone; see Drop.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(shared) = shared.upgrade() else { return };
                if lock(&shared).is_over {
                    return;
                }
                let shared = Arc::downgrade(&shared);
                std::thread::spawn(move || join(client, server, address, &shared));
            }
        });
        entry
    }

    /// Tells which process a server is from now on.
    pub fn is_process(&self, server: usize, pid: u32) {
        self.lock().pids.insert(server, pid);
    }

    /// Cuts a server off from all others, in both directions: connections stay open, and what is sent
    /// vanishes.
    pub fn cut_off(&self, server: usize) {
        let mut shared = self.lock();
        shared.apart.insert(server);
        for connection in shared.open.iter().filter(|it| it.concerns(server)) {
            connection.is_silent.store(true, Ordering::SeqCst);
        }
    }

    /// Lets a server reach the others again, over new connections: no real network gives the rest of a
    /// stream that has a hole.
    pub fn rejoin(&self, server: usize) {
        let mut shared = self.lock();
        shared.apart.remove(&server);
        let apart = shared.apart.clone();
        shared.open.retain(|connection| {
            let ends = connection.is_silent.load(Ordering::SeqCst)
                && !apart.iter().any(|other| connection.concerns(*other));
            if ends {
                connection.end();
            }
            !ends
        });
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let mut shared = self.lock();
        shared.is_over = true;
        shared.open.drain(..).for_each(|connection| connection.end());
        for port in shared.entries.drain(..) {
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number()));
        }
    }
}

impl Connection {
    fn concerns(&self, server: usize) -> bool {
        self.to == server || self.from == Some(server)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for end in &self.ends {
            // It may have been closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Carries bytes one way until either side has closed.
    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut chunk = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            if self.is_silent.load(Ordering::SeqCst) {
                continue;
            }
            if to.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        self.end();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("no panic")
}

/// Connects a server that came to the entry of another with that.
fn join(client: TcpStream, to: usize, address: SocketAddr, network: &Weak<Mutex<Shared>>) {
    let Some(shared) = network.upgrade() else { return };
    let pids = lock(&shared).pids.clone();
    let from = process_behind(&client, &pids);
    // A server that is down closes the connection, as the kernel would.
    let Ok(server) = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let Ok(connection) = register(&shared, from, to, &client, &server) else { return };
    drop(shared);
    std::thread::scope(|scope| {
        scope.spawn(|| connection.carry(&client, &server));
        connection.carry(&server, &client);
    });
}

fn register(
    shared: &Mutex<Shared>,
    from: Option<usize>,
    to: usize,
    client: &TcpStream,
    server: &TcpStream,
) -> io::Result<Arc<Connection>> {
    let ends = vec![client.try_clone()?, server.try_clone()?];
    let mut shared = lock(shared);
    if shared.is_over {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let (is_silent, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let connection = Connection { from, to, ends, is_silent, is_over };
    let is_apart = shared.apart.iter().any(|server| connection.concerns(*server));
    connection.is_silent.store(is_apart, Ordering::SeqCst);
    let connection = Arc::new(connection);
    shared.open.retain(|it| !it.is_over.load(Ordering::SeqCst));
    shared.open.push(Arc::clone(&connection));
    Ok(connection)
}

/// Which of these processes has the other end of a connection on loopback.
fn process_behind(client: &TcpStream, pids: &BTreeMap<usize, u32>) -> Option<usize> {
    let (far, near) = (client.peer_addr().ok()?.port(), client.local_addr().ok()?.port());
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let socket = format!("socket:[{}]", inode_of(&table, far, near)?);
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target == Path::new(&socket))
    };
    pids.iter().find(|(_, pid)| has_it(pid)).map(|(server, _)| *server)
}

/// The socket that is connected from one port to another, in what the kernel tells of TCP.
fn inode_of(table: &str, from: u16, to: u16) -> Option<&str> {
    let (from, to) = (format!(":{from:04X}"), format!(":{to:04X}"));
    let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() > 9 && row[1].ends_with(&from) && row[2].ends_with(&to))?;
    Some(row[9])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || io::copy(&mut client.try_clone().unwrap(), &mut client));
            }
        });
        address
    }

    fn connect(entry: SocketAddr) -> TcpStream {
        TcpStream::connect(entry).unwrap()
    }

    fn is_answered_within(mut client: &TcpStream, limit: Duration) -> bool {
        client.set_read_timeout(Some(limit)).unwrap();
        client.write_all(b"x").is_ok() && client.read(&mut [0]).is_ok_and(|length| length == 1)
    }

    /// However busy the machine is.
    fn is_answered(client: &TcpStream) -> bool {
        is_answered_within(client, Duration::from_secs(20))
    }

    fn is_silent(client: &TcpStream) -> bool {
        !is_answered_within(client, Duration::from_millis(300))
    }

    #[test]
    fn whoever_is_cut_off_reaches_nobody_and_is_reached_by_nobody() {
        let network = Network::new();
        let (first, second) = (network.entry(0, echo()), network.entry(1, echo()));
        // This process is both.
        network.is_process(0, std::process::id());
        let (to_first, to_second) = (connect(first), connect(second));
        assert!(is_answered(&to_first) && is_answered(&to_second));
        network.cut_off(0);
        assert!(is_silent(&to_first) && is_silent(&to_second));
        assert!(is_silent(&connect(first)) && is_silent(&connect(second)));
        network.rejoin(0);
        assert!(is_silent(&to_first), "a stream with a hole goes on");
        assert!(is_answered(&connect(first)) && is_answered(&connect(second)));
    }

    #[test]
    fn others_are_not_touched() {
        let network = Network::new();
        let (first, second) = (network.entry(0, echo()), network.entry(1, echo()));
        network.is_process(2, std::process::id());
        network.cut_off(0);
        assert!(is_silent(&connect(first)));
        assert!(is_answered(&connect(second)));
    }

    #[test]
    fn sockets_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:2710 0100007F:2711 01 00000000:00000000 00:00000000 00000000     0        0 4711 1\n";
        assert_eq!(inode_of(table, 10_000, 10_001), Some("4711"));
        assert_eq!(inode_of(table, 10_001, 10_000), None);
    }
}
