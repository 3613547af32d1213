//! A schema of another version than the program's: the one before is used, and becomes the present one
//! while it is in use; the one after is used if it says so. There is no other version yet, so each test
//! makes one of the present schema: the one before lacks a table and some functions, the one after has
//! more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{
    Postgres, TIME_MAX, bounded, check_error, connect, connect_both, eventually, hold, migrate,
    name, put, queue_for, refusal, start, try_connect, ttl, url, version, wait_for_renewal,
    write_request,
};
use lockfast::{Error, ErrorKind, Locker, Migration, Mode, Moment, Released, WriteOutcome};
use lockfast_core::{Backend, Change};
use lockfast_faults::lateness::Lateness;

const TTL: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(3);
const END_ALL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE application_name = 'lockfast'";

/// Lets the schema say another version, of itself or of the oldest program that it serves.
fn say(postgres: &Postgres, function: &str, version: u32) {
    postgres.sql(&format!(
        "CREATE OR REPLACE FUNCTION lockfast.{function}() RETURNS integer LANGUAGE sql IMMUTABLE \
         SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS ' SELECT {version} '"
    ));
}

/// A server with a schema of the version before, which had neither values nor downgrades.
fn start_before() -> Postgres {
    let postgres = start();
    postgres.sql(
        "DROP TABLE lockfast.values; \
         DROP FUNCTION lockfast.read_value, lockfast.write_value, lockfast.downgrade",
    );
    say(&postgres, "version", 0);
    postgres
}

/// All that the schema consists of, and who may call it.
fn describe(postgres: &Postgres) -> String {
    postgres.sql(
        "SELECT line FROM ( \
         SELECT pg_get_functiondef(p.oid) || p.proacl::text FROM pg_proc p \
         WHERE p.pronamespace = 'lockfast'::regnamespace \
         UNION ALL SELECT concat_ws(' ', c.oid::regclass, c.relkind, c.relacl, c.reloptions, a.attname, \
         a.atttypid::regtype, a.attnotnull, pg_get_indexdef(c.oid)) \
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
         WHERE c.relnamespace = 'lockfast'::regnamespace \
         UNION ALL SELECT concat_ws(' ', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid)) \
         FROM pg_constraint c WHERE c.connamespace = 'lockfast'::regnamespace) s (line) ORDER BY 1",
    )
}

/// B35, P1, P4, P7, P10, P15: a schema of the version before is used and not changed, also by a role
/// that could; then it is migrated under those who use it, by two at once.
/// The user sees: nothing but the new version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_the_version_before() {
    let present = describe(&start());
    let postgres = start_before();
    let before = describe(&postgres);
    for url in [url(&postgres), postgres.url()] {
        check_that_it_serves(&postgres, &url).await;
    }
    let error = migrate(&url(&postgres)).unwrap_err();
    check_error(&error, ErrorKind::Permission, &["permission denied"]);
    assert_eq!(describe(&postgres), before);
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let idle = hold(&one, "idle", ttl(TTL)).await;
    let last = idle.fence().get();
    assert!(matches!(idle.release().await.unwrap(), Released::Released));
    let lock = one.rwlock("written").unwrap().ttl(TTL);
    let writer = lock.write().await.unwrap();
    let guard = hold(&one, "kept", ttl(SHORT)).await;
    let waiter = queue_for(&two, "kept").await;
    migrate_twice(&postgres).await;
    assert_eq!(describe(&postgres), present);
    check_that_it_serves(&postgres, &url(&postgres)).await;
    // The rights that were given are enough, and what was held and waited for is.
    let (three, backend) = connect_both(&url(&postgres)).await;
    check_values(&*backend).await;
    let seen = refusal(&three, "kept").await.lock;
    assert_eq!((seen.holders[0].fence, seen.waiting), (Some(guard.fence()), 1));
    let newcomer = queue_for(&three, "kept").await;
    // Who was connected has what is new.
    lock.downgrade(&writer).await.unwrap();
    assert_eq!(refusal(&two, "written").await.lock.holders[0].mode, Mode::Shared);
    assert!(matches!(writer.release().await.unwrap(), Released::Released));
    cut_off(&postgres, &[&one, &two, &three]).await;
    wait_for_renewal(&guard, SHORT).await;
    let first = guard.fence().get();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    let second = next.fence().get();
    assert!(second > first && !newcomer.is_finished());
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    assert!(bounded(newcomer).await.unwrap().fence().get() > second);
    assert!(hold(&three, "idle", ttl(TTL)).await.fence().get() > last);
}

/// Migrates by two at once, and waits until they are gone: the server notices a moment later that a
/// connection is closed.
async fn migrate_twice(postgres: &Postgres) {
    let connected = sessions(postgres);
    let url = postgres.url();
    let start = || {
        let url = url.clone();
        tokio::task::spawn_blocking(move || migrate(&url).unwrap())
    };
    let (first, second) = (start(), start());
    let both = [bounded(first).await.unwrap(), bounded(second).await.unwrap()];
    let changed = Migration::Changed { from: Some(0), to: 1 };
    let unchanged = Migration::Unchanged { version: 1 };
    assert!(both.contains(&changed), "{both:?}");
    assert!(both.iter().all(|it| *it == changed || *it == unchanged), "{both:?}");
    assert_eq!(migrate(&url).unwrap(), unchanged);
    eventually("they are gone", TIME_MAX, async || sessions(postgres) == connected).await;
}

