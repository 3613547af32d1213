//! A real etcd on free ports of loopback, in a directory of its own, alone or as a member of a
//! [`Cluster`].
//!
//! ```no_run
//! use lockfast_faults::etcd::Etcd;
//!
//! let server = Etcd::start();
//! let url = server.url();
//! ```

mod cluster;
mod http;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::certificate::{Authority, Flaw, Pair};
use super::clock::Clock;
use super::network::Network;
use super::port::Port;
use super::program;
use super::server::{Process, Server};
use super::url::encode;

pub use cluster::Cluster;

/// The user who may do everything, once users are asked for a password.
const SUPERUSER: &str = "root";
const PASSWORD: &str = "root-word";

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    options: Vec<String>,
    durable: bool,
    clock: bool,
    tls: Option<Tls>,
}

/// What a client needs to know of a server with TLS.
#[derive(Clone, Debug)]
struct Tls {
    authority: PathBuf,
    client: Pair,
}

impl Setup {
    /// A server without users, that may lose writes when the machine crashes, but not when only the
    /// server does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Any option of the server, such as `--quota-backend-bytes=1000000`; the last one counts.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Every write is on disk before it is answered.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// With a wall clock that can be stepped. It serves slower.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// With TLS, by a certificate that has a flaw.
    pub fn tls(mut self, authority: &Authority, flaw: Flaw) -> Self {
        let server = authority.sign_server(flaw);
        let ca = authority.certificate().to_owned();
        self.tls = Some(Tls { authority: ca, client: authority.sign_client() });
        self.option(format!("--cert-file={}", server.certificate.display()))
            .option(format!("--key-file={}", server.key.display()))
    }

    /// Only clients with a certificate of the authority are served; after [`Setup::tls`].
    ///
    /// # Panics
    /// Without TLS.
    pub fn client_certificates(self) -> Self {
        let authority = self.tls.as_ref().expect("Setup::tls comes first").authority.clone();
        self.option("--client-cert-auth")
            .option(format!("--trusted-ca-file={}", authority.display()))
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Etcd {
        let mut server = Etcd::prepare(self, "alone");
        let peers = SocketAddr::from((Ipv4Addr::LOCALHOST, server.peer_port.number()));
        server.advertised = peers;
        server.members = format!("alone=http://{peers}");
        server.launch();
        server
    }
}

/// Where a server stands in its cluster.
#[derive(Debug)]
struct Place {
    number: usize,
    network: Arc<Network>,
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct Etcd {
    // The first to be dropped: it must end before its directory goes.
    process: Option<Process>,
    setup: Setup,
    name: String,
    port: Port,
    peer_port: Port,
    metrics_port: Port,
    /// Where other members reach it, and all of them as it is told.
    advertised: SocketAddr,
    members: String,
    place: Option<Place>,
    has_users: bool,
    directory: TempDir,
    clock: Option<Clock>,
}

impl Etcd {
    /// A server without users.
    pub fn start() -> Self {
        Setup::new().start()
    }

    /// One that does not run yet and knows of no members.
    fn prepare(setup: Setup, name: impl Into<String>) -> Self {
        let advertised = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let directory = tempfile::tempdir().unwrap();
        let clock = setup.clock.then(|| Clock::new(directory.path()));
        Self {
            process: None,
            setup,
            name: name.into(),
            port: Port::take(),
            peer_port: Port::take(),
            metrics_port: Port::take(),
            advertised,
            members: String::new(),
            place: None,
            has_users: false,
            directory,
            clock,
        }
    }

