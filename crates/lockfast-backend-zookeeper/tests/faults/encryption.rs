//! Servers with TLS.

use std::time::Duration;

use lockfast::ErrorKind;
use lockfast_faults::certificate::{Authority, Flaw};

use crate::kit::{Setup, ZooKeeper, check_error, connect, hold, refusal, try_connect, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(5);

fn start(authority: &Authority, flaw: Flaw, asks_clients: bool) -> ZooKeeper {
    Setup::new().tls(authority, authority.sign_server(flaw), asks_clients).start()
}

fn url(server: &ZooKeeper, options: &str) -> String {
    format!("zookeepers://{}?{options}", server.secure_address())
}

/// Locks are the same with TLS and without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_server() {
    let authority = Authority::new();
    let server = start(&authority, Flaw::None, false);
    let encrypted = url(&server, &format!("ca={}", authority.certificate().display()));
    let (secret, plain) = (connect(&encrypted).await, connect(&server.url()).await);
    let guard = hold(&secret, NAME, ttl(TTL)).await;
    refusal(&plain, NAME).await;
    guard.release().await.unwrap();
    hold(&plain, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// A server that wants a certificate of its clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_who_one_is() {
    let authority = Authority::new();
    let server = start(&authority, Flaw::None, true);
    let ca = format!("ca={}", authority.certificate().display());
    let own = authority.sign_client();
    let shown = format!("{ca}&cert={}&key={}", own.certificate.display(), own.key.display());
    hold(&connect(&url(&server, &shown)).await, NAME, ttl(TTL)).await.release().await.unwrap();
    let error = try_connect(&url(&server, &ca)).await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
}

/// Whoever is not who it says it is, is not talked to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_bad_certificate() {
    let authority = Authority::new();
    for flaw in [Flaw::Expired, Flaw::WrongName] {
        let server = start(&authority, flaw, false);
        let ca = format!("ca={}", authority.certificate().display());
        let error = try_connect(&url(&server, &ca)).await.unwrap_err();
        assert!(error.to_string().to_lowercase().contains("certificate"), "{flaw:?}: {error}");
    }
    let server = start(&authority, Flaw::None, false);
    let stranger = Authority::new();
    let ca = format!("ca={}", stranger.certificate().display());
    let error = try_connect(&url(&server, &ca)).await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    // The port without TLS, and the port with it.
    let error = try_connect(&format!("zookeepers://{}?{ca}", server.address())).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[]);
    let plain = format!("zookeeper://{}", server.secure_address());
    check_error(&try_connect(&plain).await.unwrap_err(), ErrorKind::Unreachable, &[]);
}
