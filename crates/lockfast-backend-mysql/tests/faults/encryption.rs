//! TLS: who is not who they say they are is not spoken to, and the error says why.

use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_conformance::fault::url::encode;

use crate::kit::certificate::{Authority, Flaw};
use crate::kit::{MariaDb, Setup, check_error, connect, hold, prepare, try_connect, ttl};

const TTL: Duration = Duration::from_secs(6);

fn with_ca(url: &str, authority: &Authority) -> String {
    let ca = encode(&authority.certificate().display().to_string());
    format!("{url}?tls=yes&ca={ca}")
}

/// With its own authority, also for a user who must encrypt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_server() {
    let authority = Authority::new();
    let mariadb = Setup::new().tls(&authority.sign_server(Flaw::None)).start();
    let url = prepare(&mariadb).await;
    mariadb.sql("ALTER USER locks REQUIRE SSL");
    check_error(&try_connect(&url).await.unwrap_err(), ErrorKind::Permission, &["access denied"]);
    let locker = connect(&with_ca(&url, &authority)).await;
    let guard = hold(&locker, "nightly", ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
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
        let mariadb = Setup::new().tls(&signer.sign_server(flaw)).start();
        let url = prepare(&mariadb).await;
        let error = try_connect(&with_ca(&url, &authority)).await.unwrap_err();
        check_error(&error, ErrorKind::TlsHandshake, &[words, &mariadb.address().to_string()]);
        connect(&format!("{url}?tls=yes&insecure=true")).await;
    }
}

/// TLS where the server speaks none, and files that are not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_that_cannot_be_had() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    let error = try_connect(&format!("{url}?tls=yes&insecure=true")).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[&mariadb.address().to_string()]);
    let error = try_connect(&format!("{url}?tls=yes&ca=/nowhere.pem")).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["ca", "/nowhere.pem"]);
}
