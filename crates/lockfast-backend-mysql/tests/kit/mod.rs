//! What the tests of this store share: short ways to hold, lose and be refused a lock, and a user
//! with the rights that the README names. The servers are those of the conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use lockfast::{
    Address, Attempt, DetachedLease, Error, ErrorKind, Guard, Locker, LossCause, Mode, Options,
    Refusal, Result,
};

pub use lockfast_conformance::fault::certificate;
pub use lockfast_conformance::fault::mariadb::{MariaDb, Setup};
pub use lockfast_conformance::fault::wait::{eventually, wait_until};

/// The URL of a user who may only use the schema, made by one who may only make it.
pub async fn prepare(mariadb: &MariaDb) -> String {
    mariadb.sql(
        "CREATE USER locks IDENTIFIED BY 'word'; GRANT EXECUTE ON lockfast.* TO locks; \
         CREATE USER maker IDENTIFIED BY 'word'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, \
         INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON lockfast.* TO maker",
    );
    let maker = Address::parse(&mariadb.url_as("maker", Some("word"))).unwrap();
    lockfast_backend_mysql::migrate(maker).await.unwrap();
    url_at(mariadb.address())
}

/// The same user's URL at another address.
pub fn url_at(address: SocketAddr) -> String {
    format!("mysql://locks:word@{address}/lockfast")
}

/// How many statements clients have sent so far.
pub fn statements(mariadb: &MariaDb) -> u64 {
    let said = mariadb.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
    said.split_whitespace().last().unwrap().parse().unwrap()
}

/// The connections of the user `locks`, the one for commands and the one that listens.
pub fn connections(mariadb: &MariaDb) -> (u64, u64) {
    let id = |kind: &str| {
        let said = mariadb.sql(&format!(
            "SELECT IS_USED_LOCK(CONCAT('lockfast:{kind}:', HEX(client))) FROM \
             lockfast.lockfast_clients ORDER BY seen_us DESC LIMIT 1"
        ));
        said.trim().parse().unwrap_or(0)
    };
    (id("a"), id("l"))
}

/// Nothing in these tests takes longer than this on a busy machine unless it hangs.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// Connects to a store on MariaDB.
pub async fn connect(url: &str) -> Locker {
    try_connect(url).await.unwrap_or_else(|error| panic!("cannot connect: {error}"))
}

/// Connects to a store on MariaDB, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    let address = Address::parse(url)?;
    let connecting = Locker::builder()
        .connect_with(move |context| lockfast_backend_mysql::connect(address, context));
    bounded(connecting).await
}

/// A lease of this length, and one try.
pub fn ttl(ttl: Duration) -> Options {
    Options::default().ttl(ttl).no_wait()
}

/// Takes a free lock.
pub async fn hold(locker: &Locker, name: &str, options: Options) -> Guard {
    let mutex = locker.mutex(name).unwrap().with(options).unwrap();
    bounded(mutex.acquire()).await.unwrap_or_else(|error| panic!("not granted: {error}"))
}

/// Takes a free lock for so long and no longer, as a holder does that dies at once.
pub async fn hold_detached(locker: &Locker, name: &str, span: Duration) -> DetachedLease {
    let lock = locker.lock(name, Mode::Exclusive).unwrap().with(ttl(span)).unwrap();
    bounded(lock.acquire_detached()).await.unwrap()
}

/// Who has a lock that is taken.
pub async fn refusal(locker: &Locker, name: &str) -> Refusal {
    let mutex = locker.mutex(name).unwrap();
    match bounded(mutex.try_acquire()).await.unwrap() {
        Attempt::Taken(refusal) => refusal,
        Attempt::Granted(guard) => panic!("granted with fence {}", guard.fence()),
    }
}

/// The error that a try to take a lock meets.
pub async fn failure(locker: &Locker, name: &str, options: Options) -> Error {
    let mutex = locker.mutex(name).unwrap().with(options).unwrap();
    match bounded(mutex.try_acquire()).await {
        Err(error) => error,
        Ok(Attempt::Taken(refusal)) => panic!("taken instead of an error: {refusal}"),
        Ok(Attempt::Granted(guard)) => panic!("granted with fence {}", guard.fence()),
    }
}

/// Checks what the user sees: the kind of error, and that its message has these words.
pub fn check_error(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for word in words {
        assert!(message.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in: {message}");
    }
}

/// How a lease was lost, which must happen within `bound`.
pub async fn loss(guard: &Guard, bound: Duration) -> LossCause {
    let lost = tokio::time::timeout(bound, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("not lost within {bound:?}, it is {:?}", guard.status()))
}

/// Waits for a renewal that is sent after now, while the lease is held all the time.
pub async fn wait_for_renewal(guard: &Guard, bound: Duration) {
    let seen = guard.deadline();
    eventually("a renewal", bound, async || {
        assert!(guard.check().is_ok(), "{:?}", guard.status());
        guard.deadline().since(seen) > Duration::ZERO
    })
    .await;
}

/// Waits for a future that must not hang.
pub async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIME_MAX, future).await.expect("it takes too long")
}
