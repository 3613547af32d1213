//! A real redis-server on a free port of loopback, in a directory of its own.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::certificate::{Authority, Pair};
use crate::child::Child;
use crate::clock::Clock;
use crate::port::Port;
use crate::program;
use crate::server::{Process, START_TIME_MAX, Server};
use crate::url::encode;
use crate::wait::wait_until;

/// How a server is to be.
#[derive(Debug, Default)]
pub struct Setup {
    lines: Vec<String>,
    password: Option<String>,
    user: Option<(String, String)>,
    unix_socket: bool,
    clock: bool,
    tls: Option<Tls>,
    sentinel: bool,
}

#[derive(Debug)]
struct Tls {
    authority: PathBuf,
    server: Pair,
    client: Pair,
    asks_clients: bool,
}

impl Setup {
    /// A server that forgets everything when it ends.
    pub fn new() -> Self {
        Self::default()
    }

    /// Any line of redis.conf.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Clients must give this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.line(format!("requirepass \"{password}\""))
    }

    /// A user with these rights, as which redis-cli and [`Redis::url`] go in.
    pub fn user(mut self, name: &str, password: &str, rights: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self.line(format!("user {name} on \">{password}\" {rights}"))
    }

    /// Every write is on disk before it is answered.
    pub fn append_always(self) -> Self {
        self.line("appendonly yes").line("appendfsync always")
    }

    /// At most so many bytes, and what goes when there are more.
    pub fn memory_max(self, bytes: u64, policy: &str) -> Self {
        self.line(format!("maxmemory {bytes}")).line(format!("maxmemory-policy {policy}"))
    }

    /// A copy of another server.
    pub fn replica_of(self, master: &Redis) -> Self {
        self.line(format!("replicaof 127.0.0.1 {}", master.port()))
    }

    /// Also on a Unix socket.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// With a wall clock that can be stepped.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// With TLS only; `asks_clients` wants a certificate of every client too.
    pub fn tls(mut self, authority: &Authority, server: Pair, asks_clients: bool) -> Self {
        self.tls = Some(Tls {
            authority: authority.certificate().to_owned(),
            server,
            client: authority.sign_client(),
            asks_clients,
        });
        self
    }

    /// As a sentinel.
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Redis {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let clock = self.clock.then(|| Clock::new(directory.path()));
        let mut redis = Redis { setup: self, port: Port::take(), directory, clock, process: None };
        redis.launch();
        redis
    }
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct Redis {
    // The first to be dropped: it must end before its directory goes.
    process: Option<Process>,
    setup: Setup,
    port: Port,
    directory: TempDir,
    clock: Option<Clock>,
}

