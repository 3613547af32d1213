//! Values that many write at once, whose writes are repeated or come late, that other programs write,
//! and rows that no write leaves.

use std::sync::Arc;
use std::time::Duration;

use lockfast::optimistic::{Attempts, Update};
use lockfast::{ErrorKind, Locker, Retry, Version, VersionedValue, WatchKind, WriteOutcome};
use lockfast_core::{Backend, Change};
use lockfast_faults::proxy::{Link, Proxy};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Row};

use crate::kit::foreign::Session;
use crate::kit::{
    Mysql, TIME_MAX, bounded, check_error, connect, connect_both, connect_settled, eventually,
    hold, name, prepare, prepare_noting, put, start_server, ttl, url_at, version, write_request,
};

/// All values: their names, versions and numbers of bytes.
fn stored(server: &Mysql) -> String {
    server.sql("SELECT name, HEX(version), LENGTH(bytes) FROM lockfast_values ORDER BY name")
}

/// P14: between comparing and writing much can happen, and of those who saw the same one writes; so of
/// those who saw nothing.
/// The user sees: the conflict, and what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_the_same_moment() {
    const CLIENTS: u8 = 6;
    let server = start_server();
    let url = prepare(&server).await;
    // The clock is looked at in between.
    let mut root = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    root.query_drop("DROP PROCEDURE lockfast_clock").await.unwrap();
    let slow = "CREATE PROCEDURE lockfast_clock(OUT now_us BIGINT) SQL SECURITY INVOKER \
        SET now_us = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + SLEEP(0.05)";
    root.query_drop(slow).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect_both(&url).await);
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
    let server = start_server();
    let (near, _) = connect_settled(&server, &prepare_noting(&server).await).await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    let mut events = near.watch().await.unwrap();
    let mut expected = None;
    for id in 1..=2 {
        let (_locker, far) = connect_settled(&server, &patient(&proxy)).await;
        proxy.set_open(Link::SwallowReplies);
        let (backend, write) = (Arc::clone(&far), write_request("a", expected, id, put(b"one")));
        let writing = tokio::spawn(async move { backend.write(write).await });
        until_written(&server, id).await;
        proxy.set_open(Link::Close);
        expected = Some(version(id));
        let written = bounded(writing).await.unwrap().unwrap();
        assert_eq!(written, WriteOutcome::Written(expected));
        assert_eq!(bounded(events.next()).await.unwrap().kind, WatchKind::Changed);
        let value = far.read(name("a")).await.unwrap().unwrap();
        assert_eq!((Some(value.version), value.bytes), (expected, b"one".to_vec()));
    }
    let more = tokio::time::timeout(Duration::from_millis(1500), events.next()).await;
    assert!(more.is_err(), "it was written twice: {more:?}");
}

/// A way through the proxy on which nobody gives up before the test lets go.
fn patient(proxy: &Proxy) -> String {
    format!("{}?request_timeout=30s", url_at(proxy.address()))
}

async fn until_written(server: &Mysql, id: u8) {
    let own = version(id).to_string().to_uppercase();
    eventually("it is written", TIME_MAX, async || stored(server).contains(&own)).await;
}

/// B160, P14: the reply to a write is lost, and somebody has written over it before it is asked for
/// again: whether it happened cannot be told, and it is not made a second time.
/// The user sees: `Unreachable`, with the advice to read the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_write_that_others_write_over() {
    let server = start_server();
    let (_near, near) = connect_settled(&server, &prepare_noting(&server).await).await;
    let proxy = Arc::new(Proxy::start(server.address()).await.unwrap());
    let url = patient(&proxy);
    let far = connect_settled(&server, &url).await;
    let value = far.0.value("a").unwrap();
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
    drop(far);
    let (_locker, far) = connect_settled(&server, &url).await;
    proxy.set_open(Link::SwallowReplies);
    let remove = write_request("a", Some(version(2)), 3, Change::Remove);
    let removing = tokio::spawn(async move { far.write(remove).await });
    eventually("it is removed", TIME_MAX, async || !stored(&server).contains("0202")).await;
    proxy.set_open(Link::Close);
    let error = bounded(removing).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["may have happened"]);
    assert_eq!(error.retry(), Retry::Later);
}