    /// The port that it listens on for clients.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it listens for clients.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// Where members listen for each other.
    fn peer_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.peer_port.number()))
    }

    /// The URL of a client without a user.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// The URL of a user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("etcd://{}:{}@{}", encode(user), encode(password), self.address())
    }

    /// Asks for users and passwords from now on; [`Etcd::ctl`] is the user who may do everything.
    pub fn require_users(&mut self) {
        self.ctl(&["user", "add", &format!("{SUPERUSER}:{PASSWORD}")]);
        self.ctl(&["user", "grant-role", SUPERUSER, "root"]);
        self.ctl(&["auth", "enable"]);
        self.has_users = true;
    }

    /// Makes a user who may do everything with the keys that start so.
    pub fn add_user(&self, user: &str, password: &str, prefix: &str) {
        self.ctl(&["user", "add", &format!("{user}:{password}")]);
        self.ctl(&["role", "add", user]);
        self.ctl(&["role", "grant-permission", user, "--prefix=true", "readwrite", prefix]);
        self.ctl(&["user", "grant-role", user, user]);
    }

    /// `etcdctl` for this server, without its command.
    pub fn etcdctl(&self) -> Command {
        let mut command = Command::new(program::find("etcdctl"));
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        command.env("ETCDCTL_API", "3");
        command.arg(format!("--endpoints={scheme}://{}", self.address()));
        if let Some(tls) = &self.setup.tls {
            command.arg(format!("--cacert={}", tls.authority.display()));
            command.arg(format!("--cert={}", tls.client.certificate.display()));
            command.arg(format!("--key={}", tls.client.key.display()));
        }
        if self.has_users {
            command.arg(format!("--user={SUPERUSER}:{PASSWORD}"));
        }
        command
    }

    /// Runs `etcdctl`, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        program::run_well(self.etcdctl().args(arguments))
    }

    /// Whether `etcdctl` succeeded, and what it printed.
    pub fn try_ctl(&self, arguments: &[&str]) -> (bool, String) {
        program::try_run(self.etcdctl().args(arguments))
    }

    /// All keys that start with this, in the order of their names.
    ///
    /// # Panics
    /// When the server cannot be asked.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let said = self.ctl(&["get", "--prefix", "--keys-only", "--", prefix]);
        said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The ids of all leases.
    ///
    /// # Panics
    /// When the server cannot be asked.
    pub fn leases(&self) -> Vec<String> {
        // "found N leases", and one a line.
        self.ctl(&["lease", "list"]).lines().skip(1).map(str::to_owned).collect()
    }

    /// What is at `path` of the JSON gateway for clients, with this body sent to it: the status and
    /// the body of the answer.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn post(&self, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        http::post(self.address(), path, body)
    }

    /// What it counts or says of itself under this name, if it answers.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, said) = http::get(self.metrics_address(), "/metrics").ok()?;
        let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value?.trim().parse().ok()
    }

    /// Whether it leads, as it believes itself.
    pub fn leads(&self) -> bool {
        self.metric("etcd_server_is_leader") == Some(1.0)
    }

    /// Whether it can answer what only most of the members together can.
    pub fn is_healthy(&self) -> bool {
        let said = http::get(self.metrics_address(), "/health");
        said.is_ok_and(|(status, body)| status == 200 && body.contains("\"true\""))
    }

    /// Whether its process is there and answers, with a leader or without.
    fn answers(&self) -> bool {
        self.metric("etcd_server_has_leader").is_some()
    }

    fn metrics_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.metrics_port.number()))
    }

    fn command(&self) -> Command {
        let scheme = if self.setup.tls.is_some() { "https" } else { "http" };
        let clients = format!("{scheme}://{}", self.address());
        let program = program::find("etcd");
        // It is written in Go, and asks the kernel for the time without the C library.
        let mut command = match &self.clock {
            None => Command::new(program),
            Some(clock) => clock.trace(&program),
        };
        command.arg(format!("--name={}", self.name));
        command.arg(format!("--data-dir={}", self.directory.path().join("data").display()));
        command.arg(format!("--listen-client-urls={clients}"));
        command.arg(format!("--advertise-client-urls={clients}"));
        command.arg(format!("--listen-peer-urls=http://{}", self.peer_address()));
        command.arg(format!("--initial-advertise-peer-urls=http://{}", self.advertised));
        command.arg(format!("--initial-cluster={}", self.members));
        command.arg(format!("--listen-metrics-urls=http://{}", self.metrics_address()));
        // Passwords of tests need not be hard to guess.
        command.args(["--bcrypt-cost=4", "--logger=zap", "--log-level=warn"]);
        if !self.setup.durable {
            command.arg("--unsafe-no-fsync");
        }
        command.args(&self.setup.options).current_dir(self.directory.path());
        command
    }

    /// Starts it and does not wait.
    fn spawn(&mut self) {
        let process = Process::spawn(&mut self.command(), &self.directory.path().join("log"));
        if let Some(place) = &self.place {
            place.network.is_process(place.number, process.pid());
        }
        self.process = Some(process);
    }

    /// Waits until it answers; alone, also until it serves.
    fn wait_until_it_answers(&mut self) {
        let mut process = self.process.take().expect("it runs");
        let is_alone = self.place.is_none();
        process.wait_until_it(|| if is_alone { self.is_healthy() } else { self.answers() });
        self.process = Some(process);
    }
}

impl Server for Etcd {
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
        self.wait_until_it_answers();
    }
}
