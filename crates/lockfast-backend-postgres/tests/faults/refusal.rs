//! The server answers, but says no.

use std::time::Duration;

use lockfast::{ErrorKind, Guard, Migration, Mode, Options, Released};
use lockfast_core::{RenewOutcome, RenewRequest};
use lockfast_faults::certificate::{Authority, Flaw};

use crate::kit::{
    Postgres, ROLE, SCHEMA, Setup, bounded, check_error, connect, connect_both, create_role,
    eventually, failure, hold, make_schema, migrate, prepare, refusal, session, start, try_connect,
    ttl, url, wait_for_renewal,
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
    assert_eq!(migrate(&postgres.url()).unwrap(), Migration::Changed { from: None, to: 1 });
    assert_eq!(migrate(&postgres.url()).unwrap(), Migration::Unchanged { version: 1 });
    let error = try_connect(&url(&postgres)).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["permission denied for schema"]);
    make_schema(&postgres, SCHEMA);
    let locker = connect(&url(&postgres)).await;
    postgres.sql(&format!("ALTER TABLE {SCHEMA}.locks RENAME COLUMN crowd TO other"));
    check_error(&failure(&locker, NAME).await, ErrorKind::InvalidConfig, &["lockfast migrate"]);
    postgres.sql(&format!("DROP TABLE {SCHEMA}.locks CASCADE"));
    check_error(&failure(&locker, NAME).await, ErrorKind::InvalidConfig, &["lockfast migrate"]);
}

/// B224, P15: a downgrade that the role may not ask for changes nothing; once it may, it can.
/// The user sees: `Permission`, and that nothing was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_without_the_right() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let lock = locker.rwlock(NAME).unwrap().ttl(TTL);
    let writer = lock.write().await.unwrap();
    let function = format!("EXECUTE ON FUNCTION {SCHEMA}.downgrade");
    postgres.sql(&format!("REVOKE {function} FROM {ROLE}"));
    let error = lock.downgrade(&writer).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["function downgrade", "nothing was done"]);
    assert!(error.is_without_effect());
    assert_eq!(writer.mode(), Mode::Exclusive);
    assert_eq!(refusal(&locker, NAME).await.lock.holders[0].mode, Mode::Exclusive);
    postgres.sql(&format!("GRANT {function} TO {ROLE}"));
    lock.downgrade(&writer).await.unwrap();
    assert_eq!(writer.mode(), Mode::Shared);
    assert!(matches!(writer.release().await.unwrap(), Released::Released));
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

/// P7: other transactions are in the way of a batch, in a circle; the server undoes ours, and it is
/// asked again.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock() {
    const LONG: Duration = Duration::from_secs(60);
    let postgres = prepare(Setup::new().set("deadlock_timeout", "200ms"));
    // Nothing but the deadlock may end the wait.
    postgres.sql(
        "DO $$ BEGIN EXECUTE (SELECT format('ALTER FUNCTION %s SET lock_timeout = %L', \
         oid::regprocedure, '20s') FROM pg_proc WHERE proname = 'serve'); END $$",
    );
    let (locker, backend) = connect_both(&format!("{}?request_timeout=20s", url(&postgres))).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(hold(&locker, name, ttl(LONG)).await);
    }
    let (first, second) = (
        session(postgres.address(), "postgres").await,
        session(postgres.address(), "postgres").await,
    );
    let take = |name: &str| format!("SELECT FROM {SCHEMA}.locks WHERE name = '{name}' FOR UPDATE");
    first.batch_execute(&format!("BEGIN; {}", take("b"))).await.unwrap();
    // It is never the one that is undone.
    let begin = "SET deadlock_timeout = '1h'; BEGIN";
    second.batch_execute(&format!("{begin}; {}", take("c"))).await.unwrap();
    let waiting = async |count: &str| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        eventually("so many wait", TTL, async || postgres.sql(sql) == count).await;
    };
    // All three by one statement, which gets `a` and waits for `b`.
    let lease = |guard: &Guard| RenewRequest {
        name: guard.name().clone(),
        holder: guard.holder(),
        ttl: LONG,
        lock_delay: Duration::ZERO,
    };
    let leases: Vec<_> = guards.iter().map(lease).collect();
    let renewing = tokio::spawn(async move { backend.renew(leases).await.unwrap() });
    waiting("1").await;
    let wanted = take("a");
    let other = tokio::spawn(async move {
        second.batch_execute(&wanted).await.unwrap();
        second.batch_execute("COMMIT").await.unwrap();
    });
    waiting("2").await;
    // Now it gets `b` and waits for `c`, of whoever waits for its `a`.
    first.batch_execute("COMMIT").await.unwrap();
    bounded(other).await.unwrap();
    let outcomes = bounded(renewing).await.unwrap();
    let renewed = outcomes.iter().filter(|outcome| matches!(outcome, RenewOutcome::Renewed));
    assert_eq!(renewed.count(), 3, "{outcomes:?}");
    let log = postgres.socket_directory().join("log");
    eventually("the server has seen it", TTL, async || {
        std::fs::read_to_string(&log).unwrap().contains("deadlock detected")
    })
    .await;
    for guard in guards {
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}

/// P1, P7: the server finds no room for another row: its writes come back short, as the kernel
/// answers them on a full disk. (A limit to the size of its files does that wherever the tests run,
/// and the server takes it for the same.)
/// The user sees: `Unreachable` with the reason for new locks; leases go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk() {
    // Not a whole number of pages, so that the last write is a short one; more than a segment of
    // the log, without which the server could not go on at all.
    const ROOM: u64 = (2 << 20) + 4096;
    let postgres = prepare(Setup::new().files_up_to(ROOM).set("autovacuum", "off"));
    let locker = connect(&url(&postgres)).await;
    let guard = hold(&locker, "mine", ttl(TTL)).await;
    let mut filled = 0;
    let said = loop {
        let (succeeded, said) = postgres.try_sql(&format!(
            "INSERT INTO {SCHEMA}.locks (name, fence, until_us, since_us) SELECT 'full-' || n, 0, \
             9000000000000000, 0 FROM generate_series({filled}, {filled} + 1999) n"
        ));
        if !succeeded {
            break said;
        }
        filled += 2000;
        assert!(filled < 100_000, "the server does not keep to the limit");
    };
    assert!(said.contains("could not extend file"), "{said}");
    let mut others = Vec::new();
    let error = loop {
        let mutex = locker.mutex(format!("other-{}", others.len())).unwrap();
        match bounded(mutex.with_options(ttl(TTL)).try_acquire()).await {
            Ok(other) => others.push(other),
            Err(error) => break error,
        }
        assert!(others.len() < 5000, "there is always room");
    };
    check_error(&error, ErrorKind::Unreachable, &["disk is full"]);
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    for mend in [format!("DELETE FROM {SCHEMA}.locks WHERE name LIKE 'full-%'"), "VACUUM".into()] {
        postgres.sql(&mend);
    }
    hold(&locker, "more", ttl(TTL)).await.release().await.unwrap();
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
