//! Values that many write at once, whose writes are repeated or come late, and rows that no write
//! leaves.

use std::sync::Arc;
use std::time::Duration;

use lockfast::optimistic::{Attempts, Update};
use lockfast::{ErrorKind, Locker, Retry, VersionedValue, WatchKind, WriteOutcome};
use lockfast_core::{Backend, Change};
use lockfast_faults::proxy::{Link, Proxy};
use tokio_postgres::error::SqlState;

use crate::kit::{
    PgBouncer, Postgres, ROLE, SCHEMA, TIME_MAX, bounded, check_error, connect, connect_both,
    eventually, hold, name, put, session, start, ttl, url, url_at, version, write_request,
};

/// All values: their names, versions and numbers of bytes.
fn stored(postgres: &Postgres) -> String {
    postgres.sql(&format!(
        "SELECT name, encode(version, 'hex'), octet_length(bytes) FROM {SCHEMA}.values ORDER BY name"
    ))
}

/// P14: between comparing and writing much can happen, and of those who saw the same one writes; so of
/// those who saw nothing.
/// The user sees: the conflict, and what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_the_same_moment() {
    const CLIENTS: u8 = 6;
    let postgres = start();
    // The clock is looked at in between.
    postgres.sql(&format!(
        "CREATE OR REPLACE FUNCTION {SCHEMA}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT \
         (SELECT 0 FROM pg_sleep(0.05)) + (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$"
    ));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect_both(&url(&postgres)).await);
    }
    let mut there = None;
    for round in 0..4 {
        let write = |(at, (_, backend)): (u8, &(Locker, Arc<dyn Backend>))| {
            let id = 1 + round * CLIENTS + at;
            let (backend, request) =
                (Arc::clone(backend), write_request("a", there, id, put(b"one")));
            tokio::spawn(async move { backend.write(request).await.unwrap() })
        };
        let writing: Vec<_> = (0..).zip(&clients).map(write).collect();
        let (mut written, mut seen) = (Vec::new(), Vec::new());
        for task in writing {
            match bounded(task).await.unwrap() {
                WriteOutcome::Written(version) => written.push(version),
                WriteOutcome::Conflict(value) => seen.push(value.map(|value| value.version)),
            }
        }
        assert_eq!(written.len(), 1, "{written:?}");
        assert!(seen.iter().all(|version| *version == written[0]), "{seen:?} not {written:?}");
        there = written[0];
    }
}

/// P7, P14: the reply to a write is lost: it is asked for again, known by its id, and done once.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_write() {
    let postgres = start();
    let near = connect(&url(&postgres)).await;
    let mut events = near.watch().await.unwrap();
    let proxy = Proxy::start(postgres.address()).await.unwrap();
    let far = format!("postgres://{ROLE}@{}/postgres?request_timeout=1s", proxy.address());
    let (_locker, far) = connect_both(&far).await;
    let mut expected = None;
    for id in 1..=2 {
        proxy.set_open(Link::SwallowReplies);
        let written =
            bounded(far.write(write_request("a", expected, id, put(b"one")))).await.unwrap();
        expected = Some(version(id));
        assert_eq!(written, WriteOutcome::Written(expected));
        assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Changed);
        let value = far.read(name("a")).await.unwrap().unwrap();
        assert_eq!((Some(value.version), value.bytes), (expected, b"one".to_vec()));
    }
    let more = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
    assert!(more.is_err(), "it was written twice: {more:?}");
}