/// P14: a write that was given up arrives after its repetition was done and undone, by a connection
/// that was given up too: it does nothing, and what was removed does not come back.
/// The user sees: `Unreachable` for the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_late() {
    let server = start_server();
    prepare_noting(&server).await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (_locker, far) = connect_settled(&server, &url_at(proxy.address())).await;
    let before = stored(&server);
    proxy.set_open(Link::HoldRequests);
    let create = || write_request("a", None, 1, put(b"one"));
    let error = bounded(far.write(create())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let mut written = None;
    eventually("it is written", TIME_MAX, async || {
        written = far.write(create()).await.ok();
        written.is_some()
    })
    .await;
    assert_eq!(written, Some(WriteOutcome::Written(Some(version(1)))));
    let removal = write_request("a", Some(version(1)), 2, Change::Remove);
    assert_eq!(far.write(removal).await.unwrap(), WriteOutcome::Written(None));
    let ended = proxy.ended();
    proxy.set_open(Link::Pass);
    // The server has done with what was late when that connection has ended.
    eventually("what was late has arrived", TIME_MAX, async || proxy.ended() > ended).await;
    assert_eq!(stored(&server), before);
}

/// P11, P14: a row that no write leaves is told and left as it is; so is a table that is not ours.
/// The user sees: `CorruptRecord`, `InvalidConfig`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_another_form() {
    let server = start_server();
    let (_locker, backend) = connect_both(&prepare(&server).await).await;
    server
        .sql("INSERT INTO lockfast_values VALUES ('a', REPEAT('v', 16), REPEAT('x', 65537), NULL)");
    let before = stored(&server);
    let mut errors = vec![backend.read(name("a")).await.unwrap_err()];
    for expected in [None, Some(version(9))] {
        let write = write_request("a", expected, 1, put(b"mine"));
        errors.push(backend.write(write).await.unwrap_err());
    }
    for error in errors {
        check_error(&error, ErrorKind::CorruptRecord, &["a value", "do not write"]);
    }
    assert_eq!(stored(&server), before);
    server.sql("ALTER TABLE lockfast_values CHANGE version revision BINARY(16) NOT NULL");
    let read = backend.read(name("a")).await.unwrap_err();
    let written = backend.write(write_request("a", None, 1, put(b"mine"))).await.unwrap_err();
    for error in [read, written] {
        check_error(&error, ErrorKind::InvalidConfig, &["lockfast migrate"]);
    }
    assert_eq!(server.sql("SELECT LENGTH(bytes) FROM lockfast_values"), "65537");
}

/// B161, P3: somebody else has the row of a value: whoever writes it waits and asks again, and its leases
/// are renewed in between.
/// The user sees: the delay, and `Unreachable` if it lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_else_has() {
    const TTL: Duration = Duration::from_secs(6);
    let server = start_server();
    let (locker, backend) = connect_both(&prepare(&server).await).await;
    backend.write(write_request("a", None, 1, put(b"one"))).await.unwrap();
    let guard = hold(&locker, "nightly", ttl(TTL)).await;
    let mut root = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    root.query_drop("BEGIN; SELECT 1 FROM lockfast_values WHERE name = 'a' FOR UPDATE")
        .await
        .unwrap();
    let write = || {
        let backend = Arc::clone(&backend);
        let update = write_request("a", Some(version(1)), 2, put(b"two"));
        tokio::spawn(async move { backend.write(update).await })
    };
    let writing = write();
    tokio::time::sleep(TTL + TTL / 6).await;
    guard.check().unwrap();
    root.query_drop("ROLLBACK").await.unwrap();
    // If it was given up by now, it can be asked for again.
    let _ = bounded(writing).await.unwrap();
    let written = bounded(write()).await.unwrap().unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(2))));
    guard.check().unwrap();
}

/// P14: of many who add to one value at once, on several connections, none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_add_to_one_value() {
    const TASKS: usize = 64;
    let server = start_server();
    let url = prepare(&server).await;
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(connect(&url).await);
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

