//! Sharing an advisory lock with programs that know nothing of Lockfast, both ways round, and what
//! a session lock promises. The other program is psql.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use kit::{
    Postgres, ROLE, SCHEMA, TIME_MAX, bounded, check_error, connect, eventually, hold, loss,
    queue_for, refusal, start, ttl, url,
};
use lockfast::{ErrorKind, Guarantee, Locker, LossCause, Mode, Options, Released, RevokeOutcome};
use lockfast_core::Address;
use lockfast_faults::proxy::{Link, Proxy};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);

/// A session of psql.
struct Psql {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Psql {
    fn start(postgres: &Postgres) -> Self {
        let mut child = Command::new("psql")
            .args(["-qAtX", "-U", ROLE, "-p", &postgres.port().to_string(), "-h"])
            .arg(postgres.socket_directory())
            .arg("postgres")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql; run: cargo xtask setup");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql};").unwrap();
    }

    fn ask(&mut self, sql: &str) -> String {
        self.send(sql);
        self.read()
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn advisory(postgres: &Postgres) -> Locker {
    connect(&format!("{}?mode=advisory", url(postgres))).await
}

/// Lockfast holds, and the other program waits in the server's queue; then the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_and_lockfast_keep_each_other_out() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let mut psql = Psql::start(&postgres);
    for (name, key) in [(NAME, "hashtextextended('nightly', 0)"), ("4711", "4711")] {
        let guard = hold(&locker, name, ttl(TTL)).await;
        assert_eq!(psql.ask(&format!("SELECT pg_try_advisory_lock({key})")), "f");
        psql.send(&format!("SELECT 'got' FROM pg_advisory_lock({key})"));
        let lock = guard.name().clone();
        eventually("psql waits", TIME_MAX, async || {
            locker.inspect(&lock).await.unwrap().waiting == 1
        })
        .await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        assert_eq!(psql.read(), "got");
        let refusal = refusal(&locker, name).await;
        assert!(refusal.lock.holders[0].label.is_none(), "psql is not Lockfast: {refusal:?}");
        let waiter = queue_for(&locker, name).await;
        assert_eq!(psql.ask(&format!("SELECT pg_advisory_unlock({key})")), "t");
        let next = bounded(waiter).await.unwrap();
        assert!(next.fence().get() > 0);
        next.release().await.unwrap();
    }
}

/// P15: a reader in psql that waits comes in when a writer becomes a reader, and a writer in psql when
/// both have left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_waits_for_a_writer_that_becomes_a_reader() {
    const KEY: &str = "hashtextextended('nightly', 0)";
    let postgres = start();
    let locker = advisory(&postgres).await;
    let lock = locker.rwlock(NAME).unwrap();
    let guard = lock.write().await.unwrap();
    let mut sessions = [Psql::start(&postgres), Psql::start(&postgres)];
    for (count, shared) in [(1, "_shared"), (2, "")] {
        sessions[count - 1].send(&format!("SELECT 'got' FROM pg_advisory_lock{shared}({KEY})"));
        let waits = async || locker.inspect(guard.name()).await.unwrap().waiting == count;
        eventually("psql waits", TIME_MAX, waits).await;
    }
    let [mut reader, mut writer] = sessions;
    bounded(lock.downgrade(&guard)).await.unwrap();
    assert_eq!(reader.read(), "got");
    let view = locker.inspect(guard.name()).await.unwrap();
    let modes: Vec<_> = view.holders.iter().map(|holder| holder.mode).collect();
    assert_eq!((modes, view.waiting), (vec![Mode::Shared; 2], 1));
    assert_eq!(reader.ask(&format!("SELECT pg_advisory_unlock_shared({KEY})")), "t");
    assert_eq!(locker.inspect(guard.name()).await.unwrap().waiting, 1);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(writer.read(), "got");
}

/// P2, P15: a downgrade that is not answered: how the session has the lock is not known, so it is closed.
/// The user sees: the loss `SessionEnded`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_downgrade() {
    let postgres = start();
    let proxy = Proxy::start(postgres.address()).await.unwrap();
    let address = proxy.address();
    let far = format!("postgres://{ROLE}@{address}/postgres?mode=advisory&request_timeout=1s");
    let far = connect(&far).await;
    let lock = far.rwlock(NAME).unwrap().ttl(TTL * 6);
    let guard = lock.write().await.unwrap();
    proxy.set_open(Link::SwallowReplies);
    let error = bounded(lock.downgrade(&guard)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(loss(&guard, TIME_MAX).await, LossCause::SessionEnded);
    let near = advisory(&postgres).await;
    let next = hold(&near, NAME, Options::default().ttl(TTL).wait(TIME_MAX)).await;
    assert!(next.fence().get() > guard.fence().get());
}

/// P4, P11: session locks are fenced, say who has them, and are told apart by their mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_locks_are_fenced_and_seen() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let mut last = 0;
    for _ in 0..3 {
        let guard = hold(&locker, NAME, Options::default().ttl(TTL)).await;
        assert!(guard.fence().get() > last);
        last = guard.fence().get();
        let seen = locker.list("nigh", None, 10).await.unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].holders[0].fence, Some(guard.fence()));
        let label = seen[0].holders[0].label.as_ref().unwrap();
        assert_eq!(label.pid, std::process::id());
        guard.release().await.unwrap();
    }
    let lock = locker.rwlock(NAME).unwrap();
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let readers = refusal(&locker, NAME).await.lock.holders;
    let told: Vec<_> = readers.iter().map(|holder| (holder.mode, holder.fence)).collect();
    // B182: whose the last fence is, is not known.
    assert_eq!(told, [(Mode::Shared, None); 2]);
    drop((one, two));
    let mutex = locker.mutex(NAME).unwrap();
    let with_delay = mutex.clone().lock_delay(TTL);
    for error in [
        locker.semaphore(NAME, 2).unwrap_err(),
        bounded(with_delay.acquire()).await.unwrap_err(),
        bounded(mutex.acquire_detached()).await.unwrap_err(),
        bounded(locker.watch()).await.map(drop).unwrap_err(),
        bounded(locker.leader(NAME).unwrap().observe()).await.map(drop).unwrap_err(),
    ] {
        check_error(&error, ErrorKind::Unsupported, &["mode=lease"]);
    }
}

