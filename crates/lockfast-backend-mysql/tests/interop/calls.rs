//! Programs that do not use Lockfast share a lock with it by calling the same procedures. Here it
//! is the server's own command line client, both ways round.

use std::time::Duration;

use crate::kit::{Mysql, bounded, connect, eventually, hold, prepare, refusal, start_server, ttl};
use lockfast::{Locker, Moment};
use lockfast_faults::lateness::Lateness;
use mysql_async::prelude::Queryable as _;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);
/// What a client and a holder call themselves: any digits that nobody else uses or knows.
const CLIENT: &str = "0000000000AA0123456789ABCDEF0123";
const HOLDER: &str = "0000000000AA00000000000000000001";
const ENROL: &str =
    "CALL lockfast_enrol('0000000000AA0123456789ABCDEF0123', 'script', 'h', 7, '');";

/// What the command line client is told, a column.
fn run(server: &Mysql, call: &str, column: usize) -> String {
    let said = server.sql(&format!("{ENROL} {call}"));
    let line = said.lines().last().unwrap_or_default();
    line.split('\t').nth(column).unwrap_or_default().replace("\\t", " ").replace("\\n", "")
}

fn take(server: &Mysql, ttl: Duration) -> String {
    let call = format!(
        "CALL lockfast_take('{CLIENT}', '{NAME}', '{HOLDER}', 0, {}, 0, 0, 0)",
        ttl.as_micros()
    );
    run(server, &call, 1)
}

fn give(server: &Mysql) -> String {
    run(server, &format!("CALL lockfast_give('{CLIENT}', '{NAME}', '{HOLDER}')"), 1)
}

async fn start() -> (Mysql, Locker) {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    (server, locker)
}

/// The other program holds, Lockfast is refused, waits and is woken by the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_holder_hands_over() {
    let (server, locker) = start().await;
    let granted = take(&server, TTL);
    let fence: u64 =
        granted.strip_prefix("1 G ").unwrap_or_else(|| panic!("{granted}")).parse().unwrap();
    let seen = refusal(&locker, NAME).await;
    assert_eq!(seen.lock.holders[0].label.as_ref().unwrap().program, "script");
    assert_eq!(seen.lock.holders[0].fence.unwrap().get(), fence);
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { (hold(&locker, NAME, ttl(TTL).wait(TTL)).await, Moment::now()) }
    });
    eventually("one waits", TTL, async || refusal(&locker, NAME).await.lock.waiting == 1).await;
    let (machine, released) = (Lateness::watch(), Moment::now());
    assert_eq!(give(&server), "1 1");
    let (guard, taken) = bounded(waiter).await.unwrap();
    assert!(guard.fence().get() > fence);
    machine.check("to wake", Duration::from_secs(2), released, taken);
}

/// Lockfast holds, the other program is refused, and gets it after the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_program_is_refused() {
    let (server, locker) = start().await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let refused = take(&server, TTL);
    assert!(refused.starts_with("1 T 0;0."), "{refused}");
    assert_eq!(give(&server), "1 0", "only the holder");
    assert!(guard.check().is_ok());
    guard.release().await.unwrap();
    assert!(take(&server, TTL).starts_with("1 G "));
}

/// P1: nothing depends on how a driver has rows counted: with CLIENT_FOUND_ROWS, as some do, a lock
/// that is taken is taken, and only its holder gives it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_driver_counts_rows_otherwise() {
    let (server, locker) = start().await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let options = mysql_async::Opts::from_url(&server.url()).unwrap();
    let options = mysql_async::OptsBuilder::from_opts(options).client_found_rows(true);
    let mut other = mysql_async::Conn::new(options).await.unwrap();
    other.query_drop(ENROL).await.unwrap();
    let takes = format!(r#"[["{NAME}","{HOLDER}",0,6000000,0,0,0]]"#);
    let calls = [
        (format!("CALL lockfast_take('{CLIENT}', '{NAME}', '{HOLDER}', 0, 6000000, 0, 0, 0)"), "T"),
        (format!("CALL lockfast_work('{CLIENT}', '', '{takes}', 1, '', 0)"), "T"),
        (format!("CALL lockfast_give('{CLIENT}', '{NAME}', '{HOLDER}')"), "0"),
    ];
    for (call, expected) in calls {
        let (_, said, _, _): (u64, String, String, u64) =
            other.query_first(&call).await.unwrap().unwrap();
        let word = said.trim().split('\t').nth(1);
        assert_eq!(word, Some(expected), "{call}: {said}");
    }
    assert!(guard.check().is_ok());
    assert!(matches!(bounded(guard.release()).await.unwrap(), lockfast::Released::Released));
}

/// The other program dies: the lock is free after its ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lease_expires() {
    let (server, locker) = start().await;
    assert!(take(&server, Duration::from_secs(1)).starts_with("1 G "));
    let (machine, start) = (Lateness::watch(), Moment::now());
    let guard = hold(&locker, NAME, ttl(TTL).wait(TTL)).await;
    machine.check("to end", Duration::from_secs(2), start, Moment::now());
    guard.release().await.unwrap();
}
