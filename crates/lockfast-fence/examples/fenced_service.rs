//! A service on axum that keeps an account, behind the layer that checks fences. A client that has lost
//! its lock and does not know it is refused, with 409 and the fence that was seen.
//!
//! ```text
//! cargo run -p lockfast-fence --example fenced_service
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use http::request::Parts;
use lockfast::fence::http::FenceLayer;
use lockfast::{Fence, LockName, Locker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Balance = Arc<AtomicI64>;

/// Which lock guards a request: writes need the fence of "account/7", reads need none.
fn lock_of(request: &Parts) -> lockfast::Result<Option<LockName>> {
    match request.method == "PUT" {
        true => LockName::new("account/7").map(Some),
        false => Ok(None),
    }
}

async fn read(State(balance): State<Balance>) -> String {
    balance.load(Ordering::SeqCst).to_string()
}

async fn write(State(balance): State<Balance>, body: String) -> StatusCode {
    let Ok(new) = body.parse() else { return StatusCode::UNPROCESSABLE_ENTITY };
    balance.store(new, Ordering::SeqCst);
    StatusCode::NO_CONTENT
}

/// The service. Its handlers know nothing of fences.
fn accounts() -> Router {
    Router::new()
        .route("/accounts/7", get(read).put(write))
        .layer(FenceLayer::new(lock_of))
        .with_state(Balance::new(AtomicI64::new(100)))
}

/// Sends a request, as any client of HTTP would; the whole answer.
async fn send(to: SocketAddr, method: &str, fence: Option<Fence>, body: &str) -> Outcome<String> {
    let fence = fence.map(|fence| format!("Fencing-Token: {fence}\r\n")).unwrap_or_default();
    let request = format!(
        "{method} /accounts/7 HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{fence}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(to).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The answers to the write of the second client, to the late one of the first, and to a read.
pub(crate) async fn write_late() -> Outcome<[String; 3]> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let service = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, accounts()).await });
    let account = Locker::connect("memory:").await?.mutex("account/7")?;

    // The first client is paused: nobody renews its lease, and it ends.
    let paused = account.clone().ttl(Duration::from_millis(200)).acquire_detached().await?;
    // The second waits for that, and writes.
    let guard = account.acquire().await?;
    let written = send(service, "PUT", Some(guard.fence()), "150").await?;
    guard.release().await?;
    // The first goes on and writes, too late.
    let refused = send(service, "PUT", Some(paused.fence), "110").await?;
    Ok([written, refused, send(service, "GET", None, "").await?])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    for answer in write_late().await? {
        println!("{answer}\n");
    }
    Ok(())
}
