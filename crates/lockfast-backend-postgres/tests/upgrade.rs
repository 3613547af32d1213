//! A schema that an earlier version made becomes a present one while it is in use: what its
//! clients hold and wait for stays theirs, and they go on asking as before.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{
    Postgres, ROLE, TIME_MAX, bounded, check_error, connect, connect_both, create_role, eventually,
    hold, migrate, name, put, queue_for, refusal, session, try_connect, ttl, url, version,
    wait_for_renewal, write_request,
};
use lockfast::{ErrorKind, Migration, Mode, Moment, Released, WriteOutcome};
use lockfast_core::{Backend, Change};
use lockfast_faults::lateness::Lateness;

const VERSIONS: [(u32, &str); 5] = [
    (1, include_str!("upgrade/version1.sql")),
    (2, include_str!("upgrade/version2.sql")),
    (3, include_str!("upgrade/version3.sql")),
    (4, include_str!("upgrade/version4.sql")),
    (5, include_str!("upgrade/version5.sql")),
];
/// Two clients of the earlier version, and what they call themselves.
const HOLDER: (&str, &str) = ("010101010101", "01010101-0101-0000-0000-000000000001");
const WAITER: (&str, &str) = ("020202020202", "02020202-0202-0000-0000-000000000002");
const TTL: Duration = Duration::from_secs(60);

/// Asks one thing for a client of the earlier version: its code and number.
fn ask(postgres: &Postgres, (client, holder): (&str, &str), kind: u8, name: &str) -> (i16, u64) {
    let said = postgres.sql(&format!(
        "SELECT codes[1], coalesce(numbers[1], 0) FROM lockfast.serve('\\x{client}', 7, '{{{kind}}}', \
         '{{{name}}}', '{{{holder}}}', '{{60000000}}', '{{}}', '{{}}', '{{}}', '{{1}}')"
    ));
    let (code, number) = said.split_once('|').unwrap();
    (code.parse().unwrap(), number.parse().unwrap())
}

/// Who has the lock, by the table.
fn holder(postgres: &Postgres) -> String {
    postgres.sql("SELECT holder FROM lockfast.locks WHERE name = 'nightly'")
}

/// Makes the schema as it was, with a lock that is held, one that was, and one who waits. It waits
/// for as long as the returned connection lasts.
async fn start(schema: &str) -> (Postgres, tokio_postgres::Client, [u64; 2]) {
    let postgres = Postgres::start();
    create_role(&postgres);
    postgres.sql(schema);
    grant(&postgres);
    for (client, _) in [HOLDER, WAITER] {
        let enrol = format!("SELECT lockfast.enrol('\\x{client}', 7, false, 'p', 'h', 1, NULL)");
        postgres.sql(&enrol);
    }
    let listening = session(postgres.address(), ROLE).await;
    let listen = format!(
        "LISTEN \"lockfast:{}\"; SELECT pg_advisory_lock_shared({}, {})",
        WAITER.0, 0x4c46_4b01, 0x0202_0202
    );
    listening.batch_execute(&listen).await.unwrap();
    let (code, idle) = ask(&postgres, HOLDER, 2, "idle");
    assert_eq!((code, ask(&postgres, HOLDER, 3, "idle").0), (1, 1));
    let (code, held) = ask(&postgres, HOLDER, 2, "nightly");
    assert_eq!((code, ask(&postgres, WAITER, 2, "nightly").0), (1, 2));
    (postgres, listening, [idle, held])
}

/// P1, P4, P7, P10. The user sees: nothing but the new version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_schema_in_use() {
    for (version, schema) in VERSIONS {
        let (postgres, listening, [idle, held]) = start(schema).await;
        let changed = Migration::Changed { from: Some(version), to: 6 };
        assert_eq!(migrate(&postgres.url()).unwrap(), changed);
        // The rights that were given are enough, and what was held and waited for is.
        let (locker, backend) = connect_both(&url(&postgres)).await;
        check_values(&*backend).await;
        let seen = refusal(&locker, "nightly").await.lock;
        assert_eq!(seen.holders[0].fence.unwrap().get(), held);
        assert_eq!(seen.waiting, 1);
        let waiter = queue_for(&locker, "nightly").await;
        assert_eq!(ask(&postgres, HOLDER, 4, "nightly").0, 1, "it is renewed");
        assert_eq!(ask(&postgres, HOLDER, 3, "nightly").0, 1, "it is given back");
        assert_eq!(holder(&postgres), WAITER.1, "whoever came first is the next");
        let (code, next) = ask(&postgres, WAITER, 2, "nightly");
        assert!(code == 1 && next > held, "{code} {next} after {held}");
        assert_eq!(ask(&postgres, WAITER, 3, "nightly").0, 1);
        let guard = bounded(waiter).await.unwrap();
        assert!(guard.fence().get() > next);
        assert!(hold(&locker, "idle", ttl(TTL)).await.fence().get() > idle);
        drop(listening);
        // Nothing of the earlier version is left beside what replaced it.
        eventually("no function is there twice", TIME_MAX, async || {
            postgres.sql(
                "SELECT count(*) FROM (SELECT p.proname FROM pg_proc p JOIN pg_namespace n \
                 ON n.oid = p.pronamespace WHERE n.nspname = 'lockfast' GROUP BY 1 \
                 HAVING count(*) > 1) twice",
            ) == "0"
        })
        .await;
    }
}

