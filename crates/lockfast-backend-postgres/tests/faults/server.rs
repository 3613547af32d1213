//! The server ends connections, crashes, or another takes its place.

use std::time::Duration;

use lockfast::{ErrorKind, LeaseStatus, Moment, Options, Released};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::server::Server as _;

use crate::kit::{
    SCHEMA, Setup, bounded, check_error, connect, eventually, failure, hold, prepare, queue_for,
    refusal, session, start, try_connect, ttl, url, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// P1, P10: an administrator who ends all connections costs nobody a lease, a place in the queue
/// or a wake-up.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_connections() {
    let postgres = start();
    let (first, second) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = queue_for(&second, NAME).await;
    let ours = "FROM pg_stat_activity WHERE application_name = 'lockfast'";
    // The one that made the schema may still be closing its own.
    let count = format!("SELECT count(*) {ours}");
    eventually("two for each", TTL, async || postgres.sql(&count) == "4").await;
    postgres.sql(&format!("SELECT pg_terminate_backend(pid) {ours}"));
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.check().is_ok());
}

/// P1, P4: leases and fences outlive a crash of the server.
/// The user sees: `Jeopardy` for a while; `Unreachable` for a new lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_and_recovery() {
    let mut postgres = prepare(Setup::new().durable());
    let (first, second) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&first, NAME, ttl(TTL * 3)).await;
    let fence = guard.fence();
    postgres.kill();
    check_error(&failure(&second, "other").await, ErrorKind::Unreachable, &[]);
    postgres.restart();
    eventually("it is back", TTL * 2, async || second.list("", None, 10).await.is_ok()).await;
    refusal(&second, NAME).await;
    wait_for_renewal(&guard, TTL * 3).await;
    eventually("held", TTL, async || guard.status() == LeaseStatus::Held).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > fence.get());
}

/// P4: a standby that lacks the last grants takes over; its fences are higher all the same, and
/// the lost holder is refused.
/// The user sees: the loss of the lease; it was granted by a server that is not there any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_standby_takes_over() {
    let mut primary = start();
    let standby = primary.start_standby();
    let locker = connect(&url(&primary)).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    primary.wait_for_sync(&standby);
    standby.cut_off();
    let mut lost = 0;
    for _ in 0..20 {
        let guard = hold(&locker, NAME, Options::default().ttl(TTL)).await;
        lost = guard.fence().get();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
    primary.kill();
    standby.promote();
    let held: String = standby.sql(&format!("SELECT max(fence) FROM {SCHEMA}.locks"));
    assert!(held.parse::<u64>().unwrap() < lost, "the standby has not seen the last grants");
    let locker = connect(&url(&standby)).await;
    let next = hold(&locker, NAME, Options::default().ttl(TTL).wait(TTL * 3)).await;
    assert!(next.fence().get() > lost, "{} after {lost}", next.fence());
}

/// B36, P10: a commit with messages holds one lock for the whole server until it is done. One that
/// takes its time (here: for ever, because it waits for a standby) does not keep others from giving
/// their locks back.
/// The user sees: nothing; the next waiter finds out when it looks, if it cannot be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_takes_long_to_send() {
    let setup = Setup::new().set("synchronous_standby_names", "nobody");
    let postgres = prepare(setup.set("synchronous_commit", "local"));
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&one, NAME, ttl(TTL * 10)).await;
    let waiter = queue_for(&two, NAME).await;
    let sender = session(postgres.address(), "postgres").await;
    let send = "SET synchronous_commit = on; CREATE TABLE anything (); NOTIFY anything";
    let sending = tokio::spawn(async move { sender.batch_execute(send).await });
    let stuck = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("it is stuck", TTL * 3, async || postgres.sql(stuck) == "1").await;
    let (machine, from) = (Lateness::watch(), Moment::now());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    machine.check("to give back", Duration::from_secs(1), from, Moment::now());
    assert!(bounded(waiter).await.unwrap().check().is_ok());
    assert!(!sending.is_finished());
}

/// L58, C52: a standby takes no locks and is not migrated; a server that becomes one is left.
/// The user sees: `WrongNode`, to be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads() {
    let primary = start();
    let standby = primary.start_standby();
    let error = try_connect(&url(&standby)).await.unwrap_err();
    check_error(&error, ErrorKind::WrongNode, &["standby", "primary"]);
    let error = crate::kit::migrate(&standby.url()).unwrap_err();
    check_error(&error, ErrorKind::WrongNode, &["standby"]);
    let locker = connect(&url(&primary)).await;
    primary.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    primary.sql("SELECT pg_reload_conf()");
    eventually("it only reads", TTL, async || {
        let mutex = locker.mutex("other").unwrap().with_options(ttl(TTL));
        matches!(mutex.try_acquire().await, Err(error) if error.kind() == ErrorKind::WrongNode)
    })
    .await;
    primary.sql("ALTER SYSTEM RESET default_transaction_read_only");
    primary.sql("SELECT pg_reload_conf()");
    eventually("it writes again", TTL * 2, async || {
        let mutex = locker.mutex("other").unwrap().with_options(ttl(TTL));
        mutex.try_acquire().await.is_ok()
    })
    .await;
}
