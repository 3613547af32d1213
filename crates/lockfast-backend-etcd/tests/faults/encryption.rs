//! Certificates of servers and clients.

use std::time::Duration;

use lockfast::ErrorKind;
use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::url::encode;

use crate::kit::{Setup, check_error, connect, hold, refusal, try_connect, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);

fn path(path: &std::path::Path) -> String {
    encode(&path.display().to_string())
}

/// A server with a good certificate, with one that is not, and with one of a stranger.
/// The user sees: `TlsHandshake`, with what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_servers() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (flaw, trusted, words) in [
        (Flaw::None, &authority, None),
        (Flaw::None, &stranger, Some("certificate")),
        (Flaw::Expired, &authority, Some("expired")),
        (Flaw::WrongName, &authority, Some("127.0.0.1")),
    ] {
        let server = Setup::new().tls(&authority, flaw).start();
        let url = format!("etcds://{}?ca={}", server.address(), path(trusted.certificate()));
        match words {
            None => {
                let locker = connect(&url).await;
                let guard = hold(&locker, NAME, ttl(TTL)).await;
                refusal(&locker, NAME).await;
                guard.release().await.unwrap();
            }
            Some(words) => {
                let error = try_connect(&url).await.unwrap_err();
                check_error(&error, ErrorKind::TlsHandshake, &[words]);
            }
        }
    }
}

/// A server that wants certificates of its clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_clients() {
    let authority = Authority::new();
    let server = Setup::new().tls(&authority, Flaw::None).client_certificates().start();
    let client = authority.sign_client();
    let with_ca = format!("etcds://{}?ca={}", server.address(), path(authority.certificate()));
    let url = format!("{with_ca}&cert={}&key={}", path(&client.certificate), path(&client.key));
    let locker = connect(&url).await;
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    let error = try_connect(&with_ca).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &["certificate"]);
}

/// Plain text to a server that wants TLS, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_side_does_not_encrypt() {
    let authority = Authority::new();
    let encrypted = Setup::new().tls(&authority, Flaw::None).start();
    let error = try_connect(&encrypted.url()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &[&encrypted.address().to_string()]);
    let plain = Setup::new().start();
    let url = format!("etcds://{}?ca={}", plain.address(), path(authority.certificate()));
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[]);
}