/// P11: time does not end a session's lock, so none is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_tells_no_end() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let guard = hold(&locker, NAME, Options::default().ttl(TTL)).await;
    let holder = refusal(&locker, NAME).await.lock.holders.remove(0);
    assert_eq!(holder.time_left(), None);
    assert!(holder.to_string().ends_with(", without an end"), "{holder}");
    guard.release().await.unwrap();
}

/// P10: what the role's timeouts say ends no wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_of_the_role_end_no_wait() {
    let postgres = start();
    // Not every version has all of them.
    let known = postgres.sql(
        "SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', \
         'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
    );
    assert!(known.lines().count() >= 4, "{known}");
    for name in known.lines() {
        postgres.sql(&format!("ALTER ROLE {ROLE} SET {name} = '200ms'"));
    }
    let locker = advisory(&postgres).await;
    let guard = hold(&locker, NAME, Options::default().ttl(TTL)).await;
    let waiter = queue_for(&locker, NAME).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' \
        AND clock_timestamp() - xact_start > '600ms'";
    eventually("one has waited for long", TIME_MAX, async || postgres.sql(waits) == "1").await;
    guard.release().await.unwrap();
    bounded(waiter).await.unwrap().release().await.unwrap();
}

/// P11: what is held is seen for as long as it is, also when the rows of idle locks are removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_locks_outlast_a_sweep() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let held = [
        hold(&locker, NAME, Options::default().ttl(TTL)).await,
        hold(&locker, "-42", Options::default().ttl(TTL)).await,
    ];
    hold(&locker, "idle", Options::default().ttl(TTL)).await.release().await.unwrap();
    let names = format!("SELECT count(*) FROM {SCHEMA}.locks");
    eventually("the idle one is removed", TIME_MAX, async || {
        postgres.sql(&format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)"));
        postgres.sql(&names) == "2"
    })
    .await;
    for guard in held {
        let seen = locker.list(guard.name().as_str(), None, 10).await.unwrap();
        assert_eq!(seen[0].holders[0].fence, Some(guard.fence()));
    }
}

/// P3: when the session ends, its holder is told at once, and an operator can end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_session_is_the_end_of_the_lock() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let waiter = queue_for(&locker, NAME).await;
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND objsubid = 1",
    );
    let cause = loss(&guard, Duration::from_secs(1)).await;
    assert_eq!(cause, LossCause::SessionEnded);
    let next = bounded(waiter).await.unwrap();
    let revoked = locker.revoke_fence(next.name(), next.fence(), "the test says so").await;
    let outcome = revoked.unwrap();
    assert!(matches!(outcome, RevokeOutcome::Revoked(_)), "{outcome:?}");
    assert_eq!(loss(&next, Duration::from_secs(1)).await, LossCause::SessionEnded);
}

/// B40: whoever asks for correctness is refused a session lock, with the reason, and gets a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn correctness_can_be_required() {
    let postgres = start();
    let connect = |url: String| {
        let address = Address::parse(&url).unwrap();
        Locker::builder().require(Guarantee::Correctness).connect_with(move |context| {
            Box::pin(lockfast_backend_postgres::connect(address, context))
        })
    };
    let error = bounded(connect(format!("{}?mode=advisory", url(&postgres)))).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["ends the session"]);
    bounded(connect(url(&postgres))).await.unwrap();
}

/// B40, P6: a session lock whose release is not answered is not told as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_not_answered() {
    let postgres = start();
    let proxy = Proxy::start(postgres.address()).await.unwrap();
    let through = format!("{}?mode=advisory&request_timeout=1s", kit::url_at(proxy.address()));
    let locker = connect(&through).await;
    let guard = hold(&locker, NAME, ttl(TTL * 6)).await;
    proxy.set_open(Link::SwallowReplies);
    let released = guard.release().await.unwrap();
    assert!(matches!(released, Released::Unknown { .. }), "{released:?}");
    let near = advisory(&postgres).await;
    eventually("it is free", TIME_MAX, async || {
        near.mutex(NAME).unwrap().with_options(ttl(TTL)).try_acquire().await.is_ok()
    })
    .await;
}

/// P5, P10: a wait that ends or is given up leaves the server's queue, and no session behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_leaves_nothing() {
    let postgres = start();
    let locker = advisory(&postgres).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let wait = Options::default().wait(Duration::from_millis(200));
    let mutex = locker.mutex(NAME).unwrap().with_options(wait);
    check_error(&bounded(mutex.acquire()).await.unwrap_err(), ErrorKind::Taken, &[]);
    let waiter = queue_for(&locker, NAME).await;
    waiter.abort();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lockfast%'";
    eventually("only the holder's is left", TIME_MAX, async || postgres.sql(sessions) == "1").await;
    guard.release().await.unwrap();
    eventually("none is left", TIME_MAX, async || postgres.sql(sessions) == "0").await;
}