/// B160, P14: the reply to a write is lost, and somebody has written over it before it is asked for
/// again: whether it happened cannot be told, and it is not made a second time.
/// The user sees: `Unreachable`, with the advice to read the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_write_that_others_write_over() {
    let postgres = start();
    let (_near, near) = connect_both(&url(&postgres)).await;
    let proxy = Arc::new(Proxy::start(postgres.address()).await.unwrap());
    // Nobody gives up before the test lets go.
    let patient = format!("{}?request_timeout=30s", url_at(proxy.address()));
    let (locker, far) = connect_both(&patient).await;
    let value = locker.value("a").unwrap();
    let breaking = Arc::clone(&proxy);
    let updating = tokio::spawn(async move {
        let add_one = async |there: Option<VersionedValue>| {
            // It was read; what is written now is not answered.
            if there.is_none() {
                breaking.set_open(Link::SwallowReplies);
            }
            let mut bytes = there.map(|value| value.bytes).unwrap_or_default();
            bytes.push(b'x');
            Ok(Update::Put(bytes))
        };
        value.update(add_one).await
    });
    let mut there = None;
    eventually("it is written", TIME_MAX, async || {
        there = near.read(name("a")).await.unwrap();
        there.is_some()
    })
    .await;
    let over = write_request("a", there.map(|there| there.version), 2, put(b"xx"));
    assert_eq!(near.write(over).await.unwrap(), WriteOutcome::Written(Some(version(2))));
    proxy.set_open(Link::Close);
    let error = bounded(updating).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["may have happened"]);
    assert_eq!(near.read(name("a")).await.unwrap().unwrap().bytes, b"xx");
    // So with a removal, which leaves no trace.
    bounded(far.read(name("a"))).await.unwrap();
    proxy.set_open(Link::SwallowReplies);
    let remove = write_request("a", Some(version(2)), 3, Change::Remove);
    let removing = tokio::spawn(async move { far.write(remove).await });
    eventually("it is removed", TIME_MAX, async || stored(&postgres).is_empty()).await;
    proxy.set_open(Link::Close);
    let error = bounded(removing).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["may have happened"]);
    assert_eq!(error.retry(), Retry::Later);
}

/// P14: a write that was given up arrives after its repetition was done and undone, by a connection
/// that was given up too: the server refuses it, and what was removed does not come back.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_late() {
    let postgres = start();
    let proxy = Proxy::start(postgres.address()).await.unwrap();
    let far = format!("postgres://{ROLE}@{}/postgres?request_timeout=1s", proxy.address());
    let (_locker, far) = connect_both(&far).await;
    proxy.set_open(Link::HoldRequests);
    let written = bounded(far.write(write_request("a", None, 1, put(b"one")))).await.unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(1))));
    let removal = write_request("a", Some(version(1)), 2, Change::Remove);
    assert_eq!(far.write(removal).await.unwrap(), WriteOutcome::Written(None));
    let log = postgres.socket_directory().join("log");
    let refused = || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.matches("this connection is not registered").count()
    };
    assert_eq!(refused(), 0);
    proxy.set_open(Link::Pass);
    eventually("what was held has arrived", TIME_MAX, async || refused() > 0).await;
    assert_eq!(stored(&postgres), "");
}

/// P11, P14: rows that no write leaves cannot be stored by mistake; where somebody has seen to it that
/// they can, they are told and left as they are. So is a table that is not ours.
/// The user sees: `CorruptRecord`, `InvalidConfig`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_another_form() {
    let postgres = start();
    let (_locker, backend) = connect_both(&url(&postgres)).await;
    let forms = [
        ("short", "'\\x616263', 'x', NULL"),
        ("long", "decode(repeat('ab', 16), 'hex'), convert_to(repeat('x', 65537), 'UTF8'), NULL"),
    ];
    let store = |name: &str, form: &str| {
        postgres.try_sql(&format!("INSERT INTO {SCHEMA}.values VALUES ('{name}', {form})"))
    };
    for (name, form) in forms {
        let (done, said) = store(name, form);
        assert!(!done && said.contains("violates"), "{name}: {said}");
    }
    postgres.sql(&format!("ALTER TABLE {SCHEMA}.values DROP CONSTRAINT values_possible"));
    for (of, form) in forms {
        assert!(store(of, form).0);
        let before = stored(&postgres);
        let error = backend.read(name(of)).await.unwrap_err();
        check_error(&error, ErrorKind::CorruptRecord, &["a value of another form"]);
        for expected in [None, Some(version(9))] {
            let error =
                backend.write(write_request(of, expected, 1, put(b"mine"))).await.unwrap_err();
            check_error(&error, ErrorKind::CorruptRecord, &["a value of another form"]);
        }
        assert_eq!(stored(&postgres), before);
    }
    postgres.sql(&format!("ALTER TABLE {SCHEMA}.values RENAME COLUMN version TO revision"));
    let read = backend.read(name("a")).await.unwrap_err();
    let written = backend.write(write_request("a", None, 1, put(b"mine"))).await.unwrap_err();
    for error in [read, written] {
        check_error(&error, ErrorKind::InvalidConfig, &["lockfast migrate"]);
    }
    assert_eq!(postgres.sql(&format!("SELECT count(*) FROM {SCHEMA}.values")), "2");
}

