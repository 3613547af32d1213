//! What is in the database although Lockfast did not write it: it is told, nothing is granted by
//! it, and other locks do not suffer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use kit::child::Other;
use kit::{Asker, acquire, bounded, name, poll_once, released, request};
use lockfast_core::{
    Error, ErrorKind, Mode, Query, ReleaseRequest, RenewOutcome, RenewRequest, RevokeRequest, Wait,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// Runs only in a process that a test has started.
#[test]
fn other_process() {
    kit::child::serve();
}

fn fresh() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", dir.path().join("store").display());
    (dir, url)
}

fn change(dir: &TempDir, sql: &str) {
    let db = Connection::open(dir.path().join("store/lockfast.db")).unwrap();
    db.execute_batch(sql).unwrap();
}

/// What the lock x may look like in the table.
const IMPOSSIBLE: [&str; 16] = [
    "stage = 9",
    "stage = -1",
    "stage = 'granted'",
    "mode = -2",
    "mode = 4294967296",
    "mode = x'00'",
    "fence = 0",
    "fence = -1",
    "fence = 9007199254740992",
    "fence = 1.5",
    "holder = x'00'",
    "holder = 'sixteen letters!'",
    "client = x'00112233445566'",
    "ends_ns = -1",
    "ttl_ns = 'long'",
    "ticket = 9223372036854775807",
];

#[track_caller]
fn assert_told(error: &Error, change: &str) {
    assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{change}: {error}");
    assert!(error.to_string().contains("at lock \"x\""), "{change}: {error}");
}

/// B68, P1, P11: the lock is neither granted nor lost, whoever asks, and other locks go on.
#[tokio::test]
async fn a_row_of_an_impossible_value_is_told_and_harms_no_other_lock() {
    for flaw in IMPOSSIBLE {
        let (dir, url) = fresh();
        let me = Asker::connect(&url).await;
        let x = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
        let y = acquire(&me, "y", Mode::Exclusive, Wait::No).await;
        change(&dir, &format!("UPDATE claim SET {flaw} WHERE name = 'x'"));
        for wait in [Wait::No, Wait::Forever] {
            let error = bounded(me.backend.acquire(request(&me, "x", wait))).await.unwrap_err();
            assert_told(&error, flaw);
        }
        let renewal = |held: &kit::Held| RenewRequest {
            name: held.name.clone(),
            holder: held.holder,
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
        };
        let renewed = me.backend.renew(vec![renewal(&x), renewal(&y)]).await.unwrap();
        let [RenewOutcome::Unanswered(error), RenewOutcome::Renewed] = &renewed[..] else {
            panic!("{flaw}: {renewed:?}");
        };
        assert_told(error, flaw);
        let release = ReleaseRequest { name: name("x"), holder: x.holder };
        assert_told(&me.backend.release(release).await.unwrap_err(), flaw);
        let revoke = RevokeRequest { name: name("x"), expect_fence: None, reason: "y".into() };
        assert_told(&me.backend.revoke(revoke).await.unwrap_err(), flaw);
        assert_told(&me.backend.inspect(Query::Name(name("x"))).await.unwrap_err(), flaw);
        released(&me, &y).await;
        // Whoever comes and goes meets it too.
        let other = Asker::connect(&url).await;
        let z = acquire(&other, "z", Mode::Exclusive, Wait::No).await;
        released(&other, &z).await;
    }
}

/// B68: a dead client's rows are looked at by whoever comes next, which must not fail for one that
/// cannot be read.
#[tokio::test]
async fn a_dead_client_with_an_impossible_row_harms_no_other_lock() {
    let (dir, url) = fresh();
    let mut holder = Other::start(&url);
    holder.ask("acquire x 60000 0");
    holder.ask("acquire y 60000 0");
    change(&dir, "UPDATE claim SET stage = 9 WHERE name = 'x'");
    holder.kill();
    let me = Asker::connect(&url).await;
    acquire(&me, "z", Mode::Exclusive, Wait::No).await;
    acquire(&me, "y", Mode::Exclusive, Wait::Forever).await;
    let error = me.backend.acquire(request(&me, "x", Wait::No)).await.unwrap_err();
    assert_told(&error, "stage = 9");
}

