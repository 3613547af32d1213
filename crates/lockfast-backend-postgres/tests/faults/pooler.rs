//! PgBouncer gives each transaction another connection, and restarts.

use std::net::SocketAddr;
use std::time::Duration;

use lockfast::{ErrorKind, LossCause, Moment, Released, WatchKind};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::server::Server as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::{
    PgBouncer, ROLE, TIME_MAX, bounded, check_error, connect, connect_both, encode, hold, loss,
    name, put, queue_for, refusal, start, try_connect, ttl, url, wait_for_renewal, write_request,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

/// P1, P3, P10: a pooler that restarts costs nobody a lease or a place in the queue.
/// The user sees: `Jeopardy` at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart() {
    let postgres = start();
    let mut pooler = PgBouncer::start(&postgres, 4);
    let url = pooler.url_as(ROLE, "postgres");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    pooler.restart();
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// B88: a pooler that restarts may take mail along that was on its way.
/// The user sees: whoever watches is told that something may be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_learns_that_mail_may_be_lost() {
    let postgres = start();
    let mut pooler = PgBouncer::start(&postgres, 4);
    let locker = connect(&pooler.url_as(ROLE, "postgres")).await;
    let mut events = locker.watch().await.unwrap();
    drop(hold(&locker, "before", ttl(TTL)).await);
    pooler.restart();
    let _guard = hold(&locker, "after", ttl(TTL)).await;
    let is_told = loop {
        let event = bounded(events.next()).await.unwrap();
        match event.kind {
            WatchKind::Missed => break true,
            _ if event.name.as_str() == "after" => break false,
            _ => {}
        }
    };
    assert!(is_told);
}

/// L56: an advisory lock would stay with a session that others get.
/// The user sees: `Unsupported` with the reason, before anything was locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_refused() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 4);
    let url = format!("{}?mode=advisory", pooler.url_as(ROLE, "postgres"));
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["pooler", "mode=lease"]);
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

/// P10: with a direct way to listen, hand-overs are pushed although commands go through a pooler.
/// The user sees: nothing; a way to listen that leads elsewhere is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_way_to_listen() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 4);
    let through =
        |listen: &str| format!("{}?listen={}", pooler.url_as(ROLE, "postgres"), encode(listen));
    let pushed = through(&url(&postgres));
    let (one, two) = (connect(&pushed).await, connect(&pushed).await);
    let guard = hold(&one, NAME, ttl(TTL)).await;
    let waiter = queue_for(&two, NAME).await;
    let polls = "SELECT count(*) FROM lockfast.clients WHERE by_mail";
    assert_eq!(postgres.sql(polls), "0");
    let (machine, sent) = (Lateness::watch(), Moment::now());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    drop(bounded(waiter).await.unwrap());
    machine.check("to hand over", Duration::from_secs(1), sent, Moment::now());
    let error = try_connect(&through(&pooler.url_as(ROLE, "postgres"))).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["listen", "pooler"]);
    postgres.create_database("other");
    let elsewhere = url(&postgres).replace("/postgres", "/other");
    let error = try_connect(&through(&elsewhere)).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["listen", "another database"]);
}

/// A pooler's role with another isolation level cannot be helped from here.
/// The user sees: `InvalidConfig` with the statement that helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_isolation_level() {
    let postgres = start();
    postgres.sql(&format!("ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'"));
    let pooler = PgBouncer::start(&postgres, 4);
    let (locker, backend) = connect_both(&pooler.url_as(ROLE, "postgres")).await;
    let taken = crate::kit::failure(&locker, NAME).await;
    let read = backend.read(name(NAME)).await.unwrap_err();
    let written = backend.write(write_request(NAME, None, 1, put(b"one"))).await.unwrap_err();
    for error in [taken, read, written] {
        check_error(&error, ErrorKind::InvalidConfig, &["ALTER ROLE"]);
    }
}

/// B34: a pooler that refuses whatever it does not know when a connection starts, as Amazon's does with
/// 0A000: nothing but who we are, and what every driver says, is told then.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_special_is_said_when_connecting() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://app@{}/locks?sslmode=disable", listener.local_addr().unwrap());
    let connecting = tokio::spawn(async move { try_connect(&url).await.map(drop) });
    let (mut stream, _) = listener.accept().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut said = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut said).await.unwrap();
    drop((stream, listener));
    let said = String::from_utf8_lossy(&said[4..]).into_owned();
    let names: Vec<_> = said.split('\0').step_by(2).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["client_encoding", "user", "database", "application_name"], "{said:?}");
    assert!(connecting.await.unwrap().is_err());
}

