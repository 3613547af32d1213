//! The server answers, but says no; it is no etcd at all; what is asked for is not to be had.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use lockfast::ErrorKind;

use crate::kit::{
    Etcd, bounded, check_error, connect, failure, hold, make_user, refusal, try_connect, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);

/// P11: who is not let in is told so, without the password.
/// The user sees: `Permission`, with the server's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password() {
    let mut server = Etcd::start();
    make_user(&mut server);
    for (url, words) in [
        (server.url_as("app", "secret"), "authentication failed"),
        (server.url_as("nobody", "secret"), "authentication failed"),
        (server.url(), "user:password"),
    ] {
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::Permission, &[words]);
        let told = format!("{error} {error:?}");
        assert!(!told.contains("secret"), "{told}");
    }
}

/// A user on a server that asks nobody is let in like everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_users() {
    let server = Etcd::start();
    let locker = connect(&server.url_as("app", "secret")).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// A server that answers everything with this.
fn serve(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.read(&mut [0; 512]);
            let _ = client.write_all(answer);
        }
    });
    format!("etcd://{address}")
}

/// P11: an address at which something else listens, or nothing.
/// The user sees: `Unreachable` or `Unsupported`, with the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_no_etcd() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [
        format!("etcd://{closed}"),
        serve(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        serve(b"-ERR unknown command\r\n"),
        serve(b""),
    ] {
        let place = url.trim_start_matches("etcd://").to_owned();
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::Unreachable, &[&place]);
    }
}

/// P11: a member that is no etcd does not keep the others from serving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_that_is_no_etcd() {
    let server = Etcd::start();
    let stranger = serve(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let locker = connect(&format!("{stranger},{}", server.address())).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// L16, L17: what etcd cannot keep is refused before anything is asked.
/// The user sees: `InvalidTtl`, with what is allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_etcd_cannot_keep() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    for (ms, words) in
        [(1000, "2s to"), (1500, "steps of 1s"), (2500, "steps of 1s"), (100, "2s to")]
    {
        let error = failure(&locker, NAME, ttl(Duration::from_millis(ms))).await;
        check_error(&error, ErrorKind::InvalidTtl, &[words]);
    }
    assert_eq!(server.keys(""), [""; 0]);
    hold(&locker, NAME, ttl(Duration::from_secs(2))).await.release().await.unwrap();
}

/// P11: a server with longer elections keeps leases longer than some are asked for: told, before
/// anything is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_keeps_leases_longer() {
    let setup = crate::kit::Setup::new().option("--election-timeout=4000");
    let server = setup.option("--heartbeat-interval=400").start();
    let locker = connect(&server.url()).await;
    let error = failure(&locker, NAME, ttl(Duration::from_secs(2))).await;
    check_error(&error, ErrorKind::InvalidTtl, &["6s to"]);
    assert_eq!(server.keys(""), [""; 0]);
    hold(&locker, NAME, ttl(Duration::from_secs(6))).await.release().await.unwrap();
}

/// What others wrote below the name of a lock, and no lease ends, is no claim that could be waited for.
/// The user sees: `ForeignKey`, with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_claims() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    for key in ["nightly/settings", "nightly/7d3c1f0a-1", "nightly/"] {
        server.ctl(&["put", key, "theirs"]);
        let error = failure(&locker, NAME, ttl(TTL)).await;
        check_error(&error, ErrorKind::ForeignKey, &[key, "delete"]);
        assert_eq!(server.keys(""), [key]);
        // P11: no other lock is harmed by it, also none whose name it could be part of.
        for other in ["night", "nightly2", "nightly/settings/more"] {
            hold(&locker, other, ttl(TTL)).await.release().await.unwrap();
        }
        server.ctl(&["del", key]);
    }
    // What is named like a claim is one, also without a lease: who wrote it wants to keep others out.
    server.ctl(&["put", "nightly/7d3c1f0a", "theirs"]);
    refusal(&locker, NAME).await;
    server.ctl(&["del", "nightly/7d3c1f0a"]);
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// A claim of somebody else with a value that is not ours is a claim all the same, and its holder is
/// shown as what is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_value_that_is_not_ours() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    for value in ["", "\u{1}\u{2}", "{\"not\": \"ours\"}", &"x".repeat(5000)] {
        let lease = crate::kit::foreign::grant_lease(&server, Duration::from_secs(60));
        server.ctl(&["put", &format!("--lease={lease}"), "--", &format!("{NAME}/{lease}"), value]);
        let refusal = refusal(&locker, NAME).await;
        assert_eq!(refusal.lock.holders.len(), 1, "{refusal}");
        assert!(!refusal.to_string().contains('\u{1}'));
        server.ctl(&["lease", "revoke", &lease]);
    }
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// Names that a key or a range could misread are just names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_only_names() {
    let server = Etcd::start();
    let locker = connect(&server.url()).await;
    let names = [
        "a",
        "A",
        "a/",
        "a/b",
        "a/b/c",
        "/a",
        "a0",
        "a/7d3c1f0a",
        "ä",
        "日本",
        "a b",
        "%2F",
        "\\",
        "\"",
        "a/0",
        "//",
        "-x",
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(hold(&locker, name, ttl(TTL)).await);
    }
    for (name, guard) in names.iter().zip(guards) {
        refusal(&locker, name).await;
        let released = guard.release().await.unwrap();
        assert!(matches!(released, lockfast::Released::Released), "{name}: {released:?}");
    }
    assert_eq!(server.keys(""), [""; 0]);
}

/// B105, P1, P11: a semaphore is asked for with another number of permits, in a line that is too long to
/// be seen at once.
/// The user sees: `Conflict`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_permits_in_a_long_line() {
    let server = Etcd::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut others = Vec::new();
    for number in 0..16 {
        // Its key comes before those of the lock.
        others.push(hold(&first, &format!("{NAME}/!{number}"), ttl(TTL)).await);
    }
    let permit = first.semaphore(NAME, 1).unwrap().with_options(ttl(TTL)).acquire().await.unwrap();
    let other = second.semaphore(NAME, 5).unwrap().with_options(ttl(TTL).wait_forever());
    let error = bounded(async { other.acquire().await }).await.unwrap_err();
    check_error(&error, ErrorKind::Conflict, &["the same way"]);
    let shared = second
        .any_lock(NAME, lockfast::Mode::Shared)
        .unwrap()
        .with_options(ttl(TTL).wait_forever());
    let error = bounded(async { shared.acquire().await }).await.unwrap_err();
    check_error(&error, ErrorKind::Conflict, &["the same way"]);
    assert_eq!(server.keys(&format!("{NAME}/")).len(), others.len() + 1, "nothing is left");
    permit.release().await.unwrap();
}
