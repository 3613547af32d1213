//! Other programs call the procedures, in sessions that are set up in any way. What they are told
//! must be as true as what Lockfast is told.

use std::time::Duration;

use lockfast::LockName;
use mysql_async::prelude::Queryable as _;

use crate::kit::foreign::{Session, client, holder};
use crate::kit::{Mysql, bounded, connect, eventually, hold, prepare, refusal, start_server, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);

/// How many transactions wait for a row.
fn waiting(server: &Mysql) -> usize {
    // The server shows what it showed before to whoever asks again within a tenth of a second.
    std::thread::sleep(Duration::from_millis(150));
    let query = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    server.sql(query).trim().parse().unwrap()
}

/// B15, P1: at the isolation that servers have unless told otherwise, and at every other, a caller
/// that waited for a lock's row sees who got it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_any_isolation_one_gets_the_permit() {
    let server = start_server();
    let url = prepare(&server).await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"] {
        let name = isolation.replace(' ', "-");
        let (mut first, mut second) = (Session::open(&url, 1).await, Session::open(&url, 2).await);
        // The row is there already, so that only who has the lock can tell.
        assert!(first.take(&name, 1, TTL, false).await.starts_with("G\t"));
        assert_eq!(first.give(&name).await, "1");
        for session in [&mut first, &mut second] {
            let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}");
            session.conn.query_drop(set).await.unwrap();
        }
        let mut blocker = Session::open(&server.url(), 3).await;
        let lock = format!("SELECT 1 FROM lockfast_locks WHERE name = '{name}' FOR UPDATE");
        blocker.conn.query_drop(format!("BEGIN; {lock}")).await.unwrap();
        let taking = |mut session: Session, name: String| {
            tokio::spawn(async move {
                let said = session.take(&name, 1, TTL, false).await;
                (said, session)
            })
        };
        let first = taking(first, name.clone());
        eventually("one waits for the row", TTL, async || waiting(&server) == 1).await;
        let second = taking(second, name.clone());
        eventually("two wait for the row", TTL, async || waiting(&server) == 2).await;
        blocker.conn.query_drop("COMMIT").await.unwrap();
        let (first, second) = (bounded(first).await.unwrap().0, bounded(second).await.unwrap().0);
        let granted = [&first, &second].iter().filter(|said| said.starts_with("G\t")).count();
        assert_eq!(granted, 1, "{isolation}: {first:?} {second:?}");
    }
}

/// B15: inside of a transaction the procedures would see what was, so they refuse; the transaction
/// is left as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_left_alone() {
    let server = start_server();
    let url = prepare(&server).await;
    server.sql("CREATE TABLE mine (n INT PRIMARY KEY); GRANT ALL ON lockfast.mine TO locks");
    let mut session = Session::open(&url, 1).await;
    for begin in ["BEGIN", "SET autocommit = 0"] {
        session.conn.query_drop(format!("{begin}; INSERT INTO mine VALUES (1)")).await.unwrap();
        let error = session.try_take(NAME, 0, TTL, false).await.unwrap_err().to_string();
        assert!(error.contains("outside of a transaction"), "{error}");
        session.conn.query_drop("ROLLBACK").await.unwrap();
        assert_eq!(server.sql("SELECT COUNT(*) FROM mine"), "0", "{begin}");
    }
    assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_locks"), "0");
}

/// Makes a time zone in which clocks were set back by an hour ten minutes ago, so that this hour is
/// there twice.
fn set_clocks_back(server: &Mysql) {
    server.sql_on(
        "mysql",
        "INSERT INTO time_zone VALUES (7, 'N'); \
         INSERT INTO time_zone_name VALUES ('Lockfast/Autumn', 7); \
         INSERT INTO time_zone_transition_type VALUES (7, 0, 3600, 1, 'S'), (7, 1, 0, 0, 'W'); \
         INSERT INTO time_zone_transition VALUES (7, 0, 0), (7, UNIX_TIMESTAMP() - 600, 1)",
    );
}

/// B15, P1, P13: whatever a session is set to, what it is granted lasts as long as it asked for,
/// others see it at once, and only it can give it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_with_odd_settings() {
    let server = start_server();
    let url = prepare(&server).await;
    set_clocks_back(&server);
    let locker = connect(&url).await;
    for (number, set) in [
        "SET time_zone = 'Lockfast/Autumn'",
        "SET time_zone = '+13:00'",
        "SET timestamp = 1",
        "SET autocommit = 0",
        "SET completion_type = 'CHAIN'",
        "SET group_concat_max_len = 4",
        "SET sql_mode = ''",
        "SET sql_mode = 'ANSI,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
        "SET sql_safe_updates = 1",
        "SET character_set_connection = 'latin1', collation_connection = 'latin1_bin'",
    ]
    .into_iter()
    .enumerate()
    {
        let mut session = Session::open(&url, 1).await;
        // A server may not let everybody do that, and a mode may be gone.
        if session.conn.query_drop(set).await.is_err() {
            continue;
        }
        for name in [format!("lone-{number}"), NAME.to_owned()] {
            let said = session.take(&name, 0, TTL, false).await;
            assert!(said.starts_with("G\t"), "{set}: {said}");
            let seen = locker.inspect(&LockName::new(&name).unwrap()).await.unwrap();
            let left = seen.holders[0].remaining;
            assert!(left > TTL / 2 && left <= TTL, "{set}: {left:?}");
            refusal(&locker, &name).await;
            let said = session.take_as(holder(1, 9), &name, 0, TTL, false).await;
            assert!(said.starts_with("T\t0;0."), "{set}: {said}");
            assert_eq!(session.give(&name).await, "1", "{set}");
            hold(&locker, &name, ttl(TTL)).await.release().await.unwrap();
        }
        let zone: Option<String> = session.conn.query_first("SELECT @@time_zone").await.unwrap();
        let expected = set.split('\'').nth(1).filter(|_| set.contains("time_zone"));
        assert_eq!(zone.as_deref(), Some(expected.unwrap_or("SYSTEM")), "{set}");
    }
}

