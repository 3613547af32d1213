//! The stores: a row each, with the servers that it needs, started when the first scenario wants
//! them and once for the whole binary.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Mutex;

use lockfast_faults::etcd;
use lockfast_faults::mysql::{Flavor, Mysql};
use lockfast_faults::postgres::Postgres;
use lockfast_faults::redis;
use lockfast_faults::zookeeper::{Access, Kind, ZooKeeper};
use tempfile::TempDir;

use crate::sandbox::Sandbox;

/// The password in the URL of every server, so that nothing may show it and nested commands have to
/// do without it.
pub(crate) const SECRET: &str = "geheim";

/// A store.
pub(crate) struct Row {
    /// The first part of its tests' names.
    pub(crate) name: &'static str,
    /// The schemes that its servers stand for.
    schemes: &'static [&'static str],
    /// Starts the servers.
    start: fn() -> Started,
    pub(crate) has_shared: bool,
    pub(crate) has_permits: bool,
    /// Whether waiters are served in order of arrival.
    pub(crate) is_fair: bool,
    /// Whether it sees the end of a process, before any ttl.
    pub(crate) sees_processes: bool,
    /// Whether a lock is held by a session, and so as long as that: no ttl ends it, and neither a
    /// label's text nor an operator's reason is known.
    pub(crate) is_session: bool,
    /// Whether a lock can outlive the process that took it.
    pub(crate) has_detached: bool,
    /// Whether it keeps values that end by themselves.
    pub(crate) has_refresh: bool,
}

/// A store that runs: its URL, and what ends when it is dropped.
struct Started {
    url: String,
    _servers: Box<dyn Any + Send>,
}

/// All stores whose locks reach several processes.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "embedded",
        schemes: &["embedded"],
        start: start_embedded,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: true,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
    Row {
        name: "redis",
        schemes: &["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"],
        start: start_redis,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
    Row {
        name: "redlock",
        schemes: &["redlock"],
        start: start_redlock,
        has_shared: false,
        has_permits: false,
        is_fair: false,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: false,
    },
    Row {
        name: "postgres",
        schemes: &["postgres", "postgresql"],
        start: start_postgres,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
    Row {
        name: "advisory",
        schemes: &["postgres", "postgresql"],
        start: start_advisory,
        has_shared: true,
        has_permits: false,
        is_fair: true,
        sees_processes: true,
        is_session: true,
        has_detached: false,
        has_refresh: false,
    },
    Row {
        name: "mariadb",
        schemes: &["mysql", "mariadb"],
        start: start_mariadb,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
    Row {
        name: "mysql",
        schemes: &["mysql", "mariadb"],
        start: start_mysql,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
    Row {
        name: "zookeeper",
        schemes: &["zookeeper", "zookeepers"],
        start: start_zookeeper,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: false,
        has_refresh: false,
    },
    Row {
        name: "etcd",
        schemes: &["etcd", "etcds"],
        start: start_etcd,
        has_shared: true,
        has_permits: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
    },
];

/// Schemes without a row, and why.
const NOT_SHARED: &[(&str, &str)] = &[("memory", "its locks reach one process only")];

fn start_embedded() -> Started {
    let directory = TempDir::new().unwrap();
    let url = format!("embedded:{}", directory.path().join("store").display());
    Started { url, _servers: Box::new(directory) }
}

fn start_redis() -> Started {
    let server = redis::Setup::new().user("app", SECRET, "~* &* +@all").start();
    Started { url: server.url(), _servers: Box::new(server) }
}

fn start_redlock() -> Started {
    let servers = [(); 3].map(|()| redis::Setup::new().password(SECRET).start());
    let places = servers.each_ref().map(|server| server.address().to_string());
    // A busy machine is not a node that is gone.
    let url = format!("redlock://:{SECRET}@{}?node_timeout=2s", places.join(","));
    Started { url, _servers: Box::new(servers) }
}

fn start_postgres() -> Started {
    start_postgres_with("")
}

fn start_advisory() -> Started {
    start_postgres_with("?mode=advisory")
}

fn start_postgres_with(options: &str) -> Started {
    // It does not ask for the password: thousands of rounds of SCRAM without optimisation would be
    // most of what the processes do.
    let server = Postgres::start();
    server.sql("CREATE ROLE app LOGIN");
    server.sql("GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url_as("app", Some(SECRET)) + options;
    Started { url, _servers: Box::new(server) }
}

fn start_mariadb() -> Started {
    start_flavor(Flavor::MariaDb)
}

fn start_mysql() -> Started {
    start_flavor(Flavor::MySql)
}

fn start_flavor(flavor: Flavor) -> Started {
    let server = Mysql::start(flavor);
    server.sql(&format!("CREATE USER app IDENTIFIED BY '{SECRET}'"));
    server.sql("GRANT ALL ON lockfast.* TO app");
    Started { url: server.url_as("app", Some(SECRET)), _servers: Box::new(server) }
}

fn start_etcd() -> Started {
    // Checking a password costs what most of the processes do, unless it is told to cost little.
    let mut server = etcd::Setup::new().option("--bcrypt-cost=4").start();
    server.add_user("app", SECRET, "");
    server.require_users();
    Started { url: server.url_as("app", SECRET), _servers: Box::new(server) }
}

fn start_zookeeper() -> Started {
    // It keeps leases of 1 s to 10 s: longer ones of the scenarios become 10 s.
    let server = ZooKeeper::start();
    let mut session = server.session();
    session.introduce(&format!("app:{SECRET}"));
    let access = Access { rights: "cdrw", scheme: "auth", id: "" };
    session.try_create("/locks", b"", Kind::Persistent, &[access]).unwrap();
    let url = format!("zookeeper://app:{SECRET}@{}/locks", server.address());
    Started { url, _servers: Box::new(server) }
}

/// A row and its servers, once they are needed.
pub(crate) struct Site {
    pub(crate) row: &'static Row,
    started: Mutex<Option<Started>>,
}

impl Site {
    pub(crate) fn new(row: &'static Row) -> Self {
        Self { row, started: Mutex::new(None) }
    }

    /// The store's URL.
    pub(crate) fn url(&self) -> String {
        self.started.lock().unwrap().get_or_insert_with(self.row.start).url.clone()
    }

    /// Ends the servers.
    pub(crate) fn stop(&self) {
        drop(self.started.lock().unwrap().take());
    }
}

/// Every scheme that the command knows is served by a row, and every row's scheme is known.
pub(crate) fn check_schemes() {
    let refused = Sandbox::new().run(["show", "x", "--on", "nosuch://h"]).expect(78);
    let (_, list) = refused.stderr.split_once("there is ").expect("a list of schemes");
    let known: BTreeSet<&str> =
        list.split(", ").map(|scheme| scheme.trim().trim_end_matches(':')).collect();
    let rows = ROWS.iter().flat_map(|row| row.schemes).copied();
    let listed: BTreeSet<&str> = rows.chain(NOT_SHARED.iter().map(|(scheme, _)| *scheme)).collect();
    assert_eq!(known, listed, "the schemes of `lockfast` and those of the table's rows");
}
