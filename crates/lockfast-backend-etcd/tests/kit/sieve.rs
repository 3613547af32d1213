//! A way to the server on which single messages are lost or come late, as a server with a defect and
//! a busy network lose and delay them: the connection stays as it is.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex as Queue;
use tokio::task::JoinHandle;

/// What a client of HTTP/2 sends before all frames.
const PREFACE_BYTES: usize = 24;
/// The head of a frame, and the kinds that matter.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
/// The flag of the last frame of a stream, and of headers that are whole.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// That a request succeeded, spelt out: how the server writes it depends on what it wrote before.
const SUCCESS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Where frames are written to.
type Exit = Arc<Queue<OwnedWriteHalf>>;

/// Forwards everything but what is to be lost, and what is kept back.
#[derive(Debug)]
pub struct Sieve {
    pub address: SocketAddr,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Rules {
    /// What is lost next, if anything is to be.
    lost: Mutex<Option<Vec<u8>>>,
    kept: Mutex<Vec<Arc<Rule>>>,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Request,
    Answer,
}

/// A message that is to be kept back: the next request that contains something, or the answer to it.
#[derive(Debug)]
struct Rule {
    part: Vec<u8>,
    way: Way,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The connection that the request came over, and its stream on that.
    stream: Option<(usize, u32)>,
    /// What is kept, and where it is to go.
    frames: Vec<u8>,
    exit: Option<Exit>,
    is_free: bool,
    is_answered: bool,
}

/// What is kept back, until it is let go.
#[derive(Debug)]
pub struct Kept(Arc<Rule>);

/// A piece of a connection.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    bytes: Vec<u8>,
}

impl Sieve {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rules = Arc::new(Rules::default());
        let known = Arc::clone(&rules);
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((client, _)) = listener.accept().await {
                number += 1;
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let (requests, to_client) = client.into_split();
                let (answers, to_server) = server.into_split();
                tokio::spawn(forward_requests(requests, to_server, Arc::clone(&known), number));
                tokio::spawn(forward_answers(answers, to_client, Arc::clone(&known), number));
            }
        });
        Self { address, rules, task }
    }

    /// The next message from the server that contains this is lost.
    pub fn lose(&self, part: &str) {
        *lock(&self.rules.lost) = Some(part.into());
    }

    /// Whether it is lost by now.
    pub fn has_lost(&self) -> bool {
        lock(&self.rules.lost).is_none()
    }

    /// The next request that contains this is kept back, with all that follows on its stream.
    pub fn keep_request(&self, part: impl Into<Vec<u8>>) -> Kept {
        self.keep(part.into(), Way::Request)
    }

    /// The answer to the next request that contains this is kept back.
    pub fn keep_answer(&self, part: impl Into<Vec<u8>>) -> Kept {
        self.keep(part.into(), Way::Answer)
    }

    fn keep(&self, part: Vec<u8>, way: Way) -> Kept {
        let rule = Arc::new(Rule { part, way, state: Mutex::default() });
        lock(&self.rules.kept).push(Arc::clone(&rule));
        Kept(rule)
    }
}

impl Drop for Sieve {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kept {
    /// Whether something is kept back by now.
    pub fn is_kept(&self) -> bool {
        !lock(&self.0.state).frames.is_empty()
    }

    /// Whether a request that was let go is answered.
    pub fn is_answered(&self) -> bool {
        lock(&self.0.state).is_answered
    }

    /// Delivers it, and all that follows.
    pub async fn let_go(&self) {
        let exit = lock(&self.0.state).exit.clone().unwrap();
        let mut exit = exit.lock().await;
        let frames = {
            let mut state = lock(&self.0.state);
            state.is_free = true;
            std::mem::take(&mut state.frames)
        };
        exit.write_all(&frames).await.unwrap();
    }
}

impl Rules {
    /// Whether a frame is kept back, or of no use any more.
    fn keeps(&self, frame: &Frame, way: Way, number: usize, exit: &Exit) -> bool {
        let place = Some((number, frame.stream));
        for rule in lock(&self.kept).iter() {
            let mut state = lock(&rule.state);
            if way == Way::Request && state.stream.is_none() && rule.is_in(frame) {
                state.stream = place;
            }
            if state.stream != place || frame.stream == 0 {
                continue;
            }
            if rule.way != way {
                state.is_answered |= way == Way::Answer;
                continue;
            }
            if way == Way::Request && frame.kind == RST_STREAM {
                // Whoever gave it up does not keep it from arriving.
                return true;
            }
            let is_last = frame.flags & END_STREAM != 0;
            if state.is_free || !(frame.kind == DATA || frame.kind == HEADERS && is_last) {
                continue;
            }
            match frame.kind == HEADERS && !state.frames.is_empty() {
                true => state.frames.extend(Frame::success(frame.stream)),
                false => state.frames.extend_from_slice(&frame.bytes),
            }
            state.exit = Some(Arc::clone(exit));
            return true;
        }
        false
    }

    /// Whether this is what is to be lost.
    fn loses(&self, frame: &Frame) -> bool {
        let mut lost = lock(&self.lost);
        let is_it = frame.kind == DATA && lost.as_ref().is_some_and(|part| frame.contains(part));
        if is_it {
            *lost = None;
        }
        is_it
    }
}

impl Rule {
    fn is_in(&self, frame: &Frame) -> bool {
        frame.kind == DATA && frame.contains(&self.part)
    }
}

impl Frame {
    async fn read(from: &mut OwnedReadHalf) -> Option<Self> {
        let mut bytes = vec![0; HEAD_BYTES];
        from.read_exact(&mut bytes).await.ok()?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        let (kind, flags) = (bytes[3], bytes[4]);
        bytes.resize(HEAD_BYTES + length, 0);
        from.read_exact(&mut bytes[HEAD_BYTES..]).await.ok()?;
        Some(Self { kind, flags, stream, bytes })
    }

    /// The end of an answer.
    fn success(stream: u32) -> Vec<u8> {
        let head = [0, 0, SUCCESS.len() as u8, HEADERS, END_STREAM | END_HEADERS];
        [&head, stream.to_be_bytes().as_slice(), SUCCESS].concat()
    }

    fn contains(&self, part: &[u8]) -> bool {
        self.bytes[HEAD_BYTES..].windows(part.len()).any(|it| it == part)
    }
}

async fn forward_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    rules: Arc<Rules>,
    number: usize,
) {
    let mut preface = [0; PREFACE_BYTES];
    if from.read_exact(&mut preface).await.is_err() || to.write_all(&preface).await.is_err() {
        return;
    }
    let exit = Arc::new(Queue::new(to));
    while let Some(frame) = Frame::read(&mut from).await {
        let is_kept = rules.keeps(&frame, Way::Request, number, &exit);
        if !is_kept && exit.lock().await.write_all(&frame.bytes).await.is_err() {
            return;
        }
    }
    let _ = exit.lock().await.shutdown().await;
}

async fn forward_answers(
    mut from: OwnedReadHalf,
    to: OwnedWriteHalf,
    rules: Arc<Rules>,
    number: usize,
) {
    let exit = Arc::new(Queue::new(to));
    while let Some(frame) = Frame::read(&mut from).await {
        let is_gone = rules.loses(&frame) || rules.keeps(&frame, Way::Answer, number, &exit);
        if !is_gone && exit.lock().await.write_all(&frame.bytes).await.is_err() {
            return;
        }
    }
    let _ = exit.lock().await.shutdown().await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
