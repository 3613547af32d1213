//! The way to the server fails.

use lockfast::{LockName, Options};
use lockfast_conformance::way::{NAME, Way};
use lockfast_faults::proxy::Link;
use mysql_async::prelude::Queryable as _;

use crate::kit::{connect, eventually, hold, ttl};
use crate::stage::{MINUTE, SECOND, start, url, url_at};

/// P1, P3: cuts and silence that end in time cost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_ends() {
    let server = start();
    let way = Way::start(server.address(), url_at, lockfast_backend_mysql::connect).await;
    way.outlive(Link::Close).await;
    way.outlive(Link::Reset).await;
    way.outlive_silence().await;
}

/// P7: the reply to an acquisition is lost: one holder, one fence, and nobody waits for himself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_grant() {
    let server = start();
    let way = Way::start(server.address(), url_at, lockfast_backend_mysql::connect).await;
    way.repeat_a_lost_grant().await;
    assert_eq!(server.sql("SELECT count(*) FROM lockfast.shedlock").trim(), "1");
}

/// P5: an acquisition that waits in the server for somebody's transaction, on a connection that is cut, is
/// given up: it takes nothing when that transaction ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_takes_nothing() {
    let server = start();
    // Sooner than the server gives up to wait for the row.
    let hasty = |address| format!("{}&request_timeout=300ms", url_at(address));
    let connecting = lockfast_backend_mysql::connect;
    let way = Way::start(server.address(), hasty, connecting).await;
    hold(&way.near, NAME, ttl(SECOND)).await.release().await.unwrap();
    let mut blocker = mysql_async::Conn::from_url(server.url()).await.unwrap();
    blocker.query_drop("BEGIN").await.unwrap();
    blocker.query_drop("SELECT * FROM lockfast.shedlock FOR UPDATE").await.unwrap();
    let job = way.far.mutex(NAME).unwrap().with_options(Options::default().ttl(MINUTE));
    let acquiring = tokio::spawn(async move { job.try_acquire().await });
    let waits = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    eventually("it waits for the row", MINUTE, async || server.sql(waits).trim() == "1").await;
    // The server does not see that whoever asked is gone.
    way.proxy.set_open(Link::HalfOpen);
    acquiring.abort();
    let far = way.far.clone();
    let name = LockName::new(NAME).unwrap();
    eventually("a new connection", MINUTE, async || far.inspect(&name).await.is_ok()).await;
    // A release has to wait for the row, too.
    blocker.query_drop("COMMIT").await.unwrap();
    way.far.settled().await;
    tokio::time::sleep(SECOND).await;
    let next = connect(&url(&server)).await;
    hold(&next, NAME, ttl(SECOND)).await.release().await.unwrap();
}
