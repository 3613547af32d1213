//! A stranger who may connect to the database, and nothing else: it sees the server's list of locks,
//! may take advisory locks and may send on every channel. None of that may grant a lock, end a lease
//! or hold anybody up.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{
    Postgres, SCHEMA, TIME_MAX, bounded, connect, eventually, hold, queue_for, session, start, ttl,
    url, wait_for_renewal,
};
use lockfast::{Migration, Released};
use tokio_postgres::Client;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);
const STRANGER: &str = "stranger";

async fn start_with_stranger() -> (Postgres, Client) {
    let postgres = start();
    postgres.sql(&format!("CREATE ROLE {STRANGER} LOGIN"));
    let stranger = session(postgres.address(), STRANGER).await;
    (postgres, stranger)
}

/// The clients of the store, as text. A stranger does not see them, but shall gain nothing by it.
fn clients(postgres: &Postgres) -> Vec<String> {
    let sql = format!("SELECT encode(client, 'hex') FROM {SCHEMA}.clients");
    postgres.sql(&sql).lines().map(ToOwned::to_owned).collect()
}

/// B25: nothing of the schema can be read or called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_reads_and_calls_nothing() {
    let (postgres, stranger) = start_with_stranger().await;
    let functions = format!(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{SCHEMA}'::regnamespace"
    );
    // To see into the schema is a right of its own; without it there is nothing to call.
    for granted in ["", "USAGE"] {
        if !granted.is_empty() {
            postgres.sql(&format!("GRANT USAGE ON SCHEMA {SCHEMA} TO {STRANGER}"));
        }
        for table in ["locks", "claims", "clients", "store", "mail", "values"] {
            let said = stranger.query(&format!("SELECT * FROM {SCHEMA}.{table}"), &[]).await;
            assert!(said.unwrap_err().to_string().contains("db error"), "{table}");
        }
        for function in postgres.sql(&functions).lines() {
            let may =
                format!("SELECT has_function_privilege('{STRANGER}', '{function}', 'EXECUTE')");
            assert_eq!(postgres.sql(&may), "f", "{function}");
        }
    }
}

/// B25, P1: pushes that a stranger makes up reach nobody: neither a waiter nor a watcher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_makes_up_grants() {
    let (postgres, stranger) = start_with_stranger().await;
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let mut events = two.watch().await.unwrap();
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(500), events.next()).await {
        assert_ne!(event.unwrap().name.as_str(), "forged");
    }
    // All that a stranger sees of the server's locks, and what it might know from elsewhere.
    let mut channels = clients(&postgres);
    let seen = "SELECT DISTINCT v FROM pg_locks, LATERAL (VALUES (lpad(to_hex(objid::bigint), 8, '0')), \
        (lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0'))) AS w (v) \
        WHERE locktype = 'advisory'";
    channels.extend(stranger.query(seen, &[]).await.unwrap().iter().map(|row| row.get(0)));
    channels.push(format!("events:{SCHEMA}"));
    for channel in channels {
        let forge = format!(
            "SELECT pg_notify('lockfast:{channel}', format('G %s 9007199254740990 %s 1500000', n, \
             (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)), \
             pg_notify('lockfast:{channel}', format('H %s 0', n)) FROM generate_series(0, 300) n"
        );
        stranger.batch_execute(&forge).await.unwrap();
        let event = format!(
            "SELECT pg_notify('lockfast:{channel}', E'g\\t1\\t7\\tforged\\t\\t\\t0\\t\\t1')"
        );
        stranger.batch_execute(&event).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished(), "it was granted by a stranger");
    guard.check().unwrap();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() < 9_007_199_254_740_990);
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(500), events.next()).await {
        assert_ne!(event.unwrap().name.as_str(), "forged");
    }
}

/// B25, P1, P9: a stranger who takes every advisory lock that it sees or guesses stops nobody's
/// renewals, connections, migrations or sweeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_takes_advisory_locks() {
    let (postgres, stranger) = start_with_stranger().await;
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    for client in clients(&postgres) {
        for class in 0x4c46_4b01..=0x4c46_4b08 {
            let take = format!(
                "SELECT pg_try_advisory_lock({class}, ('x{}')::bit(32)::integer), \
                 pg_try_advisory_lock({class}, 0)",
                &client[..8]
            );
            stranger.batch_execute(&take).await.unwrap();
        }
    }
    let seen = "SELECT pg_try_advisory_lock_shared((classid::bigint << 32) | objid::bigint), \
        pg_try_advisory_lock_shared(classid::bigint::bit(32)::integer, objid::bigint::bit(32)::integer) \
        FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()";
    stranger.batch_execute(seen).await.unwrap();
    wait_for_renewal(&guard, TTL).await;
    let third = connect(&url(&postgres)).await;
    hold(&third, "other", ttl(TTL)).await.release().await.unwrap();
    assert_eq!(kit::migrate(&postgres.url()).unwrap(), Migration::Unchanged { version: 1 });
    let elsewhere = format!("{}?schema=another", postgres.url());
    assert_eq!(kit::migrate(&elsewhere).unwrap(), Migration::Changed { from: None, to: 1 });
    let sweep = format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)");
    let left = format!("SELECT count(*) FROM {SCHEMA}.locks WHERE name = 'other'");
    eventually("the idle row is removed", TIME_MAX, async || {
        postgres.sql(&sweep);
        postgres.sql(&left) == "0"
    })
    .await;
    guard.release().await.unwrap();
    bounded(waiter).await.unwrap().release().await.unwrap();
}
