//! A real ZooKeeper server on a free port of loopback, in a directory of its own.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::session::Session;
use super::{java, log};
use crate::certificate::{Authority, Pair};
use crate::clock::Clock;
use crate::port::Port;
use crate::server::{Process, Server};

/// A server's unit of time; sessions last from two of it to twenty.
const TICK: Duration = Duration::from_millis(500);

/// A server answers a word within this, unless it is stopped.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Whoever asks a server while it starts may wait for ever: the question is asked again.
const START_ANSWER_TIME_MAX: Duration = Duration::from_millis(500);

/// Of the sessions by which tests look at a server.
const SESSION_TIME: Duration = Duration::from_secs(10);

/// Objects of a server take no more than this.
const MEGABYTES: u32 = 192;

/// Those of one that is to be fast: answers to 5 000 who ask at once for a line of as many fit in.
const MEGABYTES_OPTIMIZED: u32 = 768;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// How a server is to be.
#[derive(Debug)]
pub struct Setup {
    lines: Vec<String>,
    properties: Vec<String>,
    tick: Duration,
    durable: bool,
    optimized: bool,
    clock: bool,
    tls: Option<Tls>,
    member: Option<u8>,
}

#[derive(Debug)]
struct Tls {
    authority: PathBuf,
    server: Pair,
    asks_clients: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// A server without access lists whose sessions last from 1 s to 10 s. It may lose what it
    /// stored when the machine crashes, but not when only the server does.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            properties: Vec::new(),
            tick: TICK,
            durable: false,
            optimized: false,
            clock: false,
            tls: None,
            member: None,
        }
    }

    /// Any line of zoo.cfg.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Any property of the process, as `zookeeper.name=value`.
    pub fn property(mut self, property: impl Into<String>) -> Self {
        self.properties.push(property.into());
        self
    }

    /// Another unit of time.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Every change is on disk before it is answered.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// As fast as it becomes when it runs for long, and not started as fast as can be.
    pub fn optimized(mut self) -> Self {
        self.optimized = true;
        self
    }

    /// With a wall clock that can be stepped.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Also on a port with TLS; `asks_clients` wants a certificate of every client too.
    pub fn tls(mut self, authority: &Authority, server: Pair, asks_clients: bool) -> Self {
        let authority = authority.certificate().to_owned();
        self.tls = Some(Tls { authority, server, asks_clients });
        self
    }

    /// As one of several; the lines name them all.
    pub(super) fn member(mut self, number: u8) -> Self {
        self.member = Some(number);
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> ZooKeeper {
        let mut server = self.prepare();
        server.launch();
        server
    }

    /// Starts it as the only one of an ensemble that a line names, under this number.
    pub fn start_as(self, number: u8) -> ZooKeeper {
        self.member(number).start()
    }

    /// One that does not run yet.
    pub(super) fn prepare(self) -> ZooKeeper {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let secure_port = self.tls.as_ref().map(|_| Port::take());
        let clock = self.clock.then(|| Clock::new(directory.path()));
        let port = Port::take();
        ZooKeeper { process: None, setup: self, port, secure_port, directory, clock }
    }
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct ZooKeeper {
    // The first to be dropped: it must end before its directory goes.
    process: Option<Process>,
    setup: Setup,
    port: Port,
    secure_port: Option<Port>,
    directory: TempDir,
    clock: Option<Clock>,
}

impl ZooKeeper {
    /// A server without access lists whose sessions last from 1 s to 10 s.
    pub fn start() -> Self {
        Setup::new().start()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// Where it listens with TLS, if it was set up with it.
    pub fn secure_address(&self) -> SocketAddr {
        let port = self.secure_port.as_ref().expect("Setup::tls was not asked for");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))
    }

    /// The URL by which Lockfast connects.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// The URL of a place in it, such as `/app/locks`, which must be there.
    pub fn url_of(&self, chroot: &str) -> String {
        format!("{}{chroot}", self.url())
    }

    /// A session that is independent of what is tested.
    pub fn session(&self) -> Session {
        Session::open(self.address(), SESSION_TIME)
    }

    /// What it answers to one of the words of four letters, such as `srvr`; nothing if it does not.
    pub fn ask(&self, word: &str) -> String {
        ask(self.address(), word, ANSWER_TIME_MAX).unwrap_or_default()
    }

    /// A number that it counts, as `mntr` names it.
    ///
    /// # Panics
    /// When there is none.
    pub fn count(&self, name: &str) -> u64 {
        let all = self.ask("mntr");
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        let value = value.unwrap_or_else(|| panic!("{name} is not counted: {all}"));
        value.trim().parse::<f64>().unwrap() as u64
    }

    /// Whether it decides, follows or is alone: what it says of itself while it serves.
    pub fn mode(&self) -> Option<String> {
        let said = self.ask("srvr");
        said.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Whether it runs, stopped or not.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it and starts it again on the same port with nothing.
    pub fn restart_empty(&mut self) {
        self.kill();
        let data = self.directory.path().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::create_dir(&data).unwrap();
        self.restart();
    }

    /// Kills it and starts it again as if so many children had been made of a node: the next one that
    /// it gives a number has this one.
    ///
    /// # Panics
    /// When the node has children, which would have other numbers.
    pub fn restart_with_number(&mut self, node: &str, number: i32) {
        let child = format!("{node}/one-of-many");
        let mut session = self.session();
        assert!(session.children(node).is_empty(), "{node} has children");
        session.create(&child, b"");
        session.try_delete(&child).unwrap();
        self.kill();
        let folder = self.directory.path().join("data/version-2");
        assert!(log::set_children_made(&folder, &child, number), "{child} is not in the log");
        self.restart();
    }

    /// Waits until it serves clients, also those that encrypt: it opens that port later.
    pub(super) fn wait_until_it_serves(&mut self) {
        let address = self.address();
        let secure = self.secure_port.is_some().then(|| self.secure_address());
        let process = self.process.as_mut().expect("it runs");
        process.wait_until_it(|| {
            ask(address, "srvr", START_ANSWER_TIME_MAX).is_some_and(|said| said.contains("Mode: "))
                && secure.is_none_or(|secure| TcpStream::connect(secure).is_ok())
        });
    }

    /// From its next start on it is this one of several, which the lines name, or alone again.
    pub(super) fn set_member(&mut self, number: Option<u8>) {
        self.setup.member = number;
    }

    /// Starts it, without waiting for others whom it may need.
    pub(super) fn spawn(&mut self) {
        let directory = self.directory.path();
        let configuration = directory.join("zoo.cfg");
        std::fs::write(&configuration, self.configuration()).unwrap();
        if let Some(number) = self.setup.member {
            std::fs::write(directory.join("data/myid"), number.to_string()).unwrap();
        }
        let mut archives = java::SERVER.to_vec();
        let megabytes = if self.setup.optimized { MEGABYTES_OPTIMIZED } else { MEGABYTES };
        let mut command = java::command(megabytes, self.setup.optimized);
        // A log for 64 MB of changes would be written at once.
        command.arg("-Dzookeeper.preAllocSize=1024");
        // Who was alone asks the others again soon.
        command.arg("-Dzookeeper.fastleader.maxNotificationInterval=500");
        if !self.setup.durable {
            command.arg("-Dzookeeper.forceSync=no");
        }
        if self.setup.tls.is_some() {
            archives.extend(java::NETTY);
            let netty = "org.apache.zookeeper.server.NettyServerCnxnFactory";
            command.arg(format!("-Dzookeeper.serverCnxnFactory={netty}"));
        }
        command.args(self.setup.properties.iter().map(|property| format!("-D{property}")));
        command.args(["-cp", &java::class_path(&archives, None), MAIN]).arg(&configuration);
        command.current_dir(directory);
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        self.process = Some(Process::spawn(&mut command, &directory.join("log")));
    }

    fn configuration(&self) -> String {
        let directory = self.directory.path().display();
        let mut text = format!(
            "tickTime={}\ndataDir={directory}/data\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n",
            self.setup.tick.as_millis(),
            self.port.number()
        );
        if let (Some(tls), Some(port)) = (&self.setup.tls, &self.secure_port) {
            // The key and its certificate are in one file.
            let both = self.directory.path().join("server.pem");
            let parts = [&tls.server.key, &tls.server.certificate];
            let parts = parts.map(|part| std::fs::read_to_string(part).unwrap());
            std::fs::write(&both, parts.concat()).unwrap();
            let asks = if tls.asks_clients { "need" } else { "none" };
            writeln!(
                text,
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\n\
                 ssl.trustStore.type=PEM\nssl.clientAuth={asks}",
                port.number(),
                both.display(),
                tls.authority.display()
            )
            .unwrap();
        }
        if self.setup.member.is_some() {
            // A follower that is this far behind is given up.
            text.push_str("initLimit=20\nsyncLimit=4\n");
        }
        // One that is alone is not told of others. The last one counts.
        let is_told = |line: &&String| self.setup.member.is_some() || !line.starts_with("server.");
        for line in self.setup.lines.iter().filter(is_told) {
            writeln!(text, "{line}").unwrap();
        }
        text
    }
}

impl Server for ZooKeeper {
    fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn process_mut(&mut self) -> &mut Option<Process> {
        &mut self.process
    }

    fn own_clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    fn launch(&mut self) {
        self.spawn();
        self.wait_until_it_serves();
    }
}

/// What a server answers to one of the words of four letters.
fn ask(address: SocketAddr, word: &str, limit: Duration) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    let _ = stream.shutdown(Shutdown::Both);
    Some(said)
}
