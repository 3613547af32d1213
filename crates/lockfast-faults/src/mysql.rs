//! A real MariaDB or MySQL on a free port of loopback and a Unix socket, in a directory of its own.
//!
//! ```no_run
//! use lockfast_faults::mysql::{Flavor, Mysql};
//!
//! let server = Mysql::start(Flavor::MySql);
//! let url = server.url();
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::certificate::Pair;
use super::clock::Clock;
use super::port::Port;
use super::program;
use super::server::{Process, Server};
use super::template::{self, Template};
use super::url::encode;

/// The user who may do everything, and the database that is made for tests.
const SUPERUSER: &str = "root";
const DATABASE: &str = "lockfast";

/// Where `cargo xtask setup` puts MySQL, which packages of the machine seldom bring.
const MYSQL_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers/mysql/bin");

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// MariaDB, from the machine's packages.
    MariaDb,
    /// Oracle's MySQL.
    MySql,
}

impl Flavor {
    /// The server.
    fn server(self) -> PathBuf {
        match self {
            Self::MariaDb => program::find("mariadbd"),
            Self::MySql => find_mysql("mysqld"),
        }
    }

    /// Its command line client.
    fn client(self) -> PathBuf {
        match self {
            Self::MariaDb => program::find("mariadb"),
            Self::MySql => find_mysql("mysql"),
        }
    }

    /// What every server of this kind is told. Small files are copied fast.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &["--innodb-log-file-size=8M"],
            Self::MySql => &[
                "--innodb-redo-log-capacity=8M",
                "--secure-file-priv=NULL",
                "--mysqlx=OFF",
                "--performance-schema=OFF",
            ],
        }
    }

    /// What makes it faster when the machine's crash need not be survived.
    fn careless(self) -> &'static [&'static str] {
        // A commit reaches the system but not the disk.
        match self {
            Self::MariaDb => {
                &["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]
            }
            Self::MySql => &[
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-flush-method=nosync",
                "--disable-log-bin",
            ],
        }
    }
}

/// A program of MySQL.
fn find_mysql(program: &str) -> PathBuf {
    locate(program).unwrap_or_else(|| panic!("MySQL is not there; run: cargo xtask setup"))
}

/// A program of MySQL, if it is there: the one that `cargo xtask setup` brought, or one of the
/// machine. MariaDB has programs of the same names, which do not count.
pub fn locate(program: &str) -> Option<PathBuf> {
    let own = Some(Path::new(MYSQL_FOLDER).join(program)).filter(|path| path.is_file());
    own.or_else(|| program::locate_all(program).find(|path| is_of_mysql(path)))
}

fn is_of_mysql(path: &Path) -> bool {
    let said = Command::new(path).args(["--no-defaults", "--version"]).output();
    said.is_ok_and(|said| !String::from_utf8_lossy(&said.stdout).contains("MariaDB"))
}

/// How a server is to be.
#[derive(Debug)]
pub struct Setup {
    flavor: Flavor,
    options: Vec<String>,
    durable: bool,
    clock: bool,
}

impl Setup {
    /// A server with a user `root` without a password, that may lose commits when the machine
    /// crashes, but not when only the server does.
    pub fn new(flavor: Flavor) -> Self {
        Self { flavor, options: Vec::new(), durable: false, clock: false }
    }

