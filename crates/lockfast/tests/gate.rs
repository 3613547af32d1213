//! The open step of a gate in a database, on a connection of Lockfast's own.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lockfast::blocking::open_gate;
use lockfast::fence::sql::{Dialect, TableGate};
use lockfast::{ErrorKind, Fence, FencingToken, GateDatabase, LockName};

fn token(lock: &str, fence: u64) -> FencingToken {
    FencingToken { lock: LockName::new(lock).unwrap(), fence: Fence::new(fence).unwrap() }
}

#[test]
fn a_fence_from_before_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("app 100%.db");
    let url = format!("sqlite:{}", file.display()).replace('%', "%25");
    let gate = TableGate::new(Dialect::Sqlite, "a").unwrap();
    let missing = open_gate(&url, &gate, &token("a", 41)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidConfig, "{missing}");
    assert!(!file.exists(), "a database that is not there is not made");

    let database = rusqlite::Connection::open(&file).unwrap();
    let missing = open_gate(&url, &gate, &token("a", 41)).unwrap_err();
    assert!(missing.message().contains(gate.setup()), "{missing}");
    database.execute(gate.setup(), []).unwrap();
    for fence in [41, 41, 43] {
        open_gate(&url, &gate, &token("a", fence)).unwrap();
    }
    let stale = open_gate(&url, &gate, &token("a", 42)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleFence);
    assert_eq!(stale.fence_seen(), Some(Fence::new(43).unwrap()));
    let other = open_gate(&url, &gate, &token("b", 44)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::DifferentLock);
}

/// Somebody else's transaction is over before the fence is judged.
#[test]
fn a_writer_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("app.db");
    let url = format!("sqlite:{}", file.display());
    let gate = TableGate::new(Dialect::Sqlite, "a").unwrap();
    let mut database = rusqlite::Connection::open(&file).unwrap();
    database.execute(gate.setup(), []).unwrap();
    let transaction = database.transaction().unwrap();
    transaction.execute("INSERT INTO lockfast_fences VALUES ('a', 50)", []).unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| open_gate(&url, &gate, &token("a", 49)));
        std::thread::sleep(std::time::Duration::from_millis(100));
        transaction.commit().unwrap();
        let late = late.join().unwrap().unwrap_err();
        assert_eq!(late.fence_seen(), Some(Fence::new(50).unwrap()), "{late}");
    });
}

#[tokio::test]
async fn what_is_no_database_for_gates_is_told() {
    for url in ["", "app.db", "redis://me:secret@h", "embedded:x", "sqlite", "me:secret@h/db"] {
        let error = GateDatabase::at(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
        assert!(error.message().contains("sqlite:PATH"), "{error}");
        assert!(!error.message().contains("secret"), "{error}");
    }
    let database = GateDatabase::at("sqlite:app.db").unwrap();
    assert_eq!(database.dialect(), Dialect::Sqlite);
    let gate = TableGate::new(Dialect::Postgres, "a").unwrap();
    let error = database.open(&gate, &token("a", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("dialect"), "{error}");
}
