//! A way to the server on which single messages are lost, as a server with a defect loses them: the
//! connection stays as it is.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The head of a frame of HTTP/2, and the kind that carries messages.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;

/// What is lost next, if anything is to be.
type Wanted = Arc<Mutex<Option<Vec<u8>>>>;

/// Forwards everything but what is to be lost.
#[derive(Debug)]
pub struct Sieve {
    pub address: SocketAddr,
    wanted: Wanted,
    task: JoinHandle<()>,
}

impl Sieve {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let wanted = Wanted::default();
        let lost = Arc::clone(&wanted);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                let (mut requests, client) = client.into_split();
                let (answers, mut server) = server.into_split();
                tokio::spawn(async move { copy(&mut requests, &mut server).await });
                tokio::spawn(forward(answers, client, Arc::clone(&lost)));
            }
        });
        Self { address, wanted, task }
    }

    /// The next message from the server that contains this is lost.
    pub fn lose(&self, part: &str) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(part.into());
    }

    /// Whether it is lost by now.
    pub fn has_lost(&self) -> bool {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Drop for Sieve {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wanted: Wanted) {
    let mut head = [0; HEAD_BYTES];
    while from.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut body = vec![0; length];
        if from.read_exact(&mut body).await.is_err() {
            return;
        }
        if head[3] == DATA && takes(&wanted, &body) {
            continue;
        }
        if to.write_all(&[&head, body.as_slice()].concat()).await.is_err() {
            return;
        }
    }
}

/// Whether this is what is to be lost.
fn takes(wanted: &Wanted, body: &[u8]) -> bool {
    let mut wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = wanted.as_ref().is_some_and(|part| body.windows(part.len()).any(|it| it == part));
    if is_it {
        *wanted = None;
    }
    is_it
}