/// B56, P1: PgBouncer before 1.22.1 gives the next client what one that has gone had asked: a grant,
/// nothing, or an error. With the only session of the pool the next one is always ours.
/// The user sees: nothing but a delay, and a warning in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_somebody_else() {
    const GRANT: &str =
        "ARRAY[1]::smallint[], ARRAY[7]::bigint[], NULL::text[], 0::bigint, NULL::text[]";
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 1);
    let holder = connect(&url(&postgres)).await;
    let guard = hold(&holder, NAME, ttl(Duration::from_secs(60))).await;
    // Messages come directly, so that nothing but the acquisition is asked.
    let listen = encode(&url(&postgres));
    let through = format!("{}?listen={listen}", pooler.url_as(ROLE, "postgres"));
    let through = connect(&through).await;
    for foreign in [
        format!("SELECT {GRANT} FROM pg_sleep(0.5)"),
        format!("SELECT {GRANT}, true, 1::bigint FROM pg_sleep(0.5)"),
        format!("SELECT {GRANT} FROM (SELECT 1 FROM pg_sleep(0.5)) given WHERE false"),
        "SELECT 1 / (SELECT 0 FROM pg_sleep(0.5))".to_owned(),
    ] {
        leave_behind(pooler.address(), &foreign).await;
        let refused = refusal(&through, NAME).await;
        assert_eq!(refused.lock.holders[0].fence, Some(guard.fence()), "after {foreign}");
        let other = hold(&through, "other", ttl(TTL)).await;
        assert!(matches!(other.release().await.unwrap(), Released::Released), "after {foreign}");
    }
    assert!(guard.check().is_ok());
}

/// B262, P8: the same error in the place of the answer to a revocation, which was done: it is not done
/// again, because the lock has its next holder by then.
/// The user sees: the error, and to look whether it was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_somebody_else_and_a_revocation() {
    let postgres = start();
    let pooler = PgBouncer::start(&postgres, 1);
    let direct = connect(&url(&postgres)).await;
    let listen = encode(&url(&postgres));
    let through = format!("{}?listen={listen}", pooler.url_as(ROLE, "postgres"));
    let through = connect(&through).await;
    let guard = hold(&direct, NAME, ttl(TTL)).await;
    let waiter = queue_for(&direct, NAME).await;
    leave_behind(pooler.address(), "SELECT 1 / (SELECT 0 FROM pg_sleep(0.5))").await;
    let error = through.revoke(NAME, "it hangs").await.unwrap_err();
    check_error(&error, ErrorKind::Internal, &["division by zero", "look whether it was done"]);
    let cause = loss(&guard, TIME_MAX).await;
    assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
    let next = bounded(waiter).await.unwrap();
    wait_for_renewal(&next, Duration::from_secs(30)).await;
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// Sends two statements at once, and is gone after the first answer.
async fn leave_behind(pooler: SocketAddr, second: &str) {
    let mut stream = TcpStream::connect(pooler).await.unwrap();
    let version: u32 = 3 << 16;
    // Under our name, so that PgBouncer has nothing to set in between.
    let login = format!("user\0{ROLE}\0database\0postgres\0application_name\0lockfast\0\0");
    let length = u32::try_from(login.len()).unwrap() + 8;
    let login = [&length.to_be_bytes(), &version.to_be_bytes(), login.as_bytes()].concat();
    stream.write_all(&login).await.unwrap();
    wait_until_ready(&mut stream).await;
    let both = [statement("SELECT 1"), statement(second)].concat();
    stream.write_all(&both).await.unwrap();
    wait_until_ready(&mut stream).await;
}

/// A statement that is prepared, bound, described and run, with answers in binary.
fn statement(text: &str) -> Vec<u8> {
    let parts: [(u8, &[u8]); 5] = [
        (b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat()),
        (b'B', b"\0\0\0\0\0\0\0\x01\0\x01"),
        (b'D', b"S\0"),
        (b'E', b"\0\0\0\0\0"),
        (b'S', b""),
    ];
    let message = |(kind, body): (u8, &[u8])| {
        let length = u32::try_from(body.len()).unwrap() + 4;
        [&[kind][..], &length.to_be_bytes(), body].concat()
    };
    parts.into_iter().flat_map(message).collect()
}

/// Reads until the server is ready for the next statement.
async fn wait_until_ready(stream: &mut TcpStream) {
    loop {
        let kind = bounded(stream.read_u8()).await.unwrap();
        let length = bounded(stream.read_u32()).await.unwrap();
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        bounded(stream.read_exact(&mut body)).await.unwrap();
        if kind == b'Z' {
            return;
        }
    }
}
