//! Others have the rows, or an administrator interrupts a statement: it is rolled back and
//! repeated, and nobody is told. No acquisition here is tried again by the engine.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lockfast::{Guard, Locker, Options};

use crate::kit::{
    Flavor, Mysql, bounded, connect, connections, eventually, hold, prepare, start_server, ttl,
};

const TTL: Duration = Duration::from_secs(20);

fn once() -> Options {
    ttl(TTL).wait(TTL).retries(0)
}

/// Somebody else at the server, who runs statements until it is told to end.
struct Session<'a> {
    server: &'a Mysql,
    mark: &'static str,
    thread: std::thread::ScopedJoinHandle<'a, (bool, String)>,
}

impl<'a> Session<'a> {
    /// Runs `sql` and stays in it, or waits before its last part.
    fn start(
        scope: &'a std::thread::Scope<'a, '_>,
        server: &'a Mysql,
        mark: &'static str,
        sql: String,
    ) -> Self {
        let thread = scope.spawn(move || server.try_sql(&sql));
        Self { server, mark, thread }
    }

    fn id(&self) -> Option<u64> {
        let said = self.server.sql(&format!(
            "SELECT id FROM information_schema.processlist WHERE info LIKE '%{}%' AND id <> \
             CONNECTION_ID()",
            self.mark
        ));
        said.trim().parse().ok()
    }

    async fn until_there(&self) {
        eventually("it has its rows", TTL, async || self.id().is_some()).await;
    }

    /// Ends it; what it has is free again.
    fn end(self) {
        if let Some(id) = self.id() {
            self.server.try_sql(&format!("KILL CONNECTION {id}"));
        }
        let _ = self.thread.join();
    }
}

/// The transaction that waits for a row and since when, if one does. The server shows what it
/// showed before to whoever asks again within a tenth of a second.
fn waiting(server: &Mysql) -> Option<String> {
    std::thread::sleep(Duration::from_millis(150));
    let said = server.sql(
        "SELECT CONCAT(trx_id, trx_wait_started) FROM information_schema.innodb_trx WHERE \
         trx_state = 'LOCK WAIT'",
    );
    Some(said.trim().to_owned()).filter(|id| !id.is_empty())
}

async fn until_waiting(server: &Mysql) -> String {
    let mut found = None;
    eventually("it waits for a row", TTL, async || {
        found = waiting(server);
        found.is_some()
    })
    .await;
    found.unwrap_or_default()
}

async fn until_another_waits(server: &Mysql, than: &str) {
    eventually("it was rolled back and repeated", TTL, async || {
        waiting(server).is_some_and(|id| id != than)
    })
    .await;
}

/// Has the row of a lock until it is ended.
fn locking(name: &str, mark: &str) -> String {
    format!(
        "BEGIN; SELECT 1 FROM lockfast_locks WHERE name = '{name}' FOR UPDATE; DO SLEEP(60 + \
         LENGTH('{mark}'))"
    )
}

async fn use_once(locker: &Locker, name: &str) {
    hold(locker, name, once()).await.release().await.unwrap();
}

/// P7: a statement that is killed half-way leaves nothing behind and is repeated; and so is one
/// that waited for a row for longer than the server allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_is_killed_and_one_times_out() {
    let server = start_server();
    let locker = connect(&prepare(&server).await).await;
    use_once(&locker, "nightly").await;
    for is_killed in [true, false] {
        std::thread::scope(|scope| {
            let blocker = Session::start(scope, &server, "first", locking("nightly", "first"));
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    blocker.until_there().await;
                    let locker = locker.clone();
                    let taking =
                        tokio::spawn(async move { hold(&locker, "nightly", once()).await });
                    let before = until_waiting(&server).await;
                    if is_killed {
                        let (commands, _) = connections(&server);
                        server.sql(&format!("KILL QUERY {commands}"));
                    }
                    until_another_waits(&server, &before).await;
                    blocker.end();
                    let guard = bounded(taking).await.unwrap();
                    assert!(guard.check().is_ok());
                    guard.release().await.unwrap();
                });
            });
        });
    }
}

/// Asks, so that it is sent with the next call, and does not wait.
async fn ask<'a>(
    taking: Pin<Box<dyn Future<Output = lockfast::Result<Guard>> + Send + 'a>>,
) -> Pin<Box<dyn Future<Output = lockfast::Result<Guard>> + Send + 'a>> {
    let mut taking = taking;
    std::future::poll_fn(|context| {
        assert!(taking.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    taking
}

/// P7: a call that the server ends because of a deadlock is repeated, all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_repeated() {
    let server = start_server();
    let locker = connect(&prepare(&server).await).await;
    for name in ["a", "b", "c"] {
        use_once(&locker, name).await;
    }
    server.sql(
        "CREATE TABLE heavy (id INT PRIMARY KEY); CREATE TABLE many WITH RECURSIVE numbers AS (SELECT 1 \
         AS id UNION ALL SELECT id + 1 FROM numbers WHERE id < 1000) SELECT id FROM numbers",
    );
    // Whoever has changed less is the one whom the server ends, so this one changes much.
    let circle = "BEGIN; INSERT INTO heavy SELECT * FROM many; SELECT 1 FROM \
        lockfast_locks WHERE name = 'b' FOR UPDATE; DO GET_LOCK('gate', 60 + LENGTH('rival')); \
        SELECT 1 FROM lockfast_locks WHERE name = 'a' FOR UPDATE; COMMIT";
    let deadlocks = || {
        let said = server.sql(match crate::FLAVOR {
            Flavor::MariaDb => "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'",
            Flavor::MySql => {
                "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
            }
        });
        said.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    std::thread::scope(|scope| {
        let start = |mark, sql: String| Session::start(scope, &server, mark, sql);
        let gate =
            start("keeper", "DO GET_LOCK('gate', 0); DO SLEEP(LENGTH('keeper') + 60)".into());
        let first = start("first", locking("c", "first"));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                gate.until_there().await;
                first.until_there().await;
                let rival = start("rival", circle.into());
                rival.until_there().await;
                // The connection is busy with this one, so the next two go together.
                let lock = |name| locker.mutex(name).unwrap().with_options(once());
                let (a, b, c) = (lock("a"), lock("b"), lock("c"));
                let c = ask(Box::pin(c.acquire())).await;
                until_waiting(&server).await;
                let (a, b) = (ask(Box::pin(a.acquire())).await, ask(Box::pin(b.acquire())).await);
                first.end();
                drop(bounded(c).await.unwrap());
                until_waiting(&server).await;
                let before = deadlocks();
                gate.end();
                let (a, b) = tokio::join!(bounded(a), bounded(b));
                assert!(a.unwrap().check().is_ok() && b.unwrap().check().is_ok());
                assert_eq!(deadlocks(), before + 1);
                let (succeeded, said) = rival.thread.join().unwrap();
                assert!(succeeded, "the other was ended: {said}");
            });
        });
    });
}
