//! A service on axum of which several copies run. Two requests for one order never work at the same time,
//! whichever copies they reach; who finds it busy for too long is told so and comes again.
//!
//! ```text
//! cargo run --example order_service
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lockfast::{ErrorKind, Locker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What a lock met, as an answer.
struct Unlocked(lockfast::Error);

impl From<lockfast::Error> for Unlocked {
    fn from(error: lockfast::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Unlocked {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::Taken => StatusCode::CONFLICT,
            ErrorKind::Lost | ErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

/// Ships an order under its lock. When the lock is lost, the work is dropped where it stands.
async fn ship(State(locker): State<Locker>, Path(order): Path<u32>) -> Result<String, Unlocked> {
    let lock = locker.mutex(format!("order/{order}"))?.wait(Duration::from_millis(200));
    let work = |lease: lockfast::Lease| async move {
        format!("order {order} shipped with fence {}", lease.fence()) // send it along with each write
    };
    Ok(lock.run(work).await?)
}

/// One copy of the service. All have the same store.
fn orders(locker: Locker) -> Router {
    Router::new().route("/orders/{order}/ship", post(ship)).with_state(locker)
}

/// Sends a request, as any client of HTTP would; the whole answer.
async fn ask_to_ship(to: SocketAddr, order: u32) -> Outcome<String> {
    let request = format!(
        "POST /orders/{order}/ship HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let mut connection = TcpStream::connect(to).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The answers for an order that another copy works on, and for one that is free.
pub(crate) async fn ship_two() -> Outcome<[String; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let service = listener.local_addr()?;
    let locker = Locker::connect("memory:orders").await?;
    tokio::spawn(async move { axum::serve(listener, orders(locker)).await });

    let other_copy = Locker::connect("memory:orders").await?;
    let busy = other_copy.lock("order/7").await?;
    let answers = [ask_to_ship(service, 7).await?, ask_to_ship(service, 8).await?];
    busy.release().await?;
    Ok(answers)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    for answer in ship_two().await? {
        println!("{answer}\n");
    }
    Ok(())
}
