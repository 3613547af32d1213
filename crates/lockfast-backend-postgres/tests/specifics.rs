//! What only this store promises: how many statements and connections things take, and that
//! nothing stays behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{
    Postgres, SCHEMA, Setup, bounded, connect, connect_both, eventually, hold, name, prepare,
    queue_for, session, start, ttl, url, write_request,
};
use lockfast::{Locker, Options, Released};
use lockfast_core::{Change, RenewOutcome, RenewRequest};

const TTL: Duration = Duration::from_secs(60);

/// A server that counts statements.
fn start_counting() -> Postgres {
    let setup = Setup::new().set("shared_preload_libraries", "pg_stat_statements");
    let postgres = prepare(setup);
    postgres.sql("CREATE EXTENSION pg_stat_statements");
    postgres
}

/// How many statements clients have sent for locks.
fn statements(postgres: &Postgres) -> u64 {
    let sql = format!(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%{SCHEMA}.%' \
         AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%inspect%'"
    );
    postgres.sql(&sql).parse().unwrap()
}

/// Ten thousand locks over two connections, renewed by few statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_over_two_connections() {
    let postgres = start_counting();
    let (locker, backend) = connect_both(&url(&postgres)).await;
    let take = |locker: &Locker, at: usize| {
        let options = Options::default().ttl(TTL * 5);
        let mutex = locker.mutex(format!("lock-{at:05}")).unwrap().with_options(options);
        tokio::spawn(async move { mutex.acquire().await.unwrap() })
    };
    let mut guards = Vec::new();
    let tasks: Vec<_> = (0..10_000).map(|at| take(&locker, at)).collect();
    for task in tasks {
        guards.push(bounded(task).await.unwrap());
    }
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockfast'";
    assert_eq!(postgres.sql(ours), "2");
    let held = format!("SELECT count(holder) FROM {SCHEMA}.locks");
    assert_eq!(postgres.sql(&held), "10000");
    let lease = |guard: &lockfast::Guard| RenewRequest {
        name: guard.name().clone(),
        holder: guard.holder(),
        ttl: TTL,
        lock_delay: Duration::ZERO,
    };
    let start = statements(&postgres);
    let outcomes = backend.renew(guards.iter().map(lease).collect()).await.unwrap();
    let run = statements(&postgres) - start;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, RenewOutcome::Renewed)));
    assert!(run <= 20, "{run} statements for 10000 renewals");
    drop(guards);
    eventually("all are free", Duration::from_secs(25), async || postgres.sql(&held) == "0").await;
}

/// A hand-over takes three statements: one lets the next in and joins the queue's end, in the best
/// case, one tells whom it concerns after the commit, and none is spent on waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_three_statements() {
    const WAITERS: usize = 32;
    const ROUNDS: usize = 5;
    let postgres = start_counting();
    let locker = connect(&url(&postgres)).await;
    let before = statements(&postgres);
    let work = |locker: Locker| {
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                hold(&locker, "a", Options::default().wait_forever())
                    .await
                    .release()
                    .await
                    .unwrap();
            }
        })
    };
    let tasks: Vec<_> = (0..WAITERS).map(|_| work(locker.clone())).collect();
    for task in tasks {
        bounded(task).await.unwrap();
    }
    let run = statements(&postgres) - before;
    let most = u64::try_from(3 * WAITERS * ROUNDS).unwrap();
    assert!(run <= most, "{run} statements for {} hand-overs", WAITERS * ROUNDS);
    assert_eq!(postgres.sql(&format!("SELECT count(*) FROM {SCHEMA}.claims")), "0");
}

/// A waiter that nothing happens to asks at most once in five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_silent() {
    let postgres = start_counting();
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let guard = hold(&one, "a", ttl(TTL)).await;
    let waiter = queue_for(&two, "a").await;
    let before = statements(&postgres);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let run = statements(&postgres) - before;
    assert!(run <= 2, "{run} statements in eight seconds");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    drop(bounded(waiter).await.unwrap());
}

/// Rows of locks that nobody uses are removed, those in use are not, and fences go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_rows_are_removed() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let kept = hold(&locker, "kept", ttl(TTL)).await;
    let gone = hold(&locker, "gone", ttl(TTL)).await;
    let fence = gone.fence().get();
    gone.release().await.unwrap();
    let names = format!("SELECT string_agg(name, ' ') FROM {SCHEMA}.locks");
    let sweep = format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)");
    eventually("it is old enough", Duration::from_secs(10), async || {
        postgres.sql(&sweep);
        postgres.sql(&names) == "kept"
    })
    .await;
    let floor: u64 = postgres.sql(&format!("SELECT floor FROM {SCHEMA}.store")).parse().unwrap();
    assert!(floor >= fence);
    assert!(hold(&locker, "gone", ttl(TTL)).await.fence().get() > fence);
    assert!(kept.check().is_ok());
}

/// Values that have ended are removed, and those that have not are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_values_are_removed() {
    let postgres = start();
    let (_locker, backend) = connect_both(&url(&postgres)).await;
    for (of, keep) in [("a", None), ("b", Some(Duration::from_millis(1))), ("c", Some(TTL))] {
        let change = Change::Put { bytes: of.into(), keep };
        backend.write(write_request(of, None, 1, change)).await.unwrap();
    }
    let names = format!("SELECT string_agg(name, ' ' ORDER BY name) FROM {SCHEMA}.values");
    assert_eq!(postgres.sql(&names), "a b c");
    eventually("it has ended", TTL, async || backend.read(name("b")).await.unwrap().is_none())
        .await;
    postgres.sql(&format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)"));
    assert_eq!(postgres.sql(&names), "a c");
}

