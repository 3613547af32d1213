//! PgBouncer gives each transaction another connection, and restarts.

use std::time::Duration;

use lockfast::{ErrorKind, Moment, Released};

use crate::kit::{
    PgBouncer, ROLE, bounded, check_error, connect, encode, hold, queue_for, start, try_connect,
    ttl, url, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// P1, P3, P10: a pooler that restarts costs nobody a lease or a place in the queue.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart() {
    let postgres = start();
    let mut pooler = PgBouncer::start(&postgres, 4);
    let url = pooler.url_as(ROLE, "postgres");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    pooler.restart();
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// L56: an advisory lock would stay with a session that others get.
/// The user sees: `Unsupported` with the reason, before anything was locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_refused() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 4);
    let url = format!("{}?mode=advisory", pooler.url_as(ROLE, "postgres"));
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["pooler", "mode=lease"]);
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

/// P10: with a direct way to listen, hand-overs are pushed although commands go through a pooler.
/// The user sees: nothing; a way to listen that leads elsewhere is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_way_to_listen() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 4);
    let through =
        |listen: &str| format!("{}?listen={}", pooler.url_as(ROLE, "postgres"), encode(listen));
    let pushed = through(&url(&postgres));
    let (one, two) = (connect(&pushed).await, connect(&pushed).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    let polls = "SELECT count(*) FROM lockfast.clients WHERE by_mail";
    assert_eq!(postgres.sql(polls), "0");
    let sent = Moment::now();
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    drop(bounded(waiter).await.unwrap());
    assert!(Moment::now().since(sent) < Duration::from_secs(1));
    let error = try_connect(&through(&pooler.url_as(ROLE, "postgres"))).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["listen", "pooler"]);
    postgres.create_database("other");
    let elsewhere = url(&postgres).replace("/postgres", "/other");
    let error = try_connect(&through(&elsewhere)).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["listen", "another database"]);
}

/// A pooler's role with another isolation level cannot be helped from here.
/// The user sees: `InvalidConfig` with the statement that helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_isolation_level() {
    let postgres = start();
    postgres.sql(&format!("ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'"));
    let pooler = PgBouncer::start(&postgres, 4);
    let locker = connect(&pooler.url_as(ROLE, "postgres")).await;
    let error = crate::kit::failure(&locker, NAME).await;
    check_error(&error, ErrorKind::InvalidConfig, &["ALTER ROLE"]);
}

/// B34: a pooler that refuses whatever it does not know when a connection starts, as Amazon's does with
/// 0A000: nothing but who we are, and what every driver says, is told then.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_special_is_said_when_connecting() {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://app@{}/locks?sslmode=disable", listener.local_addr().unwrap());
    let connecting = tokio::spawn(async move { try_connect(&url).await.map(drop) });
    let (mut stream, _) = listener.accept().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut said = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut said).await.unwrap();
    drop((stream, listener));
    let said = String::from_utf8_lossy(&said[4..]).into_owned();
    let names: Vec<_> = said.split('\0').step_by(2).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["client_encoding", "user", "database", "application_name"], "{said:?}");
    assert!(connecting.await.unwrap().is_err());
}