/// B164: values that have ended are removed, as many as there are, and those that have not are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_values_are_removed() {
    let server = start_server();
    let (_locker, backend) = connect_both(&prepare(&server).await).await;
    let long = Duration::from_secs(60);
    for (of, keep) in [("a", None), ("b", Some(Duration::from_millis(1))), ("c", Some(long))] {
        let change = Change::Put { bytes: of.into(), keep };
        backend.write(write_request(of, None, 1, change)).await.unwrap();
    }
    let names = "SELECT GROUP_CONCAT(name ORDER BY name SEPARATOR ' ') FROM lockfast_values";
    assert_eq!(server.sql(names), "a b c");
    eventually("it has ended", TIME_MAX, async || backend.read(name("b")).await.unwrap().is_none())
        .await;
    server.sql(
        "INSERT INTO lockfast_values WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < 50) SELECT CONCAT('old', n.i, '.', m.i), REPEAT('v', 16), '', 1 FROM n, n m",
    );
    server.sql("UPDATE lockfast_store SET swept_us = 0; CALL lockfast_sweep()");
    assert_eq!(server.sql(names), "a c");
}

/// Writes by a call of another program; what it is answered, and the version that is there if it was
/// not written.
async fn call(
    session: &mut Session,
    expected: Option<Version>,
    id: u8,
    put: &str,
) -> mysql_async::Result<(String, Option<Vec<u8>>)> {
    let expected = expected.map(|version| version.to_string()).unwrap_or_default();
    let call = format!(
        "CALL lockfast_write('{}', 'a', '{expected}', '{}', {put}, 60000000)",
        session.who,
        version(id)
    );
    let row: Option<Row> = session.conn.query_first(call).await?;
    let row = row.unwrap();
    Ok((row.get(1).unwrap(), row.get_opt(4).and_then(|found| found.ok())))
}

/// P9, P14: whatever a session of another program is set to, it writes over what it has seen and
/// nothing else, to the byte and for as long as it said; and not inside of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_programs_write() {
    const PUT: &str = "X'00FF5C27E9'";
    let server = start_server();
    let url = prepare(&server).await;
    let (_locker, backend) = connect_both(&url).await;
    let found_rows = format!("{url}?client_found_rows=true");
    for (set, url) in [
        ("SET time_zone = '+13:00'", &url),
        ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", &url),
        ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", &url),
        ("SET autocommit = 0", &url),
        ("SET completion_type = 'CHAIN'", &url),
        ("SET sql_mode = ''", &url),
        ("SET sql_mode = 'ANSI,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'", &url),
        ("SET sql_safe_updates = 1", &url),
        ("SET character_set_connection = 'latin1', collation_connection = 'latin1_bin'", &url),
        ("DO 0", &found_rows),
    ] {
        let mut session = Session::open(url, 1).await;
        session.conn.query_drop(set).await.unwrap();
        for _ in 0..2 {
            let said = call(&mut session, None, 1, PUT).await.unwrap();
            assert_eq!(said, ("1".to_owned(), None), "{set}");
        }
        let value = backend.read(name("a")).await.unwrap().unwrap();
        assert_eq!((value.version, value.bytes), (version(1), b"\0\xff\\'\xe9".to_vec()), "{set}");
        let left = value.remaining.unwrap();
        assert!((30..=60).contains(&left.as_secs()), "{set}: {left:?}");
        for expected in [None, Some(version(7))] {
            let (code, there) = call(&mut session, expected, 2, "''").await.unwrap();
            assert_eq!((code.as_str(), there), ("0", Some(vec![1; 16])), "{set}");
        }
        let update = write_request("a", Some(version(1)), 3, put(b"two"));
        assert_eq!(backend.write(update).await.unwrap(), WriteOutcome::Written(Some(version(3))));
        assert_eq!(call(&mut session, Some(version(1)), 2, "''").await.unwrap().0, "0", "{set}");
        let removed = call(&mut session, Some(version(3)), 4, "NULL").await.unwrap();
        assert_eq!(removed.0, "1", "{set}");
        assert_eq!(backend.read(name("a")).await.unwrap(), None, "{set}");
    }
    let mut session = Session::open(&url, 1).await;
    session.conn.query_drop("BEGIN; SELECT 1 FROM (SELECT 1) a").await.unwrap();
    let said = call(&mut session, None, 1, PUT).await.unwrap_err().to_string();
    assert!(said.contains("outside of a transaction"), "{said}");
    session.conn.query_drop("ROLLBACK").await.unwrap();
    for odd in ["REPEAT('x', 65537), NULL", "'', -1", "'', 9223372036854775807"] {
        let id = version(1);
        let call = format!("CALL lockfast_write('{}', 'a', '', '{id}', {odd})", session.who);
        let said = session.conn.query_drop(&call).await.unwrap_err().to_string();
        assert!(said.contains("no such request"), "{call}: {said}");
    }
    assert_eq!(stored(&server), "");
}
