//! A real PostgreSQL on a free port of loopback and a Unix socket, in a directory of its own. It
//! runs as another user when this process is root, which PostgreSQL refuses to be.
//!
//! ```no_run
//! use lockfast_faults::postgres::Postgres;
//! use lockfast_faults::server::Server as _;
//!
//! let mut postgres = Postgres::start();
//! postgres.sql("CREATE ROLE app LOGIN");
//! let url = postgres.url_as("app", None);
//! postgres.restart();
//! ```

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::certificate::Pair;
use super::clock::Clock;
use super::port::Port;
use super::program;
use super::server::{Process, START_TIME_MAX, Server};
use super::template::{self, Template};
use super::url::encode;
use super::user::User;
use super::wait::wait_until;

/// The user who may do everything, and the database that is there.
const SUPERUSER: &str = "postgres";
const DATABASE: &str = "postgres";

/// How a server is to be.
#[derive(Debug)]
pub struct Setup {
    settings: Vec<(String, String)>,
    authentication: &'static str,
    clock: bool,
    certificate: Option<Pair>,
    file_size_max: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// A server that trusts everybody and may lose commits when the machine crashes, but not when
    /// only the server does.
    pub fn new() -> Self {
        let setup = Self {
            settings: Vec::new(),
            authentication: "trust",
            clock: false,
            certificate: None,
            file_size_max: None,
        };
        setup
            .set("fsync", "off")
            // Small segments of the log (see `prepare`) shall not mean frequent checkpoints.
            .set("max_wal_size", "1GB")
            // Files of its own are not left behind when it is killed.
            .set("dynamic_shared_memory_type", "mmap")
            // One call after a crash, instead of one for each file.
            .set("recovery_init_sync_method", "syncfs")
    }

    /// Any setting of postgresql.conf; the last one counts.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Every commit is on disk before it is answered.
    pub fn durable(self) -> Self {
        self.set("fsync", "on")
    }

    /// Roles that come over TCP must give their password (SCRAM).
    pub fn passwords(mut self) -> Self {
        self.authentication = "scram-sha-256";
        self
    }

    /// With files that cannot grow beyond so many bytes. The server takes that for a full disk: the
    /// last write that fits in part comes back short.
    pub fn files_up_to(mut self, size: u64) -> Self {
        self.file_size_max = Some(size);
        self
    }

    /// With a wall clock that can be stepped.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// With TLS for those who ask for it.
    pub fn tls(mut self, certificate: Pair) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Postgres {
        self.start_with(|data, user| {
            prepare().copy_to(data);
            user.give(data);
        })
    }

    fn start_with(self, fill: impl FnOnce(&Path, User)) -> Postgres {
        let directory = tempfile::tempdir().unwrap();
        let user = User::unprivileged();
        user.give(directory.path());
        let data = directory.path().join("data");
        fill(&data, user);
        std::fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
        let clock = self.clock.then(|| Clock::new(directory.path()));
        let port = Port::take();
        let mut postgres = Postgres { process: None, setup: self, port, directory, clock, user };
        postgres.write_files();
        postgres.launch();
        postgres
    }
}

/// A running server. Dropping it ends it and removes its directory.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    setup: Setup,
    port: Port,
    directory: TempDir,
    clock: Option<Clock>,
    user: User,
}

impl Postgres {
    /// A server that trusts everybody.
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

    /// The directory of its Unix socket, through which everybody is trusted.
    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    /// The URL of the user who may do everything.
    pub fn url(&self) -> String {
        self.url_as(SUPERUSER, None)
    }

    /// The URL of another role.
    pub fn url_as(&self, role: &str, password: Option<&str>) -> String {
        url(self.address(), role, password, DATABASE)
    }

    /// The URL of a role by way of another address, such as that of a proxy.
    pub fn url_at(&self, address: SocketAddr, role: &str) -> String {
        url(address, role, None, DATABASE)
    }

