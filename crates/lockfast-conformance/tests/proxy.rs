//! The proxy does to a connection what it says, shown on a small echo server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::proxy::{Link, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(80);

/// A server that answers every byte with the same byte, and remembers what it got.
struct Echo {
    address: SocketAddr,
    got: Arc<Mutex<Vec<u8>>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&got);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut chunk = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
                        log.lock().unwrap().extend(&chunk[..length]);
                        if stream.write_all(&chunk[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, got }
    }

    fn got(&self) -> Vec<u8> {
        self.got.lock().unwrap().clone()
    }

    async fn wait_until_got(&self, expected: &[u8]) {
        let start = Moment::now();
        while self.got() != expected {
            assert!(Moment::now().since(start) < PATIENCE, "got {:?}", self.got());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn start() -> (Echo, Proxy, TcpStream) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.address).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    exchange(&mut client, b"a").await;
    (echo, proxy, client)
}

async fn exchange(client: &mut TcpStream, byte: &[u8; 1]) {
    client.write_all(byte).await.unwrap();
    assert_eq!(hear(client).await.unwrap(), byte[0]);
}

async fn hear(client: &mut TcpStream) -> std::io::Result<u8> {
    tokio::time::timeout(PATIENCE, client.read_u8()).await.expect("an answer in time")
}

async fn assert_silent(client: &mut TcpStream) {
    let heard = tokio::time::timeout(QUIET, client.read_u8()).await;
    assert!(heard.is_err(), "heard {heard:?}");
}

#[tokio::test]
async fn cutting_closes_or_resets() {
    let (_echo, proxy, mut client) = start().await;
    proxy.set(Link::Close);
    let error = hear(&mut client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(hear(&mut refused).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    proxy.set(Link::Pass);
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    exchange(&mut again, b"b").await;
    proxy.set(Link::Reset);
    assert_eq!(hear(&mut again).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.accepted(), 3);
}

#[tokio::test]
async fn a_stalled_link_loses_nothing() {
    let (echo, proxy, mut client) = start().await;
    proxy.set(Link::Stall);
    client.write_all(b"b").await.unwrap();
    assert_silent(&mut client).await;
    assert_eq!(echo.got(), b"a");
    proxy.set(Link::Pass);
    assert_eq!(hear(&mut client).await.unwrap(), b'b');
}

#[tokio::test]
async fn a_half_open_link_swallows_everything_and_stays_open() {
    let (echo, proxy, mut client) = start().await;
    proxy.set(Link::HalfOpen);
    client.write_all(b"b").await.unwrap();
    assert_silent(&mut client).await;
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    other.write_all(b"c").await.unwrap();
    assert_silent(&mut other).await;
    proxy.set(Link::Pass);
    exchange(&mut client, b"d").await;
    assert_eq!(echo.got(), b"ad");
}

#[tokio::test]
async fn a_delay_is_a_delay_and_keeps_the_order() {
    let (_echo, proxy, mut client) = start().await;
    let delay = Duration::from_millis(60);
    proxy.set(Link::Delay(delay));
    let start = Moment::now();
    for byte in b"bcd" {
        client.write_all(&[*byte]).await.unwrap();
    }
    for byte in b"bcd" {
        assert_eq!(hear(&mut client).await.unwrap(), *byte);
    }
    assert!(Moment::now().since(start) >= delay * 2, "once in each direction");
}

#[tokio::test]
async fn a_swallowed_reply_was_acted_upon() {
    let (echo, proxy, mut client) = start().await;
    proxy.set(Link::SwallowReplies);
    client.write_all(b"b").await.unwrap();
    echo.wait_until_got(b"ab").await;
    assert_silent(&mut client).await;
    proxy.set_open(Link::Close);
    assert_eq!(hear(&mut client).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn held_requests_arrive_after_those_of_a_later_connection() {
    let (echo, proxy, mut client) = start().await;
    proxy.set_open(Link::HoldRequests);
    client.write_all(b"b").await.unwrap();
    assert_silent(&mut client).await;
    drop(client);
    let mut later = TcpStream::connect(proxy.address()).await.unwrap();
    exchange(&mut later, b"c").await;
    assert_eq!(echo.got(), b"ac");
    proxy.set_open(Link::Pass);
    echo.wait_until_got(b"acb").await;
}
