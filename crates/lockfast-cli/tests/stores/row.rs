//! The stores: a row each, with the servers that it needs, started when the first scenario wants
//! them and once for the whole binary.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

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
    pub(crate) schemes: &'static [&'static str],
    /// Starts the servers.
    start: fn() -> Started,
    pub(crate) has_shared: bool,
    pub(crate) has_permits: bool,
    /// Whether those who wait stand in a line, where they are counted.
    pub(crate) has_line: bool,
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
    /// Whether `doctor` looks at it.
    pub(crate) has_doctor: bool,
    /// How many characters a name can have.
    pub(crate) name_chars: usize,
    /// What is said to do about a mode that it lacks.
    pub(crate) advice: &'static str,
}

type Asked = dyn Fn(&str) -> u64 + Send + Sync;

/// A store that runs: its URL, and what ends when it is dropped.
struct Started {
    url: String,
    /// How many have asked for a lock so far, where that is seen by no other way.
    asked: Option<Arc<Asked>>,
    _servers: Box<dyn Any + Send>,
}

impl Started {
    fn new(url: String, servers: impl Any + Send) -> Self {
        Self { url, asked: None, _servers: Box::new(servers) }
    }
}

/// A store on a server that lacks nothing but that it does not see the ends of processes.
const fn full(name: &'static str, schemes: &'static [&'static str], start: fn() -> Started) -> Row {
    Row {
        name,
        schemes,
        start,
        has_shared: true,
        has_permits: true,
        has_line: true,
        is_fair: true,
        sees_processes: false,
        is_session: false,
        has_detached: true,
        has_refresh: true,
        has_doctor: true,
        name_chars: 255,
        advice: "use another store",
    }
}

/// A table of ShedLock: a row there has one owner, nobody is told when it is free, and it has no column
/// for anything else.
const fn shedlock(
    name: &'static str,
    schemes: &'static [&'static str],
    start: fn() -> Started,
) -> Row {
    Row {
        has_shared: false,
        has_permits: false,
        has_line: false,
        is_fair: false,
        has_refresh: false,
        has_doctor: false,
        name_chars: 64,
        advice: "use mode=lease",
        ..full(name, schemes, start)
    }
}

const POSTGRES: &[&str] = &["postgres", "postgresql"];
const MYSQL: &[&str] = &["mysql", "mariadb"];

/// All stores whose locks reach several processes, and what each lacks.
pub(crate) const ROWS: &[Row] = &[
    Row { sees_processes: true, ..full("embedded", &["embedded"], start_embedded) },
    full(
        "redis",
        &["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"],
        start_redis,
    ),
    Row {
        has_shared: false,
        has_permits: false,
        is_fair: false,
        has_refresh: false,
        ..full("redlock", &["redlock"], start_redlock)
    },
    full("postgres", POSTGRES, start_postgres),
    Row {
        has_permits: false,
        sees_processes: true,
        is_session: true,
        has_detached: false,
        has_refresh: false,
        advice: "use mode=lease",
        ..full("advisory", POSTGRES, start_advisory)
    },
    shedlock("postgres-shedlock", POSTGRES, start_postgres_shedlock),
    full("mariadb", MYSQL, start_mariadb),
    shedlock("mariadb-shedlock", MYSQL, start_mariadb_shedlock),
    full("mysql", MYSQL, start_mysql),
    Row {
        has_detached: false,
        has_refresh: false,
        ..full("zookeeper", &["zookeeper", "zookeepers"], start_zookeeper)
    },
    full("etcd", &["etcd", "etcds"], start_etcd),
];

/// Schemes without a row, and why.
const NOT_SHARED: &[(&str, &str)] = &[("memory", "its locks reach one process only")];

fn start_embedded() -> Started {
    let directory = TempDir::new().unwrap();
    let url = format!("embedded:{}", directory.path().join("store").display());
    Started::new(url, directory)
}

fn start_redis() -> Started {
    let server = redis::Setup::new().user("app", SECRET, "~* &* +@all").start();
    Started::new(server.url(), server)
}

fn start_redlock() -> Started {
    let servers = [(); 3].map(|()| redis::Setup::new().password(SECRET).start());
    let places = servers.each_ref().map(|server| server.address().to_string());
    // A busy machine is not a node that is gone.
    let url = format!("redlock://:{SECRET}@{}?node_timeout=2s", places.join(","));
    Started::new(url, servers)
}

fn start_postgres() -> Started {
    let (server, url) = start_postgres_server();
    Started::new(url, server)
}

fn start_advisory() -> Started {
    let (server, url) = start_postgres_server();
    Started::new(url + "?mode=advisory", server)
}