impl Redis {
    /// A server that forgets everything when it ends.
    pub fn start() -> Self {
        Setup::new().start()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// Where it keeps what it saves.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Its Unix socket, if it was set up with one.
    pub fn unix_socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// The URL by which Lockfast connects, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same by way of a proxy.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let who = match (&self.setup.user, &self.setup.password) {
            (Some((user, password)), _) => format!("{}:{}@", encode(user), encode(password)),
            (None, Some(password)) => format!(":{}@", encode(password)),
            (None, None) => String::new(),
        };
        match &self.setup.tls {
            None => format!("redis://{who}{address}"),
            Some(tls) => format!("rediss://{who}{address}?ca={}", tls.authority.display()),
        }
    }

    /// Kills it and starts it again on the same port with nothing.
    pub fn restart_empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.data()).unwrap();
        std::fs::create_dir(self.data()).unwrap();
        self.restart();
    }

    /// Saves so many keys beside what it has, kills it and starts it again so that it loads each
    /// of them for a millisecond; returns while it is loading.
    pub fn restart_loading(&mut self, keys: usize) {
        let fill = "for i = 1, ARGV[1] do redis.call('SET', 'filler:' .. i, ('x'):rep(1000)) end";
        self.cli(&["EVAL", fill, "0", &keys.to_string()]);
        self.cli(&["SAVE"]);
        self.kill();
        let slow = ["key-load-delay 1000", "loading-process-events-interval-bytes 1024"];
        self.setup.lines.extend(slow.map(str::to_owned));
        self.spawn();
        wait_until("the server is loading", START_TIME_MAX, || {
            self.try_cli(&["PING"]).1.contains("LOADING")
        });
    }

    /// Leaves a user the rights on the keys of these names and on Lockfast's own.
    pub fn restrict(&self, user: &str, names: &[String]) {
        let keys: Vec<String> = names.iter().map(|name| format!("~{name}")).collect();
        let command = ["ACL", "SETUSER", user, "resetkeys", "~lockfast:*"];
        let keys = keys.iter().map(String::as_str);
        self.cli(&command.into_iter().chain(keys).collect::<Vec<_>>());
    }

    /// What redis-cli prints for a command that must succeed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let (succeeded, said) = self.try_cli(arguments);
        assert!(succeeded, "redis-cli {arguments:?} failed: {said}");
        said
    }

    /// Whether a command succeeded, and what redis-cli printed.
    pub fn try_cli(&self, arguments: &[&str]) -> (bool, String) {
        program::try_run(self.cli_command().args(arguments))
    }

    /// A redis-cli of its own for a command that takes long; it is killed when dropped.
    pub fn spawn_cli(&self, arguments: &[&str]) -> Child {
        Child::spawn(self.cli_command().args(arguments).stderr(Stdio::null())).unwrap()
    }

    fn cli_command(&self) -> Command {
        let mut command = Command::new(program::find("redis-cli"));
        command.args(["-e", "-h", "127.0.0.1", "-p", &self.port().to_string()]);
        if let Some((user, password)) = &self.setup.user {
            command.args(["--user", user]).env("REDISCLI_AUTH", password);
        } else if let Some(password) = &self.setup.password {
            command.env("REDISCLI_AUTH", password);
        }
        if let Some(tls) = &self.setup.tls {
            // What is wrong with the server's certificate is for the tests, not for redis-cli.
            command.args(["--tls", "--insecure", "--cacert"]).arg(&tls.authority);
            command.arg("--cert").arg(&tls.client.certificate);
            command.arg("--key").arg(&tls.client.key);
        }
        command
    }

    /// A number from INFO, as it is named there.
    pub fn info(&self, field: &str) -> String {
        let all = self.cli(&["INFO", "everything"]);
        let value = all.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO has no {field}")).to_owned()
    }

    fn spawn(&mut self) {
        let path = self.directory.path().join("redis.conf");
        std::fs::write(&path, self.configuration()).unwrap();
        let mut command = Command::new(program::find("redis-server"));
        command.arg(&path).current_dir(self.directory.path());
        if self.setup.sentinel {
            command.arg("--sentinel");
        }
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        self.process = Some(Process::spawn(&mut command, &self.directory.path().join("log")));
    }

    fn configuration(&self) -> String {
        let directory = self.directory.path().display();
        let mut text = format!("bind 127.0.0.1\ndir {directory}/data\n");
        if !self.setup.sentinel {
            // A replica would be kept waiting for others to come.
            text.push_str("save \"\"\nappendonly no\nenable-debug-command yes\n");
            text.push_str("repl-diskless-sync-delay 0\n");
        }
        match &self.setup.tls {
            None => writeln!(text, "port {}", self.port()).unwrap(),
            Some(tls) => {
                let asks = if tls.asks_clients { "yes" } else { "no" };
                writeln!(
                    text,
                    "port 0\ntls-port {}\ntls-auth-clients {asks}\ntls-cert-file {}\n\
                     tls-key-file {}\ntls-ca-cert-file {}",
                    self.port(),
                    tls.server.certificate.display(),
                    tls.server.key.display(),
                    tls.authority.display()
                )
                .unwrap();
            }
        }
        if self.setup.unix_socket {
            writeln!(text, "unixsocket {directory}/redis.sock").unwrap();
        }
        for line in &self.setup.lines {
            writeln!(text, "{line}").unwrap();
        }
        text
    }
}

impl Server for Redis {
    fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn process_mut(&mut self) -> &mut Option<Process> {
        &mut self.process
    }

    fn own_clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// It must answer itself, and nobody else on its port, and have loaded what it saved.
    fn launch(&mut self) {
        self.spawn();
        let mut process = self.process.take().expect("just started");
        let answers = format!("process_id:{}\r", process.pid());
        process.wait_until_it(|| {
            let said = self.try_cli(&["INFO"]).1;
            said.contains(&answers) && !said.contains("loading:1")
        });
        self.process = Some(process);
    }
}
