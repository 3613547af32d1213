//! Waiters that cannot be woken, or are dead.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Moment, WatchKind};
use lockfast_faults::lateness::Lateness;

use crate::kit::foreign::Session;
use crate::kit::{
    bounded, connect, connections, eventually, hold, prepare, refusal, start_server, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// P10: where the server does not let anybody wake a waiter, it looks twice a second: slower, but
/// nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_may_wake() {
    let server = start_server();
    let url = prepare(&server).await;
    // The listener then waits as the user who calls it, whom the maker of the schema may not
    // interrupt.
    server.sql(
        "ALTER PROCEDURE lockfast_listen SQL SECURITY INVOKER; GRANT ALL ON lockfast.* TO locks",
    );
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move { hold(&second, NAME, ttl(TTL).wait(TTL * 3)).await });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    let machine = Lateness::watch();
    let released = Moment::now();
    guard.release().await.unwrap();
    let _next = bounded(waiter).await.unwrap();
    machine.check("to look", Duration::from_millis(1500), released, Moment::now());
}

/// B266, P7: a change is made before anybody is woken, so it is told as one where that fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_wakes_is_gone() {
    let server = start_server();
    let url = prepare(&server).await;
    let (mut first, mut second) = (Session::open(&url, 1).await, Session::open(&url, 2).await);
    assert!(first.take(NAME, 0, TTL, false).await.starts_with("G\t"));
    assert!(second.take(NAME, -1, TTL, true).await.starts_with("W\t"));
    server.sql("DROP PROCEDURE lockfast_wake");
    assert_eq!(first.downgrade(NAME).await, "D");
    assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_claims WHERE stage = 1"), "2");
}

/// P10: a waiter whose listening connection was killed is woken over the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_is_killed() {
    let server = start_server();
    let url = prepare(&server).await;
    let first = connect(&url).await;
    let second = connect(&url).await;
    eventually("it listens", TTL, async || connections(&server).1 != 0).await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move {
        let guard = hold(&second, NAME, ttl(TTL).wait(TTL * 3)).await;
        (guard, Moment::now(), second)
    });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    let (_, listener) = connections(&server);
    server.sql(&format!("KILL CONNECTION {listener}"));
    eventually("it listens again", TTL, async || {
        let (_, next) = connections(&server);
        next != 0 && next != listener
    })
    .await;
    let machine = Lateness::watch();
    let released = Moment::now();
    guard.release().await.unwrap();
    let (_next, granted, _locker) = bounded(waiter).await.unwrap();
    machine.check("to wake", Duration::from_secs(1), released, granted);
}

/// P11: a listener that is woken all the time, also while it reads, hears of every event once and
/// in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_is_woken_while_it_reads() {
    const CYCLES: usize = 100;
    let server = Arc::new(start_server());
    let url = prepare(&server).await;
    let (worker, watcher) = (connect(&url).await, connect(&url).await);
    let mut events = watcher.watch().await.unwrap();
    let who = server.sql("SELECT HEX(client) FROM lockfast_clients WHERE watches_us > 0");
    let who = who.trim().to_owned();
    eventually("it listens", TTL, async || {
        let listener = server.sql(&format!(
            "SELECT IS_USED_LOCK(CONCAT('lockfast:l:', HEX(who))) FROM lockfast_clients WHERE client = \
             UNHEX('{who}')"
        ));
        listener.trim() != "NULL"
    })
    .await;
    server.sql(
        "DELIMITER //\nCREATE TABLE pester (id INT PRIMARY KEY)// INSERT INTO pester VALUES (1)// CREATE \
         PROCEDURE pester(who CHAR(12)) WHILE EXISTS (SELECT * FROM pester) DO CALL lockfast_wake(who); \
         DO SLEEP(0.01 * RAND()); END WHILE//",
    );
    let pester = tokio::task::spawn_blocking({
        let server = Arc::clone(&server);
        move || server.sql(&format!("CALL pester('{who}')"))
    });
    let mut told = Vec::new();
    for _ in 0..CYCLES {
        let guard = hold(&worker, NAME, ttl(TTL)).await;
        let fence = Some(guard.fence());
        told.extend([(WatchKind::Granted, fence), (WatchKind::Released, fence)]);
        guard.release().await.unwrap();
    }
    server.sql("DELETE FROM pester");
    bounded(pester).await.unwrap();
    for expected in told {
        let event = bounded(events.next()).await.unwrap();
        assert_eq!((event.kind, event.fence), expected);
    }
}

/// B6, P1: mail that comes twice, the second time when the offer has long been taken, does not
/// give the lock back: nobody else gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_is_mailed_twice() {
    let server = start_server();
    let url = prepare(&server).await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let second = second.clone();
        async move { hold(&second, NAME, ttl(TTL).wait(TTL * 3)).await }
    });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap();
    let mails = || server.sql("SELECT COUNT(*) FROM lockfast_mail").trim().to_owned();
    for lasts_us in [1_500_000, 3_600_000_000_u64] {
        server.sql(&format!(
            "INSERT INTO lockfast_mail (client, sent_us, body) SELECT LEFT(holder, 6), since_us, \
             CONCAT_WS('\t', 'G', HEX(holder), fence, since_us, {lasts_us}, name) FROM \
             lockfast_locks WHERE name = '{NAME}'"
        ));
        // It is deleted when the client comes back for more, so after it was heard.
        eventually("it is read", TTL, async || {
            server.sql(&format!(
                "SELECT HEX(LEFT(holder, 6)) INTO @who FROM lockfast_locks WHERE name = '{NAME}'; \
                 CALL lockfast_rouse(CONCAT(@who, REPEAT('0', 20)))"
            ));
            mails() == "0"
        })
        .await;
        // Whatever it made the client send was sent before this.
        hold(&second, "another", ttl(TTL)).await.release().await.unwrap();
        assert!(next.check().is_ok(), "{:?}", next.status());
        let seen = refusal(&first, NAME).await;
        assert_eq!(seen.lock.holders[0].fence.unwrap(), next.fence());
    }
    assert!(matches!(next.release().await.unwrap(), lockfast::Released::Released));
}
