//! The server answers, but says no; or the nodes are not ours.

use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_faults::redis::Redis;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::values::{Values, put};
use crate::kit::{
    Access, Kind, Session, Setup, ZooKeeper, bounded, check_error, claims, codes, connect,
    eventually, failure, hold, refusal, try_connect, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(5);

/// A place that only `app` may use, with these rights.
fn start_with(rights: &str) -> ZooKeeper {
    let server = ZooKeeper::start();
    let mut session = server.session();
    session.introduce("app:word");
    let access = Access { rights, scheme: "auth", id: "" };
    session.try_create("/locks", b"", Kind::Persistent, &[access]).unwrap();
    server
}

fn url_as(server: &ZooKeeper, login: &str) -> String {
    format!("zookeeper://{login}@{}/locks", server.address())
}

/// Who may use the place does, and nobody else; no message holds the password (P11).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not() {
    let server = start_with("cdrw");
    let locker = connect(&url_as(&server, "app:word")).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    for login in ["app:geheim", "other:geheim"] {
        let error = match try_connect(&url_as(&server, login)).await {
            Err(error) => error,
            Ok(locker) => failure(&locker, NAME, ttl(TTL)).await,
        };
        check_error(&error, ErrorKind::Permission, &["password"]);
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
    let anonymous = server.url_of("/locks");
    let error = match try_connect(&anonymous).await {
        Err(error) => error,
        Ok(locker) => failure(&locker, NAME, ttl(TTL)).await,
    };
    check_error(&error, ErrorKind::Permission, &["ACL"]);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P8: what a user makes is the user's: somebody else, with a password or without one, can neither take a
/// lock from its holder, nor read who that is, nor put a claim into the line or before it, nor change a
/// value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_cannot_delete_or_forge_claims() {
    let server = start_with("cdr");
    let locker = connect(&url_as(&server, "app:word")).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let values = Values::connect(&url_as(&server, "app:word")).await;
    values.write(NAME, None, put("ours")).await;
    let mut owner = server.session();
    owner.introduce("app:word");
    let path = format!("/locks/{NAME}");
    let claim = format!("{path}/{}", owner.children(&path)[0]);
    for login in [None, Some("other:word"), Some("app:guess")] {
        let mut session = server.session();
        login.into_iter().for_each(|login| session.introduce(login));
        let mut forge =
            |path: &str| session.try_create(path, b"", Kind::EphemeralSequential, &[]).map(|_| ());
        let forged = [forge(&format!("{path}/lock-")), forge("/locks/another")];
        let value = format!("/locks/%values/{NAME}");
        let tried = [
            session.try_delete(&claim),
            session.try_read(&claim).map(|_| ()),
            session.try_write(&claim, b""),
            session.try_set_access(&claim, &[]),
            session.try_set_access(&path, &[]),
            session.try_write(&value, b""),
            session.try_delete(&value),
        ];
        for tried in forged.iter().chain(&tried) {
            assert_eq!(*tried, Err(codes::NO_AUTH), "{login:?}: {forged:?} {tried:?}");
        }
    }
    assert!(guard.check().is_ok());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert_eq!(values.read(NAME).await.unwrap().1, "ours");
}

/// P3, P11: the server has as many connections from one address as it allows. Who has one goes on.
/// The user sees: `Unreachable`, with what it may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_left() {
    const CONNECTIONS: usize = 8;
    let server = Setup::new().line(format!("maxClientCnxns={CONNECTIONS}")).start();
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let mut others = Vec::new();
    eventually("it is full", TTL, async || {
        let opened = Session::try_open(server.address(), TTL);
        let is_full = opened.is_err();
        others.extend(opened);
        is_full
    })
    .await;
    assert!(others.len() < CONNECTIONS);
    let url = format!("{}?request_timeout=1s", server.url());
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["maxClientCnxns"]);
    wait_for_renewal(&guard, TTL).await;
    drop(others);
    eventually("there is room", TTL, async || try_connect(&url).await.is_ok()).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// B110: P1. A claim that a waiter may not read is there all the same: whoever cannot see who is ahead
