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
    Postgres, ROLE, TIME_MAX, bounded, connect, create_role, eventually, hold, migrate, queue_for,
    refusal, session, ttl, url,
};
use lockfast::Migration;

const VERSIONS: [(u32, &str); 2] =
    [(1, include_str!("upgrade/version1.sql")), (2, include_str!("upgrade/version2.sql"))];
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
    postgres.sql(&format!(
        "GRANT USAGE ON SCHEMA lockfast TO {ROLE}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockfast TO {ROLE}"
    ));
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
        let changed = Migration::Changed { from: Some(version), to: 3 };
        assert_eq!(migrate(&postgres.url()).unwrap(), changed);
        // The rights that were given are enough, and what was held and waited for is.
        let locker = connect(&url(&postgres)).await;
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
