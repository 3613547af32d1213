//! TLS: who is not who they say they are is not spoken to, and the error says why.

use std::time::Duration;

use lockfast::{ErrorKind, Released};

use crate::kit::certificate::{Authority, Flaw};
use crate::kit::encode;
use crate::kit::{Redis, Setup, check_error, connect, hold, try_connect, ttl};

const TTL: Duration = Duration::from_secs(6);

/// With its own authority, and with a certificate of the client where the server asks for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_server() {
    let authority = Authority::new();
    for asks_clients in [false, true] {
        let server = authority.sign_server(Flaw::None);
        let redis = Setup::new().tls(&authority, server, asks_clients).start();
        let mut url = redis.url();
        if asks_clients {
            check_error(&try_connect(&url).await.unwrap_err(), ErrorKind::TlsHandshake, &[]);
            let client = authority.sign_client();
            let file = |path: &std::path::Path| encode(&path.display().to_string());
            url += &format!("&cert={}&key={}", file(&client.certificate), file(&client.key));
        }
        let locker = connect(&url).await;
        let guard = hold(&locker, "nightly", ttl(TTL)).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}

/// An expired certificate, one of another host, and one of an unknown authority.
/// The user sees: `TlsHandshake` with the reason and the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_trusted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (signer, flaw, words) in [
        (&authority, Flaw::Expired, "expired"),
        (&authority, Flaw::WrongName, "name"),
        (&stranger, Flaw::None, "issuer"),
    ] {
        let redis = Setup::new().tls(signer, signer.sign_server(flaw), false).start();
        let ca = encode(&authority.certificate().display().to_string());
        let url = format!("rediss://{}?ca={ca}", redis.address());
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, ErrorKind::TlsHandshake, &[words, &redis.address().to_string()]);
    }
}

/// TLS where the server speaks none, and none where it wants TLS.
/// The user sees: `TlsHandshake`, and `Unreachable`, with the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_scheme() {
    let plain = Redis::start();
    let address = plain.address().to_string();
    let error = try_connect(&format!("rediss://{address}")).await.unwrap_err();
    check_error(&error, ErrorKind::TlsHandshake, &[&address]);

    let authority = Authority::new();
    let server = authority.sign_server(Flaw::None);
    let encrypted = Setup::new().tls(&authority, server, false).start();
    let address = encrypted.address().to_string();
    let error = try_connect(&format!("redis://{address}")).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &[&address]);
}
