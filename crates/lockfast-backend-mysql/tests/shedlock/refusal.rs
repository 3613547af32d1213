//! What is refused, and in which words.

use lockfast::{ErrorKind, Guarantee, Options};
use lockfast_core::Address;

use crate::kit::{check_error, connect, failure, hold, name, try_connect, ttl};
use crate::stage::{MINUTE, NAME, start, url};

/// P11: a table that is missing is told with the statement that makes it, and one that is not ShedLock's
/// with what is wrong with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_shape() {
    let server = start();
    let refused = async |table: &str, words: &[&str]| {
        let url = format!("{}&table={table}", url(&server));
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::InvalidConfig, words);
    };
    let statement = "CREATE TABLE jobs.locks(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3)";
    refused("jobs.locks", &["there is no table jobs.locks", statement]).await;
    let times = "lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL";
    let rest = "locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)";
    let shapes = [
        (
            "a",
            format!("name VARCHAR(64), lock_until DATETIME(3), {rest}"),
            "column locked_at is missing",
        ),
        (
            "b",
            format!("name VARCHAR(64), lock_until BIGINT, locked_at DATETIME(3), {rest}"),
            "lock_until is bigint, not TIMESTAMP(3)",
        ),
        (
            "c",
            format!("name VARCHAR(64), lock_until DATETIME(3), locked_at DATETIME, {rest}"),
            "locked_at does not hold milliseconds",
        ),
        (
            "d",
            format!("name VARCHAR(64), {times}, locked_by VARCHAR(255), UNIQUE (name, lock_until)"),
            "name is no primary key",
        ),
        ("e", format!("name BIGINT, {times}, {rest}"), "name is bigint, not VARCHAR"),
        (
            "f",
            format!("name VARCHAR(64) PRIMARY KEY, {times}, locked_by VARCHAR(40)"),
            "locked_by has room for 40 characters",
        ),
    ];
    for (table, columns, flaw) in shapes {
        server.sql(&format!("CREATE TABLE lockfast.{table} ({columns})"));
        server.sql(&format!("GRANT SELECT ON lockfast.{table} TO locks"));
        refused(table, &[flaw, "it is made by CREATE TABLE"]).await;
    }
    server.sql("CREATE TABLE lockfast.g LIKE lockfast.shedlock");
    refused("g", &["or not for this user"]).await;
    server.sql("GRANT SELECT ON lockfast.g TO locks");
    let locker = connect(&format!("{}&table=g", url(&server))).await;
    let error = failure(&locker, NAME, ttl(MINUTE)).await;
    check_error(&error, ErrorKind::Permission, &["denied"]);
    let locker = connect(&url(&server)).await;
    server.sql("DROP TABLE lockfast.shedlock");
    let error = failure(&locker, NAME, ttl(MINUTE)).await;
    check_error(&error, ErrorKind::InvalidConfig, &["there is no table shedlock"]);
}

/// P11: a name that the column cannot hold is refused before anything is touched; the longest that fits is
/// not. Names that the column takes for one are one lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_does_not_fit() {
    let server = start();
    server.sql(
        "ALTER TABLE lockfast.shedlock CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    );
    let locker = connect(&url(&server)).await;
    let error = failure(&locker, &"é".repeat(65), ttl(MINUTE)).await;
    check_error(&error, ErrorKind::InvalidName, &["65 characters", "64 at most"]);
    assert!(error.is_without_effect());
    assert_eq!(server.sql("SELECT count(*) FROM lockfast.shedlock").trim(), "0");
    let longest = "é".repeat(64);
    let guard = hold(&locker, &longest, ttl(MINUTE)).await;
    assert_eq!(locker.inspect(&name(&longest)).await.unwrap().holders.len(), 1);
    let upper = longest.to_uppercase();
    let seen = locker.inspect(&name(&upper)).await.unwrap();
    assert_eq!(seen.holders[0].fence, Some(guard.fence()), "one row");
    guard.release().await.unwrap();
    server.sql("ALTER TABLE lockfast.shedlock CONVERT TO CHARACTER SET latin1");
    let locker = connect(&url(&server)).await;
    let error = failure(&locker, "日本", ttl(MINUTE)).await;
    check_error(&error, ErrorKind::InvalidName, &["character set"]);
    hold(&locker, NAME, ttl(MINUTE)).await.release().await.unwrap();
}

/// P11: what a row of ShedLock cannot do is refused with the reason, and so is everything about a schema
/// that this mode does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_mode_lacks() {
    let server = start();
    let locker = connect(&url(&server)).await;
    assert_eq!(locker.guarantee(), Guarantee::Efficiency);
    let error = locker.semaphore(NAME, 2).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["one owner", "mode=lease"]);
    let error = locker.watch().await.map(drop).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["no events", "mode=lease to watch"]);
    let floor = Options::default().floor(lockfast::Fence::new(1).unwrap());
    let error = failure(&locker, NAME, floor).await;
    check_error(&error, ErrorKind::Unsupported, &["forgets it"]);
    let address = || Address::parse(&url(&server)).unwrap();
    let error = lockfast_backend_mysql::migrate(address()).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["CREATE TABLE shedlock("]);
    let error = lockfast_backend_mysql::diagnose(address()).await.map(drop).unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["leave out mode=shedlock"]);
}
