//! A schema of another version, and rows that cannot be.

use std::time::Duration;

use lockfast::{ErrorKind, Migration, Mode, WriteOutcome};
use lockfast_core::Address;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

use crate::kit::foreign::{Session, holder};
use crate::kit::{
    check_error, connect, connect_both, documented_rights, eventually, failure, hold, name,
    prepare, put, refusal, start_server, try_connect, ttl, version, write_request,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);
/// The tables as version 1 made them, with a holder, two who share and one who waits.
const VERSION_1: &str = include_str!("version_1.sql");
/// The schemas as versions 2 and 3 made them, one statement after the other.
const LATER: [(u32, &str); 2] =
    [(2, include_str!("version_2.sql")), (3, include_str!("version_3.sql"))];

async fn migrate(url: &str) -> lockfast::Result<Migration> {
    lockfast_backend_mysql::migrate(Address::parse(url).unwrap()).await
}

/// B35: a schema of the version before is not changed by whoever connects, because others may use
/// it, and the error says what to run. `migrate` upgrades it, also when an earlier try was cut
/// off; who held a lock then still holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_version_before() {
    let server = start_server();
    let (rights, maker_rights) = documented_rights("lockfast");
    server.sql("CREATE USER locks IDENTIFIED BY 'word'; CREATE USER maker IDENTIFIED BY 'word'");
    server.sql(VERSION_1);
    server.sql(&format!("GRANT EXECUTE ON lockfast.* TO locks; {maker_rights}"));
    let (url, maker) = (server.url_as("locks", Some("word")), server.url_as("maker", Some("word")));
    for url in [&url, &maker, &server.url()] {
        let error = try_connect(url).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidConfig, &["version", "lockfast migrate"]);
    }
    assert_eq!(server.sql("SELECT version FROM lockfast_store"), "1");
    // An earlier try got so far.
    server.sql("ALTER TABLE lockfast_store ADD serves INT NOT NULL DEFAULT 0 AFTER version");
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Changed { from: Some(1), to: 4 });
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Unchanged { version: 4 });
    server.sql(&rights);
    let locker = connect(&url).await;
    let held = refusal(&locker, "held").await.lock;
    assert_eq!(held.holders[0].fence.unwrap().get(), 41);
    let shared = refusal(&locker, "shared").await.lock;
    assert_eq!((shared.holders.len(), shared.waiting), (2, 0));
    // What they give up goes on as ever.
    server.sql("UPDATE lockfast_locks SET until_us = 1; UPDATE lockfast_claims SET until_us = 1");
    for name in ["held", "shared"] {
        assert!(hold(&locker, name, ttl(TTL)).await.fence().get() > 41);
    }
    // The program of version 1 is told that it is too old.
    let said = server.sql("CALL lockfast_enrol('0000000000AA', 'old', 'h', 1, '')");
    assert_eq!(said.split('\t').next(), Some("4"));
}

/// B35: a schema of version 2 or 3 becomes one of this version under a program that uses it: what that
/// holds and waits for stays, and so do its rights to all that it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_later_version_in_use() {
    for (version, schema) in LATER {
        upgrade_in_use(version, schema).await;
    }
}