/// P11: through a pooler an error counts when it comes again, of a value like of anything else.
/// The user sees: `Permission`, `InvalidConfig`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_through_a_pooler() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 4);
    let (_locker, backend) = connect_both(&pooler.url_as(ROLE, "postgres")).await;
    let write = || backend.write(write_request("a", None, 1, put(b"mine")));
    let signature =
        format!("{SCHEMA}.write_value(bytea, bigint, text, bytea, bytea, bytea, bigint)");
    postgres.sql(&format!("REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC, {ROLE}"));
    check_error(&write().await.unwrap_err(), ErrorKind::Permission, &["write_value"]);
    postgres.sql(&format!("ALTER TABLE {SCHEMA}.values RENAME COLUMN version TO revision"));
    let error = backend.read(name("a")).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["lockfast migrate"]);
    postgres.sql(&format!(
        "ALTER TABLE {SCHEMA}.values RENAME COLUMN revision TO version; \
         GRANT EXECUTE ON FUNCTION {signature} TO {ROLE}"
    ));
    assert_eq!(write().await.unwrap(), WriteOutcome::Written(Some(version(1))));
}

/// B161, P3: somebody else has the row of a value: whoever writes it waits and asks again, and its leases
/// are renewed in between.
/// The user sees: the delay, and `Unreachable` if it lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_else_has() {
    const TTL: Duration = Duration::from_secs(6);
    let postgres = start();
    let (locker, backend) = connect_both(&url(&postgres)).await;
    backend.write(write_request("a", None, 1, put(b"one"))).await.unwrap();
    let guard = hold(&locker, "nightly", ttl(TTL)).await;
    let other = session(postgres.address(), "postgres").await;
    let take = format!("BEGIN; SELECT FROM {SCHEMA}.values WHERE name = 'a' FOR UPDATE");
    other.batch_execute(&take).await.unwrap();
    let write = || {
        let backend = Arc::clone(&backend);
        let update = write_request("a", Some(version(1)), 2, put(b"two"));
        tokio::spawn(async move { backend.write(update).await })
    };
    let writing = write();
    tokio::time::sleep(TTL + TTL / 6).await;
    guard.check().unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
    // If it was given up by now, it can be asked for again.
    let _ = bounded(writing).await.unwrap();
    let written = bounded(write()).await.unwrap().unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(2))));
    guard.check().unwrap();
}

/// B163, P14: a standby may lack what was written, and a pooler or a proxy may lead there after a
/// failover.
/// The user sees: `WrongNode`, as for everything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_does_not_tell_values() {
    let postgres = start();
    let (_locker, backend) = connect_both(&url(&postgres)).await;
    backend.write(write_request("a", None, 1, put(b"one"))).await.unwrap();
    let standby = postgres.start_standby();
    standby.cut_off();
    backend.write(write_request("a", Some(version(1)), 2, put(b"two"))).await.unwrap();
    let there = session(standby.address(), ROLE).await;
    let query = format!("SELECT version FROM {SCHEMA}.read_value('a')");
    let error = there.query(&query, &[]).await.unwrap_err();
    assert_eq!(error.code().map(SqlState::code), Some("25006"), "{error}");
}

/// P14: of many who add to one value at once, on several connections, none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_add_to_one_value() {
    const TASKS: usize = 64;
    let postgres = start();
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(connect(&url(&postgres)).await);
    }
    let attempts = Attempts::default().most(1000);
    let add_one = |at: usize| {
        let value = lockers[at % lockers.len()].value("a").unwrap().attempts(attempts);
        tokio::spawn(async move {
            let longer = async |there: Option<VersionedValue>| {
                let mut bytes = there.map(|value| value.bytes).unwrap_or_default();
                bytes.push(b'x');
                Ok(Update::Put(bytes))
            };
            value.update(longer).await.unwrap();
        })
    };
    let adding: Vec<_> = (0..TASKS).map(add_one).collect();
    for task in adding {
        bounded(task).await.unwrap();
    }
    let there = lockers[0].value("a").unwrap().read().await.unwrap().unwrap();
    assert_eq!(there.bytes.len(), TASKS);
}
