//! `migrate` on real databases: it says what it did, once, and who may not is told so by the exit
//! code (C52).

use lockfast_faults::mysql::{Flavor, Mysql};
use lockfast_faults::postgres::Postgres;
use lockfast_faults::server::Server as _;

use crate::sandbox::{Finished, Running, Sandbox};

/// Runs the binary with the store's URL where no list of processes shows it.
fn run_on(sandbox: &Sandbox, url: &str, arguments: &[&str]) -> Finished {
    let mut command = sandbox.command(arguments);
    command.env("LOCKFAST_URL", url);
    Running::new(command).finish()
}

/// Whoever may create tables does so; then the store can be used.
fn check_schema_is_made_once(sandbox: &Sandbox, url: &str) {
    let made = run_on(sandbox, url, &["migrate"]).expect(0).stdout;
    let version = made.strip_prefix("created the schema, version ");
    let version: u64 = version.unwrap_or_else(|| panic!("{made}")).trim().parse().unwrap();
    let again = run_on(sandbox, url, &["migrate"]).expect(0).stdout;
    assert_eq!(again, format!("nothing to migrate: the schema has version {version} already\n"));
    let value = run_on(sandbox, url, &["migrate", "--json"]).expect(0).json();
    assert_eq!((value["changed"].as_bool(), value["from"].as_u64()), (Some(false), Some(version)));
    assert_eq!(value["version"].as_u64(), Some(version));
    run_on(sandbox, url, &["run", "nightly", "--try", "--", "true"]).expect(0);
}

#[test]
fn postgres_gets_its_schema_once() {
    let (sandbox, mut postgres) = (Sandbox::new(), Postgres::start());
    postgres.sql("CREATE ROLE app LOGIN");
    let refused = run_on(&sandbox, &postgres.url_as("app", None), &["migrate"]).expect(77);
    assert!(refused.stderr.contains("permission"), "{}", refused.stderr);
    let standby = postgres.start_standby();
    run_on(&sandbox, &standby.url(), &["migrate"]).expect(69);
    drop(standby);
    check_schema_is_made_once(&sandbox, &postgres.url());
    postgres.kill();
    run_on(&sandbox, &postgres.url(), &["migrate"]).expect(69);
}

#[test]
fn mariadb_gets_its_schema_once() {
    let (sandbox, mut server) = (Sandbox::new(), Mysql::start(Flavor::MariaDb));
    server.sql("CREATE USER app IDENTIFIED BY 'secret'; GRANT SELECT ON lockfast.* TO app");
    let refused = run_on(&sandbox, &server.url_as("app", Some("secret")), &["migrate"]).expect(77);
    assert!(refused.stderr.contains("CREATE ROUTINE"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    // A replica only reads.
    server.sql("CREATE USER maker IDENTIFIED BY 'word'; GRANT ALL ON lockfast.* TO maker");
    server.sql("SET GLOBAL read_only = 1");
    let standby = run_on(&sandbox, &server.url_as("maker", Some("word")), &["migrate"]).expect(69);
    assert!(standby.stderr.contains("only reads"), "{}", standby.stderr);
    server.sql("SET GLOBAL read_only = 0");
    check_schema_is_made_once(&sandbox, &server.url());
    server.kill();
    run_on(&sandbox, &server.url(), &["migrate"]).expect(69);
}
