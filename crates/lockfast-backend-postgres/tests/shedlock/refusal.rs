//! What is refused, and in which words.

use lockfast::{ErrorKind, Guarantee, Options};
use lockfast_core::Address;

use crate::kit::{PgBouncer, ROLE, check_error, connect, failure, name, try_connect};
use crate::{NAME, start, url};

/// P11: a table that is missing is told with the statement that makes it, and one that is not ShedLock's
/// with what is wrong with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_shape() {
    let postgres = start();
    let refused = async |table: &str, words: &[&str]| {
        let url = format!("{}&table={table}", url(&postgres));
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidConfig, words);
    };
    let statement =
        "CREATE TABLE jobs.locks(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL";
    refused("jobs.locks", &["there is no table jobs.locks", statement]).await;
    let rest = "locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)";
    let shapes = [
        ("a", format!("name VARCHAR(64), lock_until TIMESTAMP, {rest}"), "locked_at is missing"),
        (
            "b",
            format!("name VARCHAR(64), lock_until TIMESTAMPTZ, locked_at TIMESTAMP, {rest}"),
            "lock_until is timestamp with time zone",
        ),
        (
            "c",
            format!("name VARCHAR(64), lock_until TIMESTAMP, locked_at TIMESTAMP(0), {rest}"),
            "locked_at does not hold milliseconds",
        ),
        (
            "d",
            "name TEXT, lock_until TIMESTAMP, locked_at TIMESTAMP, locked_by TEXT".to_owned(),
            "name is no primary key",
        ),
        (
            "e",
            format!("name BIGINT, lock_until TIMESTAMP, locked_at TIMESTAMP, {rest}"),
            "name is bigint, not VARCHAR",
        ),
        (
            "f",
            "name TEXT PRIMARY KEY, lock_until TIMESTAMP, locked_at TIMESTAMP, \
             locked_by VARCHAR(40)"
                .to_owned(),
            "locked_by has room for 40 characters",
        ),
    ];
    for (table, columns, flaw) in shapes {
        postgres.sql(&format!("CREATE TABLE {table} ({columns})"));
        refused(table, &[flaw, "it is made by CREATE TABLE"]).await;
    }
    postgres.sql("CREATE TABLE g (LIKE shedlock INCLUDING ALL)");
    let locker = connect(&format!("{}&table=g", url(&postgres))).await;
    let error = failure(&locker, NAME).await;
    check_error(&error, ErrorKind::Permission, &["privileges"]);
    let locker = connect(&url(&postgres)).await;
    postgres.sql("DROP TABLE shedlock");
    let error = failure(&locker, NAME).await;
    check_error(&error, ErrorKind::InvalidConfig, &["there is no table shedlock"]);
}

/// P11: a name that the column has no room for is refused before anything is touched; the longest that
/// fits is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_does_not_fit() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let error = failure(&locker, &"é".repeat(65)).await;
    check_error(&error, ErrorKind::InvalidName, &["65 characters", "64 at most"]);
    assert!(error.is_without_effect());
    assert_eq!(postgres.sql("SELECT count(*) FROM shedlock"), "0");
    let longest = "é".repeat(64);
    let guard = locker.mutex(&longest).unwrap().acquire().await.unwrap();
    assert_eq!(locker.inspect(&name(&longest)).await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
}

/// P11: what a row of ShedLock cannot do is refused with the reason, and so is everything about a schema
/// that this mode does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_mode_lacks() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    assert_eq!(locker.guarantee(), Guarantee::Efficiency);
    let error = locker.rwlock(NAME).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["one owner", "mode=lease"]);
    let error = locker.watch().await.map(drop).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["no events", "mode=lease to watch"]);
    let error = locker.leader(NAME).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["no line of waiters", "several times a second"]);
    let floor = Options::default().floor(lockfast::Fence::new(1).unwrap());
    let error = locker.mutex(NAME).unwrap().with_options(floor).try_acquire().await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["forgets it"]);
    let address = || Address::parse(&url(&postgres)).unwrap();
    let error = lockfast_backend_postgres::migrate(address()).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["CREATE TABLE shedlock("]);
    let error = lockfast_backend_postgres::diagnose(address()).await.map(drop).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["leave out mode=shedlock"]);
    let pooler = PgBouncer::start(&postgres, 4);
    let url = format!("{}?mode=shedlock", pooler.url_as(ROLE, "postgres"));
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["pooler"]);
}