    /// Any option of the server, such as `--max-connections=10`; the last one counts.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Every commit is on disk before it is answered.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// With a wall clock that can be stepped.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// With TLS for those who ask for it.
    pub fn tls(self, certificate: &Pair) -> Self {
        self.option(format!("--ssl-cert={}", certificate.certificate.display()))
            .option(format!("--ssl-key={}", certificate.key.display()))
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Mysql {
        let directory = tempfile::tempdir().unwrap();
        prepare(self.flavor).copy_to(&directory.path().join("data"));
        let clock = self.clock.then(|| Clock::new(directory.path()));
        let port = Port::take();
        let mut server = Mysql { process: None, setup: self, port, directory, clock };
        server.launch();
        if server.flavor() == Flavor::MySql {
            // Without names of hosts, loopback is not the host that its first user may come from.
            server.sql_on("", &format!("CREATE USER {SUPERUSER}@'%'"));
            server.sql_on("", &format!("GRANT ALL ON *.* TO {SUPERUSER}@'%' WITH GRANT OPTION"));
        }
        server.sql_on("", &format!("CREATE DATABASE {DATABASE}"));
        server
    }
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct Mysql {
    // The first to be dropped: it must end before its directory goes.
    process: Option<Process>,
    setup: Setup,
    port: Port,
    directory: TempDir,
    clock: Option<Clock>,
}

impl Mysql {
    /// A server with a user `root` without a password.
    pub fn start(flavor: Flavor) -> Self {
        Setup::new(flavor).start()
    }

    /// Whose it is.
    pub fn flavor(&self) -> Flavor {
        self.setup.flavor
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("mysql.sock")
    }

    /// The URL of the user who may do everything.
    pub fn url(&self) -> String {
        self.url_as(SUPERUSER, None)
    }

    /// The URL of another user.
    pub fn url_as(&self, user: &str, password: Option<&str>) -> String {
        self.url_of(user, password, DATABASE)
    }

    fn url_of(&self, user: &str, password: Option<&str>, database: &str) -> String {
        let secret = password.map_or_else(String::new, |password| format!(":{}", encode(password)));
        format!("mysql://{}{secret}@{}/{}", encode(user), self.address(), encode(database))
    }

    /// Runs SQL as the user who may do everything; rows as lines, columns with tabs between them.
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
        let (succeeded, said) = program::try_run(&mut self.client(database, sql));
        assert!(succeeded, "{sql} failed: {said}");
        said
    }

    /// Whether SQL succeeded, and what the client printed.
    pub fn try_sql(&self, sql: &str) -> (bool, String) {
        program::try_run(&mut self.client(DATABASE, sql))
    }

    /// Creates a database and tells its URL for the user who may do everything.
    pub fn create_database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE `{name}`"));
        self.url_of(SUPERUSER, None, name)
    }

    fn client(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(self.setup.flavor.client());
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user", SUPERUSER]);
        command.arg("--socket").arg(self.socket()).args(["--execute", sql, database]);
        command
    }
}

impl Server for Mysql {
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
        let directory = self.directory.path();
        let flavor = self.setup.flavor;
        let mut command = Command::new(flavor.server());
        command.args(["--no-defaults", "--bind-address=127.0.0.1"]).args(flavor.options());
        command.args(["--skip-name-resolve", "--innodb-buffer-pool-size=64M"]);
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        if !self.setup.durable {
            command.args(flavor.careless());
        }
        command.arg(format!("--port={}", self.port()));
        // A server that starts removes the temporary tables of all that share the directory.
        command.arg(format!("--tmpdir={}", directory.display()));
        for (option, file) in [("datadir", "data"), ("socket", "mysql.sock"), ("pid-file", "pid")] {
            command.arg(format!("--{option}={}", directory.join(file).display()));
        }
        command.args(&self.setup.options).current_dir(directory);
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        let mut process = Process::spawn(&mut command, &directory.join("log"));
        process.wait_until_it(|| program::try_run(&mut self.client("", "SELECT 1")).0);
        self.process = Some(process);
    }
}

/// A data directory that nobody has used yet.
fn prepare(flavor: Flavor) -> Template {
    let version = program::run_well(Command::new(flavor.server()).arg("--version"));
    let version = version.split_whitespace().nth(2).unwrap_or("unknown").replace('/', "-");
    template::prepare(&format!("{flavor:?}-{version}").to_lowercase(), |directory| {
        let mut command = match flavor {
            Flavor::MariaDb => {
                let mut command = Command::new(program::find("mariadb-install-db"));
                command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
                command.args(["--skip-test-db", "--skip-name-resolve"]);
                command
            }
            Flavor::MySql => {
                let mut command = Command::new(flavor.server());
                command.args(["--no-defaults", "--initialize-insecure", "--disable-log-bin"]);
                command
            }
        };
        command.args(flavor.options());
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        command.arg(format!("--datadir={}", directory.display()));
        // A server that starts removes the temporary tables of all that share the directory, and
        // several tests may be the first at once.
        let temporary = tempfile::tempdir().unwrap();
        command.arg(format!("--tmpdir={}", temporary.path().display()));
        program::run_well(&mut command);
        // Each server makes up an identity of its own.
        let _ = std::fs::remove_file(directory.join("auto.cnf"));
    })
}