fn start_postgres_server() -> (Postgres, String) {
    // It does not ask for the password: thousands of rounds of SCRAM without optimisation would be
    // most of what the processes do.
    let server = Postgres::start();
    server.sql("CREATE ROLE app LOGIN");
    server.sql("GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url_as("app", Some(SECRET));
    (server, url)
}

/// The server notes who has asked for a row: nothing else tells that somebody waits.
fn start_postgres_shedlock() -> Started {
    let (server, url) = start_postgres_server();
    for sql in [
        "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
         locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
        "GRANT SELECT, INSERT, UPDATE ON shedlock TO app",
        "CREATE TABLE asked(name TEXT, owner TEXT, PRIMARY KEY (name, owner))",
        "CREATE FUNCTION note_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ \
         BEGIN INSERT INTO public.asked VALUES (NEW.name, NEW.locked_by) ON CONFLICT DO NOTHING; \
         RETURN NEW; END $$",
        "CREATE TRIGGER note_owner BEFORE INSERT ON shedlock \
         FOR EACH ROW EXECUTE FUNCTION note_owner()",
    ] {
        server.sql(sql);
    }
    let server = Arc::new(server);
    let asked = count_owners({
        let server = Arc::clone(&server);
        move |sql| server.sql(sql)
    });
    Started { asked, ..Started::new(url + "?mode=shedlock", server) }
}

fn start_mariadb() -> Started {
    let (server, url) = start_flavor(Flavor::MariaDb);
    Started::new(url, server)
}

fn start_mysql() -> Started {
    let (server, url) = start_flavor(Flavor::MySql);
    Started::new(url, server)
}

fn start_flavor(flavor: Flavor) -> (Mysql, String) {
    let server = Mysql::start(flavor);
    server.sql(&format!("CREATE USER app IDENTIFIED BY '{SECRET}'"));
    server.sql("GRANT ALL ON lockfast.* TO app");
    let url = server.url_as("app", Some(SECRET));
    (server, url)
}

/// As on PostgreSQL. The server's own character set holds few names.
fn start_mariadb_shedlock() -> Started {
    let (server, url) = start_flavor(Flavor::MariaDb);
    for sql in [
        "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), \
         locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)) CHARACTER SET utf8mb4",
        "CREATE TABLE asked(name VARCHAR(64), owner VARCHAR(255), PRIMARY KEY (name, owner)) \
         CHARACTER SET utf8mb4",
        "CREATE TRIGGER note_owner BEFORE INSERT ON shedlock FOR EACH ROW \
         INSERT IGNORE INTO asked VALUES (NEW.name, NEW.locked_by)",
    ] {
        server.sql(sql);
    }
    let server = Arc::new(server);
    let asked = count_owners({
        let server = Arc::clone(&server);
        move |sql| server.sql(sql)
    });
    Started { asked, ..Started::new(url + "?mode=shedlock", server) }
}

fn count_owners(ask: impl Fn(&str) -> String + Send + Sync + 'static) -> Option<Arc<Asked>> {
    Some(Arc::new(move |lock| {
        let count = ask(&format!("SELECT count(*) FROM asked WHERE name = '{lock}'"));
        count.trim().parse().unwrap()
    }))
}

fn start_etcd() -> Started {
    // Checking a password costs what most of the processes do, unless it is told to cost little.
    let mut server = etcd::Setup::new().option("--bcrypt-cost=4").start();
    server.add_user("app", SECRET, "");
    server.require_users();
    Started::new(server.url_as("app", SECRET), server)
}

fn start_zookeeper() -> Started {
    // It keeps leases of 1 s to 10 s: longer ones of the scenarios become 10 s.
    let server = ZooKeeper::start();
    let mut session = server.session();
    session.introduce(&format!("app:{SECRET}"));
    let access = Access { rights: "cdrw", scheme: "auth", id: "" };
    session.try_create("/locks", b"", Kind::Persistent, &[access]).unwrap();
    let url = format!("zookeeper://app:{SECRET}@{}/locks", server.address());
    Started::new(url, server)
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
        self.with(|started| started.url.clone())
    }

    /// How many have asked for a lock so far, where there is no line in which they could be counted.
    pub(crate) fn asked(&self, lock: &str) -> Option<u64> {
        self.with(|started| started.asked.clone()).map(|asked| asked(lock))
    }

    fn with<T>(&self, use_it: impl FnOnce(&Started) -> T) -> T {
        use_it(self.started.lock().unwrap().get_or_insert_with(self.row.start))
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