async fn upgrade_in_use(from: u32, schema: &str) {
    let server = start_server();
    let (rights, maker_rights) = documented_rights("lockfast");
    server.sql("CREATE USER locks IDENTIFIED BY 'word'; CREATE USER maker IDENTIFIED BY 'word'");
    server.sql(&maker_rights);
    let (url, maker) = (server.url_as("locks", Some("word")), server.url_as("maker", Some("word")));
    let mut making = Conn::new(Opts::from_url(&maker).unwrap()).await.unwrap();
    for statement in schema.split("\n//\n") {
        making.query_drop(statement).await.unwrap();
    }
    let added = match from {
        2 => ["downgrade", "read", "write"].as_slice(),
        _ => &["downgrade"],
    };
    let is_new = |grant: &&str| added.iter().any(|name| grant.contains(&format!("_{name} ")));
    let earlier = rights.split_inclusive(';').filter(|grant| !is_new(grant));
    server.sql(&earlier.collect::<String>());
    let (mut first, mut second) = (Session::open(&url, 1).await, Session::open(&url, 2).await);
    assert!(first.take(NAME, 0, TTL * 10, false).await.starts_with("G\t"));
    assert!(second.take(NAME, 0, TTL * 10, true).await.starts_with("W\t"));
    let said = format!("version {from}");
    for url in [&url, &maker] {
        let error = try_connect(url).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidConfig, &[&said, "lockfast migrate"]);
    }
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Changed { from: Some(from), to: 4 });
    assert_eq!(first.give(NAME).await, "1");
    assert_eq!(server.sql("SELECT HEX(holder) FROM lockfast_locks"), holder(2, 1));
    let said = second.take(NAME, 0, TTL * 10, false).await;
    assert!(said.starts_with("G\t"), "{said}");
    // Locks need no right that is new.
    let (locker, backend) = connect_both(&url).await;
    assert_eq!(refusal(&locker, NAME).await.lock.holders.len(), 1);
    assert_eq!(second.give(NAME).await, "1");
    let lock = locker.rwlock(NAME).unwrap();
    let guard = lock.write().await.unwrap();
    let error = lock.downgrade(&guard).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["lockfast_downgrade", "README"]);
    assert_eq!(guard.mode(), Mode::Exclusive, "nothing has changed");
    let error = backend.read(name(NAME)).await.err();
    assert_eq!(error.map(|error| error.kind()), (from == 2).then_some(ErrorKind::Permission));
    server.sql(&rights);
    lock.downgrade(&guard).await.unwrap();
    let written = backend.write(write_request(NAME, None, 1, put(b"one"))).await.unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(1))));
    assert_eq!(backend.read(name(NAME)).await.unwrap().unwrap().bytes, b"one");
}

/// B35: a schema of the next version is used as long as it serves this one, and not beyond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_next_version() {
    let server = start_server();
    let url = prepare(&server).await;
    server.sql("UPDATE lockfast_store SET version = 5, serves = 4");
    hold(&connect(&url).await, NAME, ttl(TTL)).await.release().await.unwrap();
    assert_eq!(migrate(&server.url()).await.unwrap(), Migration::Unchanged { version: 5 });
    server.sql("UPDATE lockfast_store SET serves = 5");
    for error in [try_connect(&url).await.unwrap_err(), migrate(&server.url()).await.unwrap_err()] {
        check_error(&error, ErrorKind::InvalidConfig, &["newer Lockfast"]);
    }
}

/// Rows with values that no procedure writes: the caller is told, and nothing is granted to two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_be() {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    server.sql("UPDATE lockfast_locks SET fence = -5");
    assert!(hold(&locker, NAME, ttl(TTL)).await.fence().get() > 0);
    // It says that somebody waits, and nobody does: it is free all the same.
    server.sql("UPDATE lockfast_locks SET crowd = 9, waiting = 9, asleep = 4, holder = NULL");
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    server.sql("UPDATE lockfast_store SET floor = -1");
    hold(&locker, "another", ttl(TTL)).await.release().await.unwrap();
    server.sql("DELETE FROM lockfast_store");
    let error = failure(&locker, "third", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::InvalidConfig, &["lockfast_store", "lockfast migrate"]);
}

/// Mail that makes no sense, cut off or of a kind that is not known, is passed by: nobody is granted
/// anything, and what comes after it is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_that_makes_no_sense() {
    let server = start_server();
    let url = prepare(&server).await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move { hold(&second, NAME, ttl(TTL).wait(TTL * 4)).await });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    for body in [
        "''",
        "'G'",
        "CONCAT('G\t', HEX(holder))",
        "CONCAT('G\t', HEX(holder), '\tfence\t1\t1\tx')",
        "CONCAT('G\t', HEX(holder), '\t99999999999999999999\t1\t1\tx')",
        "CONCAT('G\t', HEX(holder), '\t7\t1\t-1\tx')",
        "CONCAT('H\t', HEX(holder), '\t-1\tlong')",
        "'R\tnobody\twhy'",
        "'E\t1\tz'",
        "UNHEX('FF00FE0A47')",
        "REPEAT('x', 4096)",
    ] {
        server.sql(&format!(
            "INSERT INTO lockfast_mail (client, sent_us, body) SELECT client, since_us, {body} FROM \
             lockfast_claims"
        ));
    }
    let mails = || server.sql("SELECT COUNT(*) FROM lockfast_mail WHERE reading_us = 0");
    eventually("all are read", TTL, async || mails() == "0").await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    crate::kit::bounded(waiter).await.unwrap().release().await.unwrap();
}