/// Writes, reads and removes a value.
async fn check_values(backend: &dyn Backend) {
    let written = backend.write(write_request("a", None, 1, put(b"one"))).await.unwrap();
    assert_eq!(written, WriteOutcome::Written(Some(version(1))));
    assert_eq!(backend.read(name("a")).await.unwrap().unwrap().bytes, b"one");
    let removal = write_request("a", Some(version(1)), 2, Change::Remove);
    assert_eq!(backend.write(removal).await.unwrap(), WriteOutcome::Written(None));
}

fn grant(postgres: &Postgres) {
    postgres.sql(&format!(
        "GRANT USAGE ON SCHEMA lockfast TO {ROLE}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockfast TO {ROLE}"
    ));
}

/// Takes, waits for, hands over, watches and gives back, by two clients. Their connections are
/// closed when it returns.
async fn check_that_it_serves(postgres: &Postgres, url: &str) {
    let before = sessions(postgres);
    let (one, two) = (connect(url).await, connect(url).await);
    let mut events = two.watch().await.unwrap();
    let guard = hold(&one, "served", ttl(Duration::from_secs(3))).await;
    assert_eq!(bounded(events.next()).await.unwrap().name.as_str(), "served");
    wait_for_renewal(&guard, Duration::from_secs(3)).await;
    let waiter = queue_for(&two, "served").await;
    let (machine, from) = (Lateness::watch(), Moment::now());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    machine.check("to push", Duration::from_secs(1), from, Moment::now());
    let many = (0..5).map(|at| one.mutex(format!("many-{at}")).unwrap());
    let many: Vec<_> =
        many.map(|mutex| tokio::spawn(async move { mutex.acquire().await.map(drop) })).collect();
    for task in many {
        bounded(task).await.unwrap().unwrap();
    }
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    drop((events, one, two));
    let held = "SELECT count(holder) FROM lockfast.locks WHERE name NOT IN ('kept', 'written')";
    eventually("nothing is held", TIME_MAX, async || postgres.sql(held) == "0").await;
    eventually("they are gone", TIME_MAX, async || sessions(postgres) == before).await;
}

/// How many sessions of Lockfast the server has.
fn sessions(postgres: &Postgres) -> String {
    postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockfast'")
}

/// B35: a schema of the version before is served and not changed, also by a role that could; then it
/// is migrated under those who use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_the_version_before() {
    let postgres = Postgres::start();
    create_role(&postgres);
    let (_, before) = VERSIONS[VERSIONS.len() - 1];
    postgres.sql(before);
    grant(&postgres);
    let version = "SELECT lockfast.version()";
    for url in [url(&postgres), postgres.url()] {
        check_that_it_serves(&postgres, &url).await;
        assert_eq!(postgres.sql(version), "5");
    }
    let one = connect(&url(&postgres)).await;
    let two = connect(&url(&postgres)).await;
    let lock = one.rwlock("written").unwrap().ttl(TTL);
    let writer = lock.write().await.unwrap();
    let error = lock.downgrade(&writer).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["downgrade", "lockfast migrate"]);
    assert_eq!(writer.mode(), Mode::Exclusive, "nothing has changed");
    let guard = hold(&one, "kept", ttl(TTL)).await;
    let waiter = queue_for(&two, "kept").await;
    let before = sessions(&postgres);
    assert_eq!(migrate(&postgres.url()).unwrap(), Migration::Changed { from: Some(5), to: 6 });
    // The server notices a moment later that a connection is closed.
    eventually("migrate is gone", TIME_MAX, async || sessions(&postgres) == before).await;
    check_that_it_serves(&postgres, &url(&postgres)).await;
    // Who was connected can do it now.
    lock.downgrade(&writer).await.unwrap();
    assert_eq!(refusal(&two, "written").await.lock.holders[0].mode, Mode::Shared);
    assert!(matches!(writer.release().await.unwrap(), Released::Released));
    let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'lockfast'";
    postgres.sql(end_all);
    eventually("both are there again", TIME_MAX, async || {
        one.list("", None, 1).await.is_ok() && two.list("", None, 1).await.is_ok()
    })
    .await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// B35: a schema of the version after is served; what is further away is refused with what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_another_version() {
    let postgres = Postgres::start();
    create_role(&postgres);
    migrate(&postgres.url()).unwrap();
    eventually("migrate is gone", TIME_MAX, async || sessions(&postgres) == "0").await;
    grant(&postgres);
    let become_version = |version: u32| {
        postgres.sql(&format!(
            "CREATE OR REPLACE FUNCTION lockfast.version() RETURNS integer LANGUAGE sql IMMUTABLE \
             SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT {version} $$"
        ));
    };
    become_version(7);
    check_that_it_serves(&postgres, &url(&postgres)).await;
    for (version, advice) in [(8, "update the program"), (4, "lockfast migrate")] {
        become_version(version);
        for url in [url(&postgres), postgres.url()] {
            let error = try_connect(&url).await.unwrap_err();
            let version = format!("version {version}");
            check_error(&error, ErrorKind::InvalidConfig, &[&version, advice]);
        }
    }
    become_version(7);
    check_error(
        &migrate(&postgres.url()).unwrap_err(),
        ErrorKind::InvalidConfig,
        &["version 7", "update the program"],
    );
}