/// is refused, and not granted the lock as if nobody were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_cannot_be_read_is_not_gone() {
    let server = ZooKeeper::start();
    let anonymous = connect(&server.url()).await;
    // The lock's node is everybody's, and the next claim the user's alone.
    hold(&anonymous, NAME, ttl(TTL)).await.release().await.unwrap();
    let owner = connect(&format!("zookeeper://app:word@{}", server.address())).await;
    let guard = hold(&owner, NAME, ttl(TTL)).await;
    let lock = anonymous.mutex(NAME).unwrap().with_options(ttl(TTL).wait(TTL));
    let error = bounded(lock.acquire()).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["ACL"]);
    assert_eq!(claims(&server, NAME).len(), 1, "nothing is left of the waiter");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    hold(&anonymous, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// B117: P11. Who may not see the claims of another user is told what is known: that the lock is taken, and
/// all locks that are everybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_another_user_hide_no_others() {
    let server = ZooKeeper::start();
    let anonymous = connect(&server.url()).await;
    let guards = (hold(&anonymous, "open", ttl(TTL)).await, hold(&anonymous, NAME, ttl(TTL)).await);
    guards.1.release().await.unwrap();
    let owner = connect(&format!("zookeeper://app:word@{}", server.address())).await;
    let others = (hold(&owner, NAME, ttl(TTL)).await, hold(&owner, "closed", ttl(TTL)).await);
    let told = bounded(anonymous.list("", None, 10)).await.unwrap();
    let names: Vec<&str> = told.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, [NAME, "open"]);
    assert_eq!(refusal(&anonymous, NAME).await.lock.holders.len(), 1);
    for guard in [guards.0, others.0, others.1] {
        guard.release().await.unwrap();
    }
}

/// B115: P6. A claim that may not be deleted is not told as one that was lost before.
/// The user sees: an error that says what is not allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_may_not_be_deleted() {
    let server = ZooKeeper::start();
    let access = Access { rights: "cr", scheme: "world", id: "anyone" };
    let path = format!("/{NAME}");
    server.session().try_create(&path, b"", Kind::Persistent, &[access]).unwrap();
    let locker = connect(&server.url()).await;
    let released = hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    let Released::Unknown { error, .. } = released else { panic!("{released:?}") };
    check_error(&error, ErrorKind::Permission, &["ACL"]);
}

/// A right that is missing is told when it is needed, before anything is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_missing() {
    for rights in ["r", "dr", "w"] {
        let server = start_with(rights);
        let error = match try_connect(&url_as(&server, "app:word")).await {
            Err(error) => error,
            Ok(locker) => failure(&locker, NAME, ttl(TTL)).await,
        };
        check_error(&error, ErrorKind::Permission, &["ACL"]);
    }
    let server = start_with("cd");
    let locker = connect(&url_as(&server, "app:word")).await;
    let error = bounded(locker.list("", None, 10)).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["ACL"]);
}

/// A place that is not there is told with what to do; nothing is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chroot_that_does_not_exist() {
    let server = ZooKeeper::start();
    let error = try_connect(&server.url_of("/no/such/place")).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["/no/such/place", "create"]);
    assert!(server.session().stat("/no").is_none());
    // As soon as it is there, it serves.
    let mut session = server.session();
    for path in ["/no", "/no/such", "/no/such/place"] {
        session.create(path, b"");
    }
    let locker = connect(&server.url_of("/no/such/place")).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// An address that is no ZooKeeper, or nobody at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_no_zookeeper() {
    let redis = Redis::start();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for address in [redis.address(), silent.local_addr().unwrap(), closed] {
        let url = format!("zookeeper://{address}?request_timeout=1s");
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::Unreachable, &[&address.to_string()]);
    }
}

/// A server from before 3.5 is told when connecting, with what is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_old() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("zookeeper://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_as_3_4(stream));
        }
    });
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["too old", "3.6"]);
    serving.abort();
}

