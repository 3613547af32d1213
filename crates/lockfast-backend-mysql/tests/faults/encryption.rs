//! TLS: who is not who they say they are is not spoken to, and the error says why.

use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_faults::url::encode;

use crate::kit::certificate::{Authority, Flaw};
use crate::kit::{
    Flavor, check_error, connect, hold, prepare, setup, start_server, try_connect, ttl,
};

const TTL: Duration = Duration::from_secs(6);

fn with_ca(url: &str, authority: &Authority) -> String {
    let ca = encode(&authority.certificate().display().to_string());
    format!("{url}?tls=yes&ca={ca}")
}

/// With its own authority, also for a user who must encrypt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_server() {
    let authority = Authority::new();
    let server = setup().tls(&authority.sign_server(Flaw::None)).start();
    let url = prepare(&server).await;
    server.sql("ALTER USER locks REQUIRE SSL");
    check_error(&try_connect(&url).await.unwrap_err(), ErrorKind::Permission, &["access denied"]);
    let locker = connect(&with_ca(&url, &authority)).await;
    let guard = hold(&locker, "nightly", ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// B32: a server that takes encrypted connections only says so, and the error says what to add.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_connection_is_refused() {
    let authority = Authority::new();
    let server = setup().tls(&authority.sign_server(Flaw::None)).start();
    let url = prepare(&server).await;
    server.sql("SET GLOBAL require_secure_transport = ON");
    let error = try_connect(&url).await.unwrap_err();
    // MariaDB says no more than "access denied".
    let kind = match crate::FLAVOR {
        Flavor::MariaDb => ErrorKind::Permission,
        Flavor::MySql => ErrorKind::TlsHandshake,
    };
    check_error(&error, kind, &["tls=yes"]);
    connect(&with_ca(&url, &authority)).await;
}

/// An expired certificate, one of another host, and one of an unknown authority.
/// The user sees: `TlsHandshake` with the reason and the address; `insecure=true` takes any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_trusted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (signer, flaw, words) in [
        (&authority, Flaw::Expired, "expired"),
        (&authority, Flaw::WrongName, "name"),
        (&stranger, Flaw::None, "issuer"),
    ] {
        let server = setup().tls(&signer.sign_server(flaw)).start();
        let url = prepare(&server).await;
        let error = try_connect(&with_ca(&url, &authority)).await.unwrap_err();
        check_error(&error, ErrorKind::TlsHandshake, &[words, &server.address().to_string()]);
        connect(&format!("{url}?tls=yes&insecure=true")).await;
    }
}

/// TLS where the server speaks none, and files that are not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_that_cannot_be_had() {
    let server = match crate::FLAVOR {
        Flavor::MariaDb => start_server(),
        // It makes itself a certificate otherwise.
        Flavor::MySql => setup().option("--tls-version=").start(),
    };
    let url = prepare(&server).await;
    let error = try_connect(&format!("{url}?tls=yes&insecure=true")).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[&server.address().to_string()]);
    let error = try_connect(&format!("{url}?tls=yes&ca=/nowhere.pem")).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["ca", "/nowhere.pem"]);
}
