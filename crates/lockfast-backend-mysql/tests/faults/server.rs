//! The server fails: connections are killed, it crashes, rows are locked, data is lost.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{ErrorKind, Locker, Moment, Released};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, ClientId, ConnectContext, Label, LossReporter,
    RenewOutcome, RenewRequest, Wait,
};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::server::Server as _;

use crate::kit::{
    Mysql, bounded, check_error, connect, eventually, failure, hold, hold_detached, prepare,
    refusal, request, setup, start_server, statements, try_connect, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// Lockfast's connections, whoever they are at the moment.
const OURS: &str = "FROM information_schema.processlist WHERE db = 'lockfast' AND id <> \
    CONNECTION_ID()";

async fn start() -> (Mysql, Locker, Locker) {
    let server = start_server();
    let url = prepare(&server).await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    (server, first, second)
}

fn wait_behind(locker: &Locker) -> tokio::task::JoinHandle<lockfast::Guard> {
    let locker = locker.clone();
    tokio::spawn(async move { hold(&locker, NAME, ttl(TTL).wait(TTL * 5)).await })
}

async fn until_one_waits(locker: &Locker) {
    eventually("one waits", TTL * 2, async || refusal(locker, NAME).await.lock.waiting == 1).await;
}

/// P1, P7: an administrator's KILL of every connection costs nothing: leases go on, waiters keep
/// waiting and are woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_killed() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let fence = guard.fence().get();
    let waiter = wait_behind(&second);
    until_one_waits(&first).await;
    let ids = || server.sql(&format!("SELECT id {OURS}"));
    eventually("all are connected", TTL, async || ids().lines().count() == 4).await;
    let ids = ids();
    for id in ids.lines() {
        // It may have ended by itself.
        server.try_sql(&format!("KILL CONNECTION {id}"));
    }
    wait_for_renewal(&guard, TTL).await;
    until_one_waits(&first).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
}

/// P1, P4: a server that crashes and comes back has every lease and every fence it told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_crashes() {
    let (mut server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL * 4)).await;
    let fence = guard.fence().get();
    let waiter = wait_behind(&second);
    until_one_waits(&first).await;
    server.restart();
    wait_for_renewal(&guard, TTL * 4).await;
    until_one_waits(&first).await;
    refusal(&second, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > fence);
}

/// P4: when all rows are lost, as by the promotion of a replica that had none of them, fences rise
/// nevertheless, and who held is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_lost() {
    let (server, first, second) = start().await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    server.sql(
        "DELETE FROM lockfast_locks; DELETE FROM lockfast_claims; DELETE FROM lockfast_clients; \
         UPDATE lockfast_store SET floor = 0",
    );
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = crate::kit::loss(&guard, TTL).await;
    assert!(matches!(cause, lockfast::LossCause::Taken { .. }), "{cause:?}");
}

/// P11: a server with all connections in use is told apart, and served again once there is one.
/// The user sees: `Unreachable`, with the server's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_left() {
    let server = setup().option("--max-connections=10").start();
    let url = prepare(&server).await;
    server.sql("ALTER USER locks WITH MAX_USER_CONNECTIONS 1");
    let locker = connect(&url).await;
    // The one that would listen is not to be had: it works, only slower.
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["max_user_connections"]);
    let waiter = wait_behind(&locker);
    until_one_waits(&locker).await;
    guard.release().await.unwrap();
    bounded(waiter).await.unwrap().release().await.unwrap();
    server.sql("ALTER USER locks WITH MAX_USER_CONNECTIONS 0");
    connect(&url).await;
}

/// P11: a server that only reads, as a replica does, is the wrong one (L58).
/// The user sees: `WrongNode`; leases end by their deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_only_reads() {
    let (server, first, _) = start().await;
    server.sql("SET GLOBAL read_only = 1");
    let error = failure(&first, NAME, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::WrongNode, &["read-only"]);
    server.sql("SET GLOBAL read_only = 0");
    let guard = hold(&first, NAME, ttl(TTL).retries(10)).await;
    assert!(guard.check().is_ok());
}