/// A sweep that does not come to its end has done nothing, and whoever comes meanwhile waits for
/// its end: either way fences go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_is_undone() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    let mut sweeper = session(postgres.address(), "postgres").await;
    let sweep = format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)");
    for is_undone in [true, false] {
        let gone = hold(&locker, "gone", ttl(TTL)).await;
        let fence = gone.fence().get();
        gone.release().await.unwrap();
        let floor = postgres.sql(&format!("SELECT floor FROM {SCHEMA}.store"));
        let sweeping = loop {
            let sweeping = sweeper.transaction().await.unwrap();
            match sweeping.query_one(&sweep, &[]).await.unwrap().get::<_, i64>(0) {
                1 => break sweeping,
                count => assert_eq!(count, 0, "nothing else is idle"),
            }
            // It is not old enough yet.
            sweeping.rollback().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let (next, wanted) = (locker.clone(), Options::default().ttl(TTL));
        let asking = tokio::spawn(async move { hold(&next, "gone", wanted).await });
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
            AND application_name = 'lockfast'";
        eventually("it waits for the sweep", Duration::from_secs(20), async || {
            postgres.sql(waiting) == "1"
        })
        .await;
        match is_undone {
            true => sweeping.rollback().await.unwrap(),
            false => sweeping.commit().await.unwrap(),
        }
        let guard = bounded(asking).await.unwrap();
        assert!(guard.fence().get() > fence, "{} after {fence}", guard.fence());
        let now = postgres.sql(&format!("SELECT floor FROM {SCHEMA}.store"));
        assert_eq!(now == floor, is_undone, "{now} after {floor}");
        guard.release().await.unwrap();
    }
}

/// B33, P4: the row of a lock whose holder is gone is removed while somebody takes the lock, and the
/// clock is behind its fence: the fence goes on all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_what_is_being_taken() {
    const HIGH: u64 = (1 << 53) - 1000;
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    for names in [&["gone"][..], &["gone", "other", "third"]] {
        postgres.sql(&format!(
            "DELETE FROM {SCHEMA}.locks; UPDATE {SCHEMA}.store SET floor = 0; INSERT INTO \
             {SCHEMA}.locks (name, fence, holder, until_us, since_us) VALUES ('gone', {HIGH}, \
             '00000000-0000-0000-0000-000000000001', 1, 1)"
        ));
        let mut sweeper = session(postgres.address(), "postgres").await;
        let sweeping = sweeper.transaction().await.unwrap();
        let sweep = format!("SELECT {SCHEMA}.sweep('\\x000000000000', 0)");
        assert_eq!(sweeping.query_one(&sweep, &[]).await.unwrap().get::<_, i64>(0), 1);
        let take = |name: &&str| {
            let (locker, name) = (locker.clone(), name.to_string());
            tokio::spawn(async move { hold(&locker, &name, Options::default().ttl(TTL)).await })
        };
        let tasks: Vec<_> = names.iter().map(take).collect();
        let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
            AND application_name = 'lockfast'";
        eventually("it waits", Duration::from_secs(20), async || postgres.sql(waiting) == "t")
            .await;
        sweeping.commit().await.unwrap();
        for (at, task) in tasks.into_iter().enumerate() {
            let guard = bounded(task).await.unwrap();
            assert!(at > 0 || guard.fence().get() > HIGH, "{} after {HIGH}", guard.fence());
            guard.release().await.unwrap();
        }
    }
}

/// B270: whoever takes a lock away while it is taken for the first time either takes it away or is told
/// that nobody has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_of_what_is_being_made() {
    let postgres = start();
    let locker = connect(&url(&postgres)).await;
    // There is time to do something after the first look.
    postgres.sql(&format!(
        "CREATE OR REPLACE FUNCTION {SCHEMA}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT \
         (date_part('epoch', clock_timestamp()) * 1000000)::bigint FROM pg_sleep(0.6) $$"
    ));
    let revocation = tokio::spawn({
        let locker = locker.clone();
        async move { locker.revoke("nightly", "the test says so").await.unwrap() }
    });
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE \
                  '%revoke%' AND pid <> pg_backend_pid()";
    eventually("it has looked", TTL, async || postgres.sql(asleep) == "1").await;
    postgres.sql(&format!(
        "INSERT INTO {SCHEMA}.locks (name, fence, holder, until_us, since_us) SELECT 'nightly', now_us, \
         gen_random_uuid(), now_us + 60000000, now_us FROM (SELECT (date_part('epoch', \
         clock_timestamp()) * 1000000)::bigint AS now_us) n"
    ));
    let outcome = bounded(revocation).await.unwrap();
    let held = format!("SELECT count(holder) FROM {SCHEMA}.locks WHERE name = 'nightly'");
    assert_eq!(postgres.sql(&held), "0", "{outcome:?}");
}

/// A socket of this machine is enough, and names in another alphabet are whole and told apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_this_machine() {
    let postgres = start();
    let directory = kit::encode(&postgres.socket_directory().display().to_string());
    let locker = connect(&format!("postgres://app@{directory}:{}/postgres", postgres.port())).await;
    let long = "ü".repeat(127);
    let guards = [hold(&locker, &long, ttl(TTL)).await, hold(&locker, "Ü", ttl(TTL)).await];
    let stored = format!("SELECT name FROM {SCHEMA}.locks WHERE octet_length(name) = 254");
    assert_eq!(postgres.sql(&stored), long);
    drop(guards);
}
