//! Sessions, messages and rows that are not as they should be: told clearly, or made no matter, and
//! nothing is granted that must not be.

use std::time::Duration;

use lockfast::{ErrorKind, Options, Released, WriteOutcome};
use lockfast_core::Change;

use crate::kit::{
    PgBouncer, ROLE, SCHEMA, bounded, check_error, connect, connect_both, failure, hold, name,
    queue_for, refusal, start, try_connect, ttl, url, version, wait_for_renewal, write_request,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// What an administrator may have set for the role or the database makes no difference to sessions of
/// our own.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_role_and_the_database() {
    let postgres = start();
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "timezone = 'America/New_York'",
        "datestyle = 'German, DMY'",
        "statement_timeout = '40ms'",
        "idle_session_timeout = '300ms'",
        "lock_timeout = '1ms'",
        "synchronous_commit = off",
        "search_path = 'pg_temp'",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
        "array_nulls = off",
        "enable_indexscan = off",
        "client_min_messages = 'debug5'",
    ] {
        for whose in [format!("ROLE {ROLE}"), "DATABASE postgres".to_owned()] {
            postgres.sql(&format!("ALTER {whose} SET {setting}"));
        }
    }
    let (one, backend) = connect_both(&url(&postgres)).await;
    let two = connect(&url(&postgres)).await;
    let change = Change::Put { bytes: b"\0\\'\xff".to_vec(), keep: Some(TTL) };
    let written = backend.write(write_request(NAME, None, 1, change)).await.unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(1))));
    let value = backend.read(name(NAME)).await.unwrap().unwrap();
    assert_eq!(value.bytes, b"\0\\'\xff");
    assert!(value.remaining.is_some_and(|left| left <= TTL), "{value:?}");
    let guard = hold(&one, NAME, ttl(TTL)).await;
    refusal(&two, NAME).await;
    let waiter = queue_for(&two, NAME).await;
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    bounded(waiter).await.unwrap().release().await.unwrap();
}

/// A role that only reads is told so, with the statement that helps; a pooler's role whose statements
/// end too soon as well.
/// The user sees: `WrongNode`, `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_only_reads() {
    let postgres = start();
    postgres.sql(&format!("ALTER ROLE {ROLE} SET default_transaction_read_only = on"));
    let error = try_connect(&url(&postgres)).await.unwrap_err();
    check_error(&error, ErrorKind::WrongNode, &["read-only", "default_transaction_read_only"]);
    postgres.sql(&format!("ALTER ROLE {ROLE} RESET default_transaction_read_only"));
    let pooler = PgBouncer::start(&postgres, 4);
    let locker = connect(&pooler.url_as(ROLE, "postgres")).await;
    postgres.sql(&format!(
        "CREATE OR REPLACE FUNCTION {SCHEMA}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT \
         (SELECT 0 FROM pg_sleep(0.3)) + (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$"
    ));
    postgres.sql(&format!("ALTER ROLE {ROLE} SET statement_timeout = '100ms'"));
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    let error = loop {
        let error = failure(&locker, NAME).await;
        if !error.to_string().contains("connection") {
            break error;
        }
    };
    check_error(&error, ErrorKind::Unreachable, &["statement_timeout"]);
}

/// P1: pushes that no function sends, on the right channel: nobody is granted anything, and what is
/// right is heard afterwards.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_pushes() {
    let postgres = start();
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    for message in [
        "",
        " ",
        "G",
        "G 1",
        "G 1 2 3",
        "G x y z u",
        "G 1 0 1 1",
        "G 1 -7 1 1500000",
        "G 1 9007199254740992 1 1500000",
        "G 1 99999999999999999999 1 1500000",
        "G 1 7 1 -1",
        "G 1 7 1 1500000 more",
        "G 99 7 1 1500000",
        "H",
        "H 1",
        "H 1 -5",
        "H x 0",
        "H 1 99999999999999999999",
        "R more",
        "E",
        "\u{1f512}",
        "G\t1\t7\t1\t1500000",
    ] {
        postgres.sql(&format!(
            "SELECT pg_notify(channel, '{message}') FROM {SCHEMA}.clients; \
             SELECT pg_notify(events, '{message}') FROM {SCHEMA}.store"
        ));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiter.is_finished(), "it was granted by nonsense");
    guard.check().unwrap();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// P1, P4: values that no function stores cannot be stored by hand either; those that can be are told,
/// or lead to nothing worse than a wait.
/// The user sees: `TokenExhausted` where no fence is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_rows() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    for change in [
        "locks SET fence = -1",
        "locks SET crowd = -1",
        "locks SET holder = NULL, fence = NULL",
        "locks SET until_us = NULL",
        "store SET floor = -1",
    ] {
        let (done, said) = postgres.try_sql(&format!("UPDATE {SCHEMA}.{change}"));
        assert!(!done && said.contains("violates"), "{change}: {said}");
    }
    for (stage, mode) in [(3, 0), (-2, 0), (0, -2)] {
        let (done, said) = postgres.try_sql(&format!(
            "INSERT INTO {SCHEMA}.claims (name, holder, stage, mode, call, ttl_us, delay_us, seen_us) \
             VALUES ('x', '00000000-0000-0000-0000-000000000001', {stage}, {mode}, 1, 1, 1, 1)"
        ));
        assert!(!done && said.contains("violates"), "{stage} {mode}: {said}");
    }
    // The highest fence that there is.
    postgres.sql(&format!("UPDATE {SCHEMA}.locks SET fence = 9007199254740991"));
    check_error(&failure(&locker, NAME).await, ErrorKind::TokenExhausted, &["2^53"]);
    // A lease without an end, of nobody whom we know.
    postgres.sql(&format!(
        "UPDATE {SCHEMA}.locks SET fence = 7, until_us = 9223372036854775807, \
         holder = '00000000-0000-0000-0000-000000000001'"
    ));
    let wait = Options::default().ttl(TTL).wait(Duration::from_millis(300));
    let mutex = locker.mutex(NAME).unwrap().with_options(wait);
    assert_eq!(bounded(mutex.acquire()).await.unwrap_err().kind(), ErrorKind::Taken);
    // A count that is too high only costs time.
    postgres.sql(&format!("UPDATE {SCHEMA}.locks SET holder = NULL, until_us = 0, crowd = 3"));
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}