/// Opens a session and has no node that is asked for, as the configuration of the ensemble, which
/// servers have since 3.5. Where a client is gone it ends.
async fn serve_as_3_4(mut stream: TcpStream) -> std::io::Result<()> {
    const CLOSE: i32 = -11;
    const MULTI: i32 = 14;
    let hello = read_frame(&mut stream).await?;
    let asked = i32::from_be_bytes(hello[12..16].try_into().unwrap());
    let mut greeting = [0_i32, asked.clamp(4000, 40_000), 0, 7, 16].map(i32::to_be_bytes).concat();
    greeting.extend([0; 16]);
    write_frame(&mut stream, &greeting).await?;
    loop {
        let request = read_frame(&mut stream).await?;
        if request[4..8] == CLOSE.to_be_bytes() {
            return Ok(());
        }
        let is_done = request[4..8] == MULTI.to_be_bytes();
        let mut answer = request[..4].to_vec();
        answer.extend(1_i64.to_be_bytes());
        answer.extend(if is_done { 0 } else { codes::NO_NODE }.to_be_bytes());
        write_frame(&mut stream, &answer).await?;
    }
}

async fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(stream: &mut TcpStream, frame: &[u8]) -> std::io::Result<()> {
    stream.write_u32(u32::try_from(frame.len()).unwrap()).await?;
    stream.write_all(frame).await
}

/// One of several servers that is not there costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_addresses_is_nobody() {
    let server = ZooKeeper::start();
    let url = format!("zookeeper://127.0.0.1:1,{}", server.address());
    for _ in 0..3 {
        hold(&connect(&url).await, NAME, ttl(TTL)).await.release().await.unwrap();
    }
}

/// A node of this name that another program uses for something else is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_ours() {
    let server = ZooKeeper::start();
    let locker = connect(&server.url()).await;
    let mut session = server.session();
    session.create("/brokers", b"");
    session.create("/brokers/ids", b"x");
    let error = failure(&locker, "brokers", ttl(TTL)).await;
    check_error(&error, ErrorKind::ForeignKey, &["ids"]);
    assert_eq!(session.children("/brokers"), ["ids"]);
    session.try_create("/live", b"here", Kind::Ephemeral, &[]).unwrap();
    let error = failure(&locker, "live", ttl(TTL)).await;
    check_error(&error, ErrorKind::ForeignKey, &["ephemeral"]);
    assert_eq!(session.try_read("/live").unwrap(), b"here");
    // What is listed is ours.
    let listed = locker.list("", None, 100).await.unwrap();
    assert!(!listed.iter().any(|view| !view.holders.is_empty()), "{listed:?}");
    // Data in the lock's own node is nobody's business.
    session.create("/with-data", b"a note");
    hold(&locker, "with-data", ttl(TTL)).await.release().await.unwrap();
    assert_eq!(session.try_read("/with-data").unwrap(), b"a note");
}

/// L18: a ttl that the server would make longer or shorter is refused, and the limits are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_the_server_does_not_keep() {
    let server = Setup::new().tick(Duration::from_secs(1)).start();
    let locker = connect(&server.url()).await;
    let mutex = locker.mutex(NAME).unwrap();
    let error = bounded(mutex.ttl(Duration::from_millis(500)).acquire()).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidTtl, &["2"]);
    hold(&locker, NAME, ttl(Duration::from_secs(2))).await.release().await.unwrap();
    assert!(server.session().children(&format!("/{NAME}")).is_empty());
}

/// Names that a path could misread are just names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_only_names() {
    let server = ZooKeeper::start();
    let locker = connect(&server.url()).await;
    let other = connect(&server.url()).await;
    let long = "x".repeat(255);
    let names = [
        "a",
        "A",
        "a/b",
        "/a",
        "a/",
        "zookeeper",
        "zookeeper/quota",
        "%2F",
        "a%2Fb",
        "日本",
        "𝕏",
        "\\",
        "\"",
        "_c_x-lock-0000000000",
        &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(hold(&locker, name, ttl(TTL)).await);
    }
    for (name, guard) in names.iter().zip(guards) {
        refusal(&other, name).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released), "{name}");
    }
    assert_eq!(server.session().children("/zookeeper"), ["config", "quota"]);
}
