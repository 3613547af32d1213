//! The databases of the fault kit are set up, broken and ended as asked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::mysql::{self, Flavor, Mysql};
use lockfast_faults::pgbouncer::PgBouncer;
use lockfast_faults::postgres::{self, Postgres};
use lockfast_faults::program;
use lockfast_faults::server::Server as _;

const HOUR: Duration = Duration::from_secs(3600);

/// Connects by a URL, as a client does, and runs SQL.
fn psql(url: &str, sql: &str) -> (bool, String) {
    let mut command = Command::new(program::find_postgres("psql"));
    program::try_run(command.args(["-qAtX", "--no-password", url, "-c", sql]))
}

#[test]
fn postgres_keeps_what_was_committed_when_it_is_killed() {
    let mut postgres = postgres::Setup::new().durable().start();
    assert_eq!(postgres.sql("SHOW fsync"), "on");
    postgres.sql("CREATE TABLE kept AS SELECT 7 AS n");
    postgres.kill();
    assert!(!postgres.try_sql("SELECT 1").0);
    postgres.restart();
    assert_eq!(psql(&postgres.url(), "SELECT n FROM kept"), (true, "7".to_owned()));
    postgres.shut_down();
    postgres.restart();
    assert_eq!(postgres.sql("SELECT n FROM kept"), "7");
    let other = postgres.create_database("other");
    assert_eq!(psql(&other, "SELECT current_database()").1, "other");
}

#[test]
fn postgres_pauses_with_all_its_processes_and_ends_when_dropped() {
    let postgres = Postgres::start();
    let address = postgres.address();
    postgres.pause();
    let url = format!("{}?connect_timeout=2", postgres.url());
    assert!(!psql(&url, "SELECT 1").0, "it answers although it is stopped");
    postgres.resume();
    assert!(psql(&url, "SELECT 1").0);
    postgres.pause();
    let directory = postgres.socket_directory().to_owned();
    drop(postgres);
    assert!(TcpStream::connect(address).is_err() && !directory.exists());
}

#[test]
fn postgres_asks_for_passwords_and_encrypts() {
    let authority = Authority::new();
    let certificate = authority.sign_server(Flaw::None);
    let postgres = postgres::Setup::new().passwords().tls(certificate).start();
    postgres.sql("CREATE ROLE app LOGIN PASSWORD 's/3'");
    let url = postgres.url_as("app", Some("s/3"));
    let strict =
        format!("{url}?sslmode=verify-full&sslrootcert={}", authority.certificate().display());
    let (succeeded, said) =
        psql(&strict, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    assert!(succeeded && said == "t", "{said}");
    assert!(!psql(&postgres.url_as("app", Some("wrong")), "SELECT 1").0);
}

#[test]
fn a_standby_follows_is_cut_off_and_promoted() {
    let mut primary = Postgres::start();
    primary.sql("CREATE TABLE kept AS SELECT 1 AS n");
    let standby = primary.start_standby();
    assert_eq!(standby.sql("SELECT n FROM kept"), "1");
    assert!(standby.try_sql("INSERT INTO kept VALUES (2)").1.contains("read-only"));
    standby.cut_off();
    primary.sql("INSERT INTO kept VALUES (3)");
    primary.kill();
    standby.promote();
    standby.sql("INSERT INTO kept VALUES (4)");
    assert_eq!(standby.sql("SELECT n FROM kept ORDER BY n"), "1\n4");
}

#[test]
fn the_clock_of_postgres_steps_and_no_other() {
    let postgres = postgres::Setup::new().clock().start();
    let hours = "SELECT round(extract(epoch FROM clock_timestamp()) / 3600)";
    let ours = lockfast_core::time::wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = (ours.as_secs_f64() / 3600.0).round();
    let ahead = |postgres: &Postgres| postgres.sql(hours).parse::<f64>().unwrap() - now;
    postgres.clock().step_forward(HOUR * 5);
    assert!((4.0..=6.0).contains(&ahead(&postgres)));
    postgres.clock().step_back(HOUR * 5);
    assert!((-6.0..=-4.0).contains(&ahead(&postgres)));
}

#[test]
fn a_pooler_shares_few_connections_between_transactions() {
    let postgres = Postgres::start();
    let mut pooler = PgBouncer::start(&postgres, 1);
    let url = pooler.url_as("postgres", "postgres");
    let own_process = "SELECT pg_backend_pid()";
    let first = psql(&url, own_process);
    assert!(first.0, "{}", first.1);
    assert_eq!(psql(&url, own_process), first, "two clients, one connection");
    pooler.kill();
    assert!(!psql(&url, own_process).0);
    pooler.restart();
    assert!(psql(&url, own_process).0);
}

fn keeps_what_was_committed_when_it_is_killed(flavor: Flavor) {
    let mut server = mysql::Setup::new(flavor).durable().option("--max-connections=17").start();
    assert_eq!(server.sql("SELECT @@max_connections"), "17");
    server.sql("CREATE TABLE kept AS SELECT 7 AS n");
    server.kill();
    assert!(!server.try_sql("SELECT 1").0);
    server.restart();
    assert_eq!(server.sql("SELECT n FROM kept"), "7");
    server.shut_down();
    server.restart();
    assert_eq!(server.sql("SELECT n FROM kept"), "7");
    let address = server.address();
    server.pause();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

fn has_a_clock_users_and_tls(flavor: Flavor) {
    let authority = Authority::new();
    let certificate = authority.sign_server(Flaw::None);
    let server = mysql::Setup::new(flavor).clock().tls(&certificate).start();
    let file = certificate.certificate.display().to_string();
    assert_eq!(server.sql("SELECT @@ssl_cert"), file);
    let before: u64 = server.sql("SELECT UNIX_TIMESTAMP()").parse().unwrap();
    server.clock().step_forward(HOUR);
    let after: u64 = server.sql("SELECT UNIX_TIMESTAMP()").parse().unwrap();
    assert!((3600..3700).contains(&(after - before)), "{before} {after}");
    server.sql("CREATE USER app IDENTIFIED BY 'p'; GRANT SELECT ON lockfast.* TO app");
    assert!(server.url_as("app", Some("p")).starts_with("mysql://app:p@127.0.0.1:"));
    assert!(server.create_database("other").ends_with("/other"));
}

#[test]
fn mariadb_keeps_what_was_committed() {
    keeps_what_was_committed_when_it_is_killed(Flavor::MariaDb);
}

#[test]
fn mysql_keeps_what_was_committed() {
    keeps_what_was_committed_when_it_is_killed(Flavor::MySql);
}

#[test]
fn mariadb_has_a_clock_users_and_tls() {
    has_a_clock_users_and_tls(Flavor::MariaDb);
}

#[test]
fn mysql_has_a_clock_users_and_tls() {
    has_a_clock_users_and_tls(Flavor::MySql);
}

#[test]
fn a_server_is_whose_it_says() {
    let version = |flavor| Mysql::start(flavor).sql("SELECT VERSION()").to_lowercase();
    assert!(version(Flavor::MariaDb).contains("mariadb"));
    assert!(!version(Flavor::MySql).contains("mariadb"));
}