/// B68: who waits for another lock waits on.
#[tokio::test]
async fn only_those_who_wait_for_the_lock_are_told() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let other = Asker::connect(&url).await;
    acquire(&other, "x", Mode::Exclusive, Wait::No).await;
    let y = acquire(&other, "y", Mode::Exclusive, Wait::No).await;
    let mut for_x = me.backend.acquire(request(&me, "x", Wait::Forever));
    let mut for_y = me.backend.acquire(request(&me, "y", Wait::Forever));
    assert!(poll_once(&mut for_x).await.is_none());
    assert!(poll_once(&mut for_y).await.is_none());
    kit::eventually("both wait", async || {
        let views =
            me.backend.inspect(Query::Prefix { prefix: String::new(), after: None, limit: 9 });
        views.await.unwrap().iter().map(|view| view.waiting).sum::<usize>() == 2
    })
    .await;
    change(&dir, "UPDATE claim SET stage = 9 WHERE name = 'x' AND stage = 1");
    assert_told(&bounded(for_x).await.unwrap_err(), "stage = 9");
    assert!(poll_once(&mut for_y).await.is_none());
    released(&other, &y).await;
    kit::granted(bounded(for_y).await);
}

/// B68: what was done to the whole store is told as what it is.
#[tokio::test]
async fn a_store_without_its_tables_is_told() {
    for (sql, text) in [
        ("DELETE FROM meta", "did not write"),
        ("UPDATE meta SET watchers = -1", "below zero"),
        ("UPDATE meta SET boot_id = x'00'", "did not write"),
        ("DROP TABLE meta", "tables or records"),
        ("DROP TABLE claim", "tables or records"),
        ("ALTER TABLE claim RENAME COLUMN stage TO scene", "tables or records"),
        ("PRAGMA user_version = 0", "lost its tables"),
        ("DROP TABLE meta; DROP TABLE claim; DROP TABLE client; DROP TABLE watcher", "tables"),
    ] {
        let (dir, url) = fresh();
        let me = Asker::connect(&url).await;
        change(&dir, sql);
        if !sql.starts_with("PRAGMA") {
            let error = me.backend.acquire(request(&me, "x", Wait::No)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{sql}: {error}");
        }
        let newcomer = match Asker::try_connect(&url).await {
            Err(error) => error,
            Ok(late) => late.backend.acquire(request(&late, "x", Wait::No)).await.unwrap_err(),
        };
        assert_eq!(newcomer.kind(), ErrorKind::CorruptRecord, "{sql}: {newcomer}");
        assert!(newcomer.to_string().contains(text), "{sql}: {newcomer}");
    }
}

/// B68: another program's database is not written to, whatever number it has for its version.
#[tokio::test]
async fn a_foreign_database_is_left_alone() {
    for version in [0, 1, 2] {
        let (dir, url) = fresh();
        let store = dir.path().join("store");
        std::fs::DirBuilder::new().mode(0o700).create(&store).unwrap();
        let path = store.join("lockfast.db");
        let db = Connection::open(&path).unwrap();
        let sql = format!(
            "PRAGMA user_version = {version}; CREATE TABLE claim (name TEXT); \
             INSERT INTO claim VALUES ('theirs')"
        );
        db.execute_batch(&sql).unwrap();
        drop(db);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = Asker::try_connect(&url).await.err().expect("it was accepted");
        assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{version}: {error}");
        assert!(error.to_string().contains("not a Lockfast database"), "{version}: {error}");
        assert!(std::fs::read(&path).unwrap() == before, "{version}: it was changed");
        assert!(!Path::new(&store.join("lockfast.db-wal")).exists());
    }
}