/// P4: rows of idle locks are cleaned away, and their fences rise nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_rows_are_swept() {
    let (server, first, _) = start().await;
    let before = hold(&first, NAME, ttl(TTL)).await;
    before.release().await.unwrap();
    // Only the rows can tell that fence: no clock is as far.
    let ahead = 1_u64 << 52;
    server.sql(&format!("UPDATE lockfast_locks SET fence = {ahead}, until_us = 1"));
    let rows = || server.sql("SELECT COUNT(*) FROM lockfast_locks").trim().to_owned();
    let sweep = || server.sql("UPDATE lockfast_store SET swept_us = 0; CALL lockfast_sweep()");
    sweep();
    assert_eq!(rows(), "1", "the floor is raised one sweep before");
    sweep();
    assert_eq!(rows(), "0");
    let after = hold(&first, NAME, ttl(TTL)).await;
    assert!(after.fence().get() > ahead, "{}", after.fence());
    // One that is held, and one that somebody waits for, stay.
    sweep();
    sweep();
    assert_eq!(rows(), "1");
}

/// P9, P10: ten thousand locks are held over two connections and renewed in a few statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_held_over_two_connections() {
    let server = start_server();
    let address = Address::parse(&prepare(&server).await).unwrap();
    let context = ConnectContext {
        runtime: tokio::runtime::Handle::current(),
        client: ClientId::random().unwrap(),
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    let client = context.client;
    let backend = lockfast_backend_mysql::connect(address, context).await.unwrap();
    let ttl = Duration::from_secs(60);
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..10_000 {
        let request = request(client, &format!("lock-{at}"), ttl, Wait::No);
        let backend = Arc::clone(&backend);
        tasks.spawn(async move {
            let AcquireRequest { name, holder, lock_delay, .. } = request.clone();
            let outcome = backend.acquire(request).await.unwrap();
            assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
            RenewRequest { name, holder, ttl, lock_delay }
        });
    }
    let leases = bounded(tasks.join_all()).await;
    let before = statements(&server);
    let renewed = bounded(backend.renew(leases)).await.unwrap();
    assert!(renewed.iter().all(|it| matches!(it, RenewOutcome::Renewed)));
    let spent = statements(&server) - before;
    assert!(spent <= 20, "{spent} statements for 10 000 renewals and a look at the count");
    assert_eq!(server.sql(&format!("SELECT COUNT(*) {OURS}")).trim(), "2");
}

/// P10: a hand-over takes two statements: one that releases and grants, one that queues again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_two_statements() {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    let (rounds, waiters) = (20, 16);
    let before = statements(&server);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let lock = locker.mutex(NAME).unwrap().ttl(TTL * 5);
        tasks.spawn(async move {
            for _ in 0..rounds {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    bounded(tasks.join_all()).await;
    let spent = statements(&server) - before;
    let most = 2 * rounds * waiters + 20;
    assert!(spent <= most, "{spent} statements for {} hand-overs", rounds * waiters);
}

/// P10: so does one between processes, because a listener that is woken goes on listening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_between_processes_takes_two_statements() {
    let server = start_server();
    let url = prepare(&server).await;
    let (rounds, waiters) = (15, 24);
    let mut lockers = Vec::new();
    for _ in 0..waiters {
        lockers.push(connect(&url).await);
    }
    let listeners = "SELECT SUM(IS_USED_LOCK(CONCAT('lockfast:l:', HEX(who))) IS NOT NULL) FROM \
                     lockfast_clients";
    eventually("all listen", TTL, async || server.sql(listeners).trim() == waiters.to_string())
        .await;
    let before = statements(&server);
    let mut tasks = tokio::task::JoinSet::new();
    for locker in lockers {
        tasks.spawn(async move {
            for _ in 0..rounds {
                hold(&locker, NAME, ttl(TTL * 5).wait_forever()).await.release().await.unwrap();
            }
        });
    }
    bounded(tasks.join_all()).await;
    let spent = statements(&server) - before;
    // Whoever is late confirms what it was given, a listener that is woken at a bad moment is asked
    // again, and everybody looks and listens now and then.
    let most = 3 * rounds * waiters + 100;
    assert!(spent <= most, "{spent} statements for {} hand-overs", rounds * waiters);
}

/// P9: a holder that dies frees its lock after its ttl, and a detached lease is no exception.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_ends() {
    let (_server, first, second) = start().await;
    hold_detached(&first, NAME, Duration::from_secs(1)).await;
    refusal(&second, NAME).await;
    let (machine, asked) = (Lateness::watch(), Moment::now());
    let waiter = wait_behind(&second);
    let _next = bounded(waiter).await.unwrap();
    machine.check("to end", Duration::from_secs(2), asked, Moment::now());
}