/// A session that may only read is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_only_reads() {
    let server = start_server();
    let url = prepare(&server).await;
    let mut session = Session::open(&url, 1).await;
    session.conn.query_drop("SET SESSION TRANSACTION READ ONLY").await.unwrap();
    let error = session.try_take(NAME, 0, TTL, false).await.unwrap_err().to_string();
    assert!(error.contains("READ ONLY"), "{error}");
    assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_locks"), "0");
}

/// B222: one that waits and asks to go on as a reader does not have the lock. Its turn may come by what is
/// looked at for that, and then lasts as long as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_not_downgraded() {
    const SHORT: Duration = Duration::from_millis(500);
    const LONG: Duration = Duration::from_secs(60);
    let server = start_server();
    let url = prepare(&server).await;
    let (mut first, mut second) = (Session::open(&url, 1).await, Session::open(&url, 2).await);
    assert!(first.take(NAME, 0, SHORT, false).await.starts_with("G\t"));
    assert!(second.take(NAME, 0, LONG, true).await.starts_with("W\t"));
    assert_eq!(second.downgrade(NAME).await, format!("T\t{}", client(1)));
    let clock = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";
    let is_over = format!("SELECT until_us <= {clock} FROM lockfast_locks WHERE name = '{NAME}'");
    eventually("the first is over", LONG, async || server.sql(&is_over).trim() == "1").await;
    assert_eq!(second.downgrade(NAME).await, "F");
    let left = format!("SELECT MAX(until_us) - {clock} FROM lockfast_locks WHERE name = '{NAME}'");
    let left: i64 = server.sql(&left).trim().parse().unwrap();
    assert!(left <= LONG.as_micros() as i64, "{left} µs are left");
}

/// What is not a client, a holder, a mode or a time is refused in words, and nothing is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_make_no_sense() {
    let server = start_server();
    let url = prepare(&server).await;
    let mut session = Session::open(&url, 1).await;
    let who = session.who.clone();
    let id = holder(1, 1);
    for call in [
        "CALL lockfast_enrol('xyz', 'p', 'h', 1, '')".to_owned(),
        format!("CALL lockfast_enrol('{}', 'p', 'h', 1, '')", "z".repeat(32)),
        "CALL lockfast_enrol(NULL, 'p', 'h', 1, '')".to_owned(),
        format!("CALL lockfast_take(NULL, '{NAME}', '{id}', 0, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', 0, NULL, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', 0, -1, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', 0, 9223372036854775807, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', 0, 1000000, -1, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', -7, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', NULL, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', 'xyz', 0, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', NULL, 0, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{}', 0, 1000000, 0, 0, 0)", holder(2, 1)),
        format!("CALL lockfast_take('{who}', '', '{id}', 0, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', NULL, '{id}', 0, 1000000, 0, 0, 0)"),
        format!("CALL lockfast_take('{who}', '{NAME}', '{id}', 0, 1000000, 0, NULL, 0)"),
        format!("CALL lockfast_downgrade(NULL, '{NAME}', '{id}')"),
        format!("CALL lockfast_downgrade('{who}', NULL, '{id}')"),
        format!("CALL lockfast_downgrade('{who}', '', '{id}')"),
        format!("CALL lockfast_downgrade('{who}', '{NAME}', 'xyz')"),
        format!("CALL lockfast_work('{who}', '', 'no list', 1, '', 0)"),
        format!(r#"CALL lockfast_work('{who}', '', '[["{NAME}","{id}",0,-1,0,0,0]]', 1, '', 0)"#),
        format!(r#"CALL lockfast_work('{who}', '', '[["{NAME}","xyz",0,9,0,0,0]]', 1, '', 0)"#),
        format!(r#"CALL lockfast_work('{who}', '', '[["{NAME}"]]', 1, '', 0)"#),
    ] {
        let error = session.conn.query_drop(&call).await.expect_err(&call);
        assert!(matches!(error, mysql_async::Error::Server(_)), "{call}: {error}");
        assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_locks WHERE holder IS NOT NULL"), "0");
        assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_claims"), "0", "{call}");
        // No transaction is left open, so the next call is served.
        assert!(session.take("another", 0, TTL, false).await.starts_with("G\t"), "{call}");
        assert_eq!(session.give("another").await, "1");
    }
}
