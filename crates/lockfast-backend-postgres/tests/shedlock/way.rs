//! The way to the server fails.

use lockfast::{LockName, Options};
use lockfast_conformance::way::{NAME, Way};
use lockfast_faults::proxy::Link;

use crate::kit::{ROLE, connect, eventually, hold, session, ttl};
use crate::{MINUTE, SECOND, start, url, url_at};

/// P1, P3: cuts and silence that end in time cost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_ends() {
    let postgres = start();
    let way = Way::start(postgres.address(), url_at, lockfast_backend_postgres::connect).await;
    way.outlive(Link::Close).await;
    way.outlive(Link::Reset).await;
    way.outlive_silence().await;
}

/// P7: the reply to an acquisition is lost: one holder, one fence, and nobody waits for himself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_grant() {
    let postgres = start();
    let way = Way::start(postgres.address(), url_at, lockfast_backend_postgres::connect).await;
    way.repeat_a_lost_grant().await;
    assert_eq!(postgres.sql("SELECT count(*) FROM shedlock"), "1");
}

/// P5: an acquisition that waits in the server for somebody's transaction, on a connection that is cut, is
/// given up: it takes nothing when that transaction ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_takes_nothing() {
    let postgres = start();
    // Sooner than the server gives up to wait for the row.
    let hasty = |address| format!("{}&request_timeout=300ms", url_at(address));
    let connecting = lockfast_backend_postgres::connect;
    let way = Way::start(postgres.address(), hasty, connecting).await;
    hold(&way.near, NAME, ttl(SECOND)).await.release().await.unwrap();
    let blocker = session(postgres.address(), ROLE).await;
    blocker.batch_execute("BEGIN; SELECT * FROM shedlock FOR UPDATE").await.unwrap();
    let job = way.far.mutex(NAME).unwrap().with_options(Options::default().ttl(MINUTE));
    let acquiring = tokio::spawn(async move { job.try_acquire().await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("it waits for the row", MINUTE, async || postgres.sql(waits) == "1").await;
    // The server does not see that whoever asked is gone.
    way.proxy.set_open(Link::HalfOpen);
    acquiring.abort();
    let far = way.far.clone();
    let name = LockName::new(NAME).unwrap();
    eventually("a new connection", MINUTE, async || far.inspect(&name).await.is_ok()).await;
    way.far.settled().await;
    blocker.batch_execute("COMMIT").await.unwrap();
    tokio::time::sleep(SECOND).await;
    let next = connect(&url(&postgres)).await;
    hold(&next, NAME, ttl(SECOND)).await.release().await.unwrap();
}