/// Ends all connections, and waits until these are connected again.
async fn cut_off(postgres: &Postgres, lockers: &[&Locker]) {
    postgres.sql(END_ALL);
    for locker in lockers {
        let is_back = async || locker.list("", None, 1).await.is_ok();
        eventually("it is there again", TIME_MAX, is_back).await;
    }
}

/// Writes, reads and removes a value.
async fn check_values(backend: &dyn Backend) {
    let written = backend.write(write_request("a", None, 1, put(b"one"))).await.unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(1))));
    assert_eq!(backend.read(name("a")).await.unwrap().unwrap().bytes, b"one");
    let removal = write_request("a", Some(version(1)), 2, Change::Remove);
    assert_eq!(backend.write(removal).await.unwrap(), WriteOutcome::Written(None));
}

/// Takes, waits for, hands over, watches and gives back, by two clients. Their connections are
/// closed when it returns.
async fn check_that_it_serves(postgres: &Postgres, url: &str) {
    let before = sessions(postgres);
    let (one, two) = (connect(url).await, connect(url).await);
    let mut events = two.watch().await.unwrap();
    let guard = hold(&one, "served", ttl(Duration::from_secs(3))).await;
    assert_eq!(bounded(events.next()).await.unwrap().name.as_str(), "served");
    wait_for_renewal(&guard, Duration::from_secs(3)).await;
    let waiter = queue_for(&two, "served").await;
    let (machine, from) = (Lateness::watch(), Moment::now());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    machine.check("to push", Duration::from_secs(1), from, Moment::now());
    let many = (0..5).map(|at| one.mutex(format!("many-{at}")).unwrap());
    let many: Vec<_> =
        many.map(|mutex| tokio::spawn(async move { mutex.acquire().await.map(drop) })).collect();
    for task in many {
        bounded(task).await.unwrap().unwrap();
    }
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    drop((events, one, two));
    let held = "SELECT count(holder) FROM lockfast.locks WHERE name NOT IN ('kept', 'written')";
    eventually("nothing is held", TIME_MAX, async || postgres.sql(held) == "0").await;
    eventually("they are gone", TIME_MAX, async || sessions(postgres) == before).await;
}

/// How many sessions of Lockfast the server has.
fn sessions(postgres: &Postgres) -> String {
    postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockfast'")
}

/// B35: a program goes on with a schema that a newer one has made, and is connected to it anew, also when
/// it takes the newer one's place again; a schema that does not serve it is refused with what to do, and
/// not changed.
/// The user sees: nothing, or `InvalidConfig`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_a_later_version() {
    let postgres = start();
    eventually("migrate is gone", TIME_MAX, async || sessions(&postgres) == "0").await;
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&one, "kept", ttl(SHORT)).await;
    let waiter = queue_for(&two, "kept").await;
    postgres.sql(
        "ALTER TABLE lockfast.locks ADD COLUMN more text; CREATE TABLE lockfast.more (more text)",
    );
    say(&postgres, "version", 2);
    check_that_it_serves(&postgres, &url(&postgres)).await;
    cut_off(&postgres, &[&one, &two]).await;
    wait_for_renewal(&guard, SHORT).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(matches!(bounded(waiter).await.unwrap().release().await.unwrap(), Released::Released));
    check_that_it_is_newer(&migrate(&postgres.url()).unwrap_err(), 2);
    say(&postgres, "version", 3);
    say(&postgres, "serves_since", 2);
    check_that_it_is_refused(&postgres, 3).await;
    // Who was connected is refused when it has to connect again.
    postgres.sql(END_ALL);
    let is_refused = async || matches!(one.list("", None, 1).await, Err(error) if error.kind() == ErrorKind::InvalidConfig);
    eventually("it is refused", TIME_MAX, is_refused).await;
    // The versions that there were before the first release do not say whom they serve.
    postgres.sql("DROP FUNCTION lockfast.serves_since");
    for version in 2..=6 {
        say(&postgres, "version", version);
        check_that_it_is_refused(&postgres, version).await;
    }
}

/// Whoever connects or migrates is told so, and changes nothing.
async fn check_that_it_is_refused(postgres: &Postgres, version: u32) {
    let before = describe(postgres);
    for url in [url(postgres), postgres.url()] {
        check_that_it_is_newer(&try_connect(&url).await.unwrap_err(), version);
        check_that_it_is_newer(&migrate(&url).unwrap_err(), version);
    }
    assert_eq!(describe(postgres), before);
}

fn check_that_it_is_newer(error: &Error, version: u32) {
    let version = format!("schema lockfast has version {version}, which is newer");
    check_error(error, ErrorKind::InvalidConfig, &[&version, "update the program"]);
}