    /// Runs SQL as the user who may do everything; rows as lines, columns with `|` between them.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_on(DATABASE, sql)
    }

    /// The same on another database.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql_on(&self, database: &str, sql: &str) -> String {
        let (succeeded, said) = program::try_run(&mut self.psql(database, sql));
        assert!(succeeded, "{sql} failed: {said}");
        said
    }

    /// Whether SQL succeeded, and what psql printed.
    pub fn try_sql(&self, sql: &str) -> (bool, String) {
        program::try_run(&mut self.psql(DATABASE, sql))
    }

    /// Creates a database and tells its URL for the user who may do everything.
    pub fn create_database(&self, name: &str) -> String {
        // Copying the files is faster than logging every page while there is no load.
        self.sql(&format!("CREATE DATABASE \"{name}\" STRATEGY file_copy"));
        url(self.address(), SUPERUSER, None, name)
    }

    /// Starts a standby that follows this server, and waits until it does.
    pub fn start_standby(&self) -> Self {
        self.start_standby_as(Setup::new())
    }

    /// The same, set up otherwise than by default.
    pub fn start_standby_as(&self, setup: Setup) -> Self {
        let standby = setup.start_with(|data, user| {
            let mut command = Command::new(program::find_postgres("pg_basebackup"));
            command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
            command.arg(data).arg("--host").arg(self.socket_directory());
            command.args(["--port", &self.port().to_string(), "--username", SUPERUSER]);
            program::run_well(user.run(&mut command));
        });
        self.wait_for_sync(&standby);
        standby
    }

    /// Waits until a standby has all that was committed here.
    pub fn wait_for_sync(&self, standby: &Self) {
        let written = self.sql("SELECT pg_current_wal_lsn()");
        let reached = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        wait_until("the standby is in sync", START_TIME_MAX, || standby.sql(&reached) == "t");
    }

    /// Cuts a standby off: it stays a standby, of a server that is not there.
    pub fn cut_off(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        wait_until("the standby is cut off", START_TIME_MAX, || self.sql(receivers) == "0");
    }

    /// Makes a standby a server that can be written to.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "the standby was not promoted");
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(program::find_postgres("psql"));
        command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet", "--host"]);
        command.arg(self.socket_directory());
        command.args(["--port", &self.port().to_string(), "--username", SUPERUSER]);
        command.args(["--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", sql]);
        command
    }

    fn write_files(&self) {
        let method = self.setup.authentication;
        let rules = format!(
            "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 {method}\n"
        );
        std::fs::write(self.directory.path().join("hba.conf"), rules).unwrap();
        if let Some(pair) = &self.setup.certificate {
            for (from, name) in [(&pair.certificate, "server.pem"), (&pair.key, "server.key")] {
                let to = self.directory.path().join(name);
                std::fs::copy(from, &to).unwrap();
                std::fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
            }
        }
        self.user.give(self.directory.path());
    }

    fn settings(&self) -> Vec<(String, String)> {
        let directory = self.directory.path().display();
        let mut settings = vec![
            ("port".to_owned(), self.port().to_string()),
            ("listen_addresses".to_owned(), "127.0.0.1".to_owned()),
            ("unix_socket_directories".to_owned(), directory.to_string()),
            ("hba_file".to_owned(), format!("{directory}/hba.conf")),
        ];
        if self.setup.certificate.is_some() {
            settings.push(("ssl".to_owned(), "on".to_owned()));
            settings.push(("ssl_cert_file".to_owned(), format!("{directory}/server.pem")));
            settings.push(("ssl_key_file".to_owned(), format!("{directory}/server.key")));
        }
        settings.extend(self.setup.settings.iter().cloned());
        settings
    }
}

impl Server for Postgres {
    fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn process_mut(&mut self) -> &mut Option<Process> {
        &mut self.process
    }

    fn own_clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Those who are connected are not waited for.
    fn end_signal(&self) -> Signal {
        Signal::INT
    }

    fn launch(&mut self) {
        let directory = self.directory.path();
        let program = program::find_postgres("postgres");
        let mut command = match self.setup.file_size_max {
            None => Command::new(program),
            Some(size) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--fsize={size}")).arg(program);
                command
            }
        };
        command.arg("-D").arg(directory.join("data")).current_dir(directory);
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        let mut process = Process::spawn(self.user.run(&mut command), &directory.join("log"));
        process.wait_until_it(|| self.try_sql("SELECT 1").0);
        self.process = Some(process);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, but not by SIGKILL, after which shared memory would stay behind.
        if let Some(process) = self.process.take() {
            process.resume();
            process.end_by(Signal::QUIT);
        }
    }
}

/// The URL of a role on a database.
pub(super) fn url(
    address: SocketAddr,
    role: &str,
    password: Option<&str>,
    database: &str,
) -> String {
    let secret = password.map_or_else(String::new, |password| format!(":{}", encode(password)));
    format!("postgres://{}{secret}@{address}/{}", encode(role), encode(database))
}

/// A data directory that nobody has used yet.
fn prepare() -> Template {
    let initdb = program::find_postgres("initdb");
    let version = program::run_well(Command::new(&initdb).arg("--version"));
    template::prepare(&version.replace(|c: char| !c.is_ascii_alphanumeric(), "-"), |directory| {
        let user = User::unprivileged();
        user.give(directory);
        let mut command = Command::new(&initdb);
        command.args(["--no-sync", "--no-locale", "--encoding=UTF8", "--wal-segsize=1"]);
        command.args(["--auth=trust", "--username", SUPERUSER, "--pgdata"]).arg(directory);
        program::run_well(user.run(command.current_dir(directory)));
    })
}
