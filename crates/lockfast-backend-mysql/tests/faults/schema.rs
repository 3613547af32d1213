//! A schema of another version, and rows that cannot be.

use std::time::Duration;

use lockfast::{ErrorKind, Migration, Mode};
use lockfast_core::Address;

use crate::kit::foreign::{Session, holder};
use crate::kit::{
    check_error, connect, documented_rights, eventually, failure, hold, prepare, refusal,
    start_server, try_connect, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);
/// Makes a schema of an older version of one of ours: a column and a procedure are not there yet, and
/// another procedure, which nobody else calls, does something else. It is the maker's, because MySQL lets
/// only an administrator drop what belongs to one.
const AGE: &str = "UPDATE lockfast_store SET version = 0, serves = 0; \
    ALTER TABLE lockfast_locks DROP offered; \
    DROP PROCEDURE lockfast_downgrade; \
    DROP PROCEDURE lockfast_settle; \
    CREATE DEFINER = maker@'%' PROCEDURE lockfast_settle(IN lock_name VARBINARY(255), INOUT heir \
    BINARY(16)) DO 0";

async fn migrate(url: &str) -> lockfast::Result<Migration> {
    lockfast_backend_mysql::migrate(Address::parse(url).unwrap()).await
}

/// B35: a schema of the version before is not changed by whoever connects, because others may use
/// it, and the error says what to run. `migrate` upgrades it under those who use it, also when an
/// earlier try was cut off: what they hold and wait for stays, and so do their rights to what is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_version_before() {
    let server = start_server();
    let url = prepare(&server).await;
    let maker = server.url_as("maker", Some("word"));
    let mut sessions = Vec::new();
    for (number, name, mode, said) in [
        (1, NAME, 0, "G\t"),
        (2, NAME, 0, "W\t"),
        (3, "shared", -1, "G\t"),
        (4, "shared", -1, "G\t"),
    ] {
        let mut session = Session::open(&url, number).await;
        assert!(session.take(name, mode, TTL * 10, true).await.starts_with(said), "{number}");
        sessions.push(session);
    }
    server.sql(AGE);
    let schema = || {
        server.sql(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = \
             'lockfast' ORDER BY 1, 2; SHOW PROCEDURE STATUS WHERE Db = 'lockfast'; SELECT version, \
             serves FROM lockfast_store",
        )
    };
    let before = schema();
    for url in [&url, &maker, &server.url()] {
        let error = try_connect(url).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidConfig, &["version 0", "lockfast migrate"]);
    }
    assert_eq!(schema(), before);
    server.sql("REVOKE CREATE ROUTINE ON lockfast.* FROM maker");
    check_error(&migrate(&maker).await.unwrap_err(), ErrorKind::Permission, &["CREATE ROUTINE"]);
    assert_ne!(schema(), before, "the try was cut off before it did anything");
    server.sql("GRANT CREATE ROUTINE ON lockfast.* TO maker");
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Changed { from: Some(0), to: 1 });
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Unchanged { version: 1 });

    assert_eq!(sessions[0].give(NAME).await, "1");
    assert_eq!(server.sql("SELECT HEX(holder) FROM lockfast_locks WHERE crowd = 0"), holder(2, 1));
    let locker = connect(&url).await;
    assert_eq!(refusal(&locker, NAME).await.lock.holders.len(), 1);
    assert_eq!(refusal(&locker, "shared").await.lock.holders.len(), 2);
    assert_eq!(sessions[1].give(NAME).await, "1");
    // What is new needs a right that is new.
    let lock = locker.rwlock(NAME).unwrap();
    let guard = lock.write().await.unwrap();
    let error = lock.downgrade(&guard).await.unwrap_err();
    check_error(
        &error,
        ErrorKind::Permission,
        &["lockfast_downgrade", "README", "nothing was done"],
    );
    assert_eq!(guard.mode(), Mode::Exclusive);
    server.sql(&documented_rights("lockfast").0);
    lock.downgrade(&guard).await.unwrap();
}

/// B35: a schema of the next version is used as long as it serves this one, and not beyond. The
/// same is true of those that were made during development, which had the numbers 2 to 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_next_version() {
    let server = start_server();
    let url = prepare(&server).await;
    server.sql("UPDATE lockfast_store SET version = 2, serves = 1");
    hold(&connect(&url).await, NAME, ttl(TTL)).await.release().await.unwrap();
    assert_eq!(migrate(&server.url()).await.unwrap(), Migration::Unchanged { version: 2 });
    for version in 2..=4 {
        server.sql(&format!("UPDATE lockfast_store SET version = {version}, serves = 2"));
        let said = format!("version {version}");
        let errors =
            [try_connect(&url).await.unwrap_err(), migrate(&server.url()).await.unwrap_err()];
        for error in errors {
            let words = [said.as_str(), "newer Lockfast", "another database"];
            check_error(&error, ErrorKind::InvalidConfig, &words);
        }
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
