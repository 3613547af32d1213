//! Waiters that cannot be woken, or are dead.

use std::time::Duration;

use lockfast::Moment;

use crate::kit::{MariaDb, bounded, connect, connections, eventually, hold, prepare, refusal, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// P10: where the server does not let anybody wake a waiter, it looks twice a second: slower, but
/// nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_may_wake() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    // The listener then waits as the user who calls it, whom the maker of the schema may not
    // interrupt.
    mariadb.sql(
        "ALTER PROCEDURE lockfast_listen SQL SECURITY INVOKER; GRANT ALL ON lockfast.* TO locks",
    );
    let (first, second) = (connect(&url).await, connect(&url).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move { hold(&second, NAME, ttl(TTL).wait(TTL * 3)).await });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    let released = Moment::now();
    guard.release().await.unwrap();
    let _next = bounded(waiter).await.unwrap();
    let took = Moment::now().since(released);
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

/// P10: a waiter whose listening connection was killed is woken over the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_is_killed() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    let first = connect(&url).await;
    let second = connect(&url).await;
    eventually("it listens", TTL, async || connections(&mariadb).1 != 0).await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move {
        let guard = hold(&second, NAME, ttl(TTL).wait(TTL * 3)).await;
        (guard, Moment::now(), second)
    });
    eventually("one waits", TTL, async || refusal(&first, NAME).await.lock.waiting == 1).await;
    let (_, listener) = connections(&mariadb);
    mariadb.sql(&format!("KILL CONNECTION {listener}"));
    eventually("it listens again", TTL, async || {
        let (_, next) = connections(&mariadb);
        next != 0 && next != listener
    })
    .await;
    let released = Moment::now();
    guard.release().await.unwrap();
    let (_next, granted, _locker) = bounded(waiter).await.unwrap();
    let took = granted.since(released);
    assert!(took < Duration::from_secs(1), "{took:?}");
}
