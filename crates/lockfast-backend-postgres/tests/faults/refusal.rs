//! The server answers, but says no.

use std::time::Duration;

use lockfast::{ErrorKind, Migration, Options, Released};
use lockfast_conformance::fault::certificate::{Authority, Flaw};

use crate::kit::{
    Postgres, ROLE, SCHEMA, Setup, check_error, connect, create_role, eventually, failure, hold,
    make_schema, migrate, prepare, start, try_connect, ttl, url,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);

/// L59, C52: a role without rights finds no schema, or one that is not complete.
/// The user sees: `InvalidConfig` with the command to run; `Permission` from the command itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_schema_and_no_rights() {
    let postgres = Postgres::start();
    create_role(&postgres);
    let error = try_connect(&url(&postgres)).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["schema lockfast", "lockfast migrate"]);
    check_error(&migrate(&url(&postgres)).unwrap_err(), ErrorKind::Permission, &["permission"]);
    assert_eq!(migrate(&postgres.url()).unwrap(), Migration::Changed { from: None, to: 2 });
    assert_eq!(migrate(&postgres.url()).unwrap(), Migration::Unchanged { version: 2 });
    let error = try_connect(&url(&postgres)).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["permission denied for schema"]);
    make_schema(&postgres, SCHEMA);
    let locker = connect(&url(&postgres)).await;
    postgres.sql(&format!("ALTER TABLE {SCHEMA}.locks RENAME COLUMN crowd TO other"));
    check_error(&failure(&locker, NAME).await, ErrorKind::InvalidConfig, &["lockfast migrate"]);
    postgres.sql(&format!("DROP TABLE {SCHEMA}.locks CASCADE"));
    check_error(&failure(&locker, NAME).await, ErrorKind::InvalidConfig, &["lockfast migrate"]);
}

/// A role with the right to create makes the schema when it first connects; two at once do it once.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_is_made_on_first_use() {
    let postgres = Postgres::start();
    create_role(&postgres);
    postgres.sql(&format!("GRANT CREATE ON DATABASE postgres TO {ROLE}"));
    let url = url(&postgres);
    let (one, two) = tokio::join!(try_connect(&url), try_connect(&url));
    let guard = hold(&one.unwrap(), NAME, ttl(TTL)).await;
    assert_eq!(two.unwrap().inspect(guard.name()).await.unwrap().holders.len(), 1);
}

/// P1: as many connections as the server allows: who is in stays in.
/// The user sees: `Unreachable` with the reason, to be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_connections() {
    let postgres = prepare(Setup::new().set("max_connections", "8"));
    let locker = connect(&url(&postgres)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let mut others = Vec::new();
    let error = loop {
        match try_connect(&url(&postgres)).await {
            Ok(other) => others.push(other),
            Err(error) => break error,
        }
        assert!(others.len() < 8);
    };
    check_error(&error, ErrorKind::Unreachable, &["connections"]);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P7: another transaction is in the way of a batch, in a circle; the server undoes ours, and it is
/// asked again.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock() {
    let postgres = prepare(Setup::new().set("deadlock_timeout", "500ms"));
    let locker = connect(&url(&postgres)).await;
    let guards = [hold(&locker, "a", ttl(TTL)).await, hold(&locker, "b", ttl(TTL)).await];
    // A renewal of both is one statement.
    let other = std::thread::spawn({
        let socket = postgres.socket_directory().to_owned();
        let port = postgres.port().to_string();
        move || {
            let sql = format!(
                "BEGIN; SELECT 1 FROM {SCHEMA}.locks WHERE name = 'b' FOR UPDATE; \
                 SELECT pg_sleep(4); SELECT 1 FROM {SCHEMA}.locks WHERE name = 'a' FOR UPDATE; COMMIT"
            );
            let psql = std::process::Command::new("psql")
                .args(["-qAt", "-v", "ON_ERROR_STOP=0", "-U", "postgres", "-p", &port, "-h"])
                .arg(socket)
                .args(["-c", &sql, "postgres"])
                .output();
            psql.unwrap()
        }
    });
    // The leases are renewed after a third of their time, while the other one sleeps.
    for guard in &guards {
        crate::kit::wait_for_renewal(guard, TTL).await;
    }
    other.join().unwrap();
    for guard in guards {
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}

/// P7: somebody has locked a whole table for longer than a call waits; it is asked again.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_locked() {
    let postgres = start();
    let locker = connect(&format!("{}?request_timeout=10s", url(&postgres))).await;
    let busy = std::thread::spawn({
        let socket = postgres.socket_directory().to_owned();
        let port = postgres.port().to_string();
        move || {
            let sql = format!("BEGIN; LOCK TABLE {SCHEMA}.locks; SELECT pg_sleep(3); COMMIT");
            let psql = std::process::Command::new("psql")
                .args(["-qAt", "-U", "postgres", "-p", &port, "-h"])
                .arg(socket)
                .args(["-c", &sql, "postgres"])
                .status();
            assert!(psql.unwrap().success());
        }
    });
    let locked = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' \
        AND relation = 'lockfast.locks'::regclass AND granted";
    eventually("it is locked", TTL, async || postgres.sql(locked) == "1").await;
    let guard = hold(&locker, NAME, Options::default().ttl(TTL * 6).request_timeout(TTL)).await;
    assert!(guard.check().is_ok());
    busy.join().unwrap();
}

/// A role whose transactions are serializable takes locks all the same.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_isolation_level() {
    let postgres = start();
    postgres.sql(&format!("ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'"));
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    for round in 0..20 {
        let locker = if round % 2 == 0 { &one } else { &two };
        hold(locker, NAME, Options::default().ttl(TTL)).await.release().await.unwrap();
    }
}

/// A password is asked for, and it is not told when it is wrong.
/// The user sees: `Permission`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password() {
    let postgres = prepare(Setup::new().passwords());
    postgres.sql(&format!("ALTER ROLE {ROLE} PASSWORD 'right@/:?%'"));
    connect(&postgres.url_as(ROLE, Some("right@/:?%"))).await;
    for wrong in [Some("hunter2"), None] {
        let error = try_connect(&postgres.url_as(ROLE, wrong)).await.unwrap_err();
        check_error(&error, ErrorKind::Permission, &["password"]);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    let elsewhere = postgres.url_as(ROLE, Some("right@/:?%")).replace("/postgres", "/no");
    let error = try_connect(&elsewhere).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["\"no\""]);
}

/// A certificate is checked when that is asked for.
/// The user sees: `TlsHandshake` with the cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let postgres = prepare(Setup::new().tls(authority.sign_server(Flaw::None)));
    let with = |options: &str| format!("{}?{options}", url(&postgres));
    let verify = |authority: &Authority| {
        with(&format!("sslmode=verify-full&ca={}", authority.certificate().display()))
    };
    for url in [verify(&authority), with("sslmode=require"), with("sslmode=prefer")] {
        let locker = connect(&url).await;
        let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
            WHERE a.application_name = 'lockfast' AND s.ssl";
        assert_eq!(postgres.sql(encrypted), "2", "{url}");
        drop(locker);
        eventually("it is gone", TTL, async || postgres.sql(encrypted) == "0").await;
    }
    let error = try_connect(&verify(&stranger)).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &["certificate"]);
    let plain = start();
    let error = try_connect(&format!("{}?sslmode=require", url(&plain))).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &["server does not support"]);
}
