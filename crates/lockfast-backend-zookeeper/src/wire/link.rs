//! One connection: frames in and out.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::dial::Identity;
use crate::failure::{self, Failure};

/// How much may be read at once.
const READ_BYTES: usize = 16 * 1024;
/// Longer frames are no answers of a server that has `jute.maxbuffer` as it comes, times 64.
const FRAME_BYTES_MAX: usize = 64 << 20;
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// The numbers of requests, and of those that answer to no request.
pub(super) mod op {
    use super::super::jute::Writer;

    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE: i32 = -11;

    /// Those on which the servers have to agree.
    pub(crate) const CHANGES: [i32; 6] =
        [CREATE, DELETE, SET_DATA, MULTI, CREATE2, CREATE_CONTAINER];

    pub(crate) const NOTIFICATION_XID: i32 = -1;
    pub(crate) const PING_XID: i32 = -2;
    pub(crate) const AUTH_XID: i32 = -4;

    /// Of a node, however often it was changed.
    pub(crate) const ANY_VERSION: i32 = -1;

    /// Several requests in one, of which all or none are done.
    pub(crate) fn transaction(parts: impl IntoIterator<Item = (i32, Writer)>) -> Writer {
        let mut body = Vec::new();
        for (code, part) in parts {
            body.extend(Writer::default().int(code).bool(false).int(-1).into_bytes());
            body.extend(part.into_bytes());
        }
        body.extend(Writer::default().int(-1).bool(true).int(-1).into_bytes());
        Writer::from(body)
    }

    /// A transaction that changes nothing.
    pub(crate) fn no_change(path: &str) -> Writer {
        transaction([(CHECK, Writer::default().text(path).int(ANY_VERSION))])
    }

    /// A request with its header and length.
    pub(crate) fn frame(xid: i32, code: i32, body: Vec<u8>) -> Vec<u8> {
        let mut record = Writer::default().int(xid).int(code).into_bytes();
        record.extend(body);
        Writer::default().bytes(&record).into_bytes()
    }
}

/// The server has answered who we are.
pub(super) fn note_login(error: i32) {
    if error != 0 {
        tracing::warn!("the server did not accept user and password");
    }
}

/// What a connection is made of.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}
pub(super) type Stream = Box<dyn Duplex>;

/// A connection to a server.
pub(super) struct Link {
    stream: Stream,
    pub(super) identity: Identity,
    pub(super) endpoint: String,
    chunk: Box<[u8]>,
    read: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
    to_write: Vec<u8>,
    /// How much of it was written.
    written: usize,
}

/// What a connection has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something has arrived.
    Read,
    /// All that was to be written is.
    Wrote,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(stream: Stream, endpoint: String) -> Self {
        let identity = Identity::new(Duration::ZERO);
        let chunk = vec![0; READ_BYTES].into_boxed_slice();
        let (read, to_write) = (Vec::new(), Vec::new());
        Self { stream, identity, endpoint, chunk, read, taken: 0, to_write, written: 0 }
    }

    /// Adds something to what is to be written.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        if self.written > READ_BYTES {
            self.to_write.drain(..std::mem::take(&mut self.written));
        }
        self.to_write.extend(bytes);
    }

    /// How much is still to be written.
    pub(super) fn queued(&self) -> usize {
        self.to_write.len() - self.written
    }

    /// Writes what is to be written and reads what has arrived, whichever can be done: a server that
    /// is busy may take nothing for a while, and answer. To be dropped while it waits loses nothing.
    pub(super) async fn exchange(&mut self) -> Result<Progress, Failure> {
        self.read.drain(..std::mem::take(&mut self.taken));
        let done = poll_fn(|context| self.poll_exchange(context)).await;
        done.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                failure::of_break(format!("{} closed the connection", self.endpoint))
            }
            _ => failure::of_break(format!("{} broke off: {error}", self.endpoint)),
        })
    }

    fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Progress>> {
        let mut stream = Pin::new(&mut self.stream);
        if !self.to_write.is_empty() {
            while self.written < self.to_write.len() {
                let rest = &self.to_write[self.written..];
                match stream.as_mut().poll_write(context, rest)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(count) => self.written += count,
                    Poll::Pending => break,
                }
            }
            if self.written == self.to_write.len()
                && stream.as_mut().poll_flush(context)?.is_ready()
            {
                self.to_write.clear();
                self.written = 0;
                return Poll::Ready(Ok(Progress::Wrote));
            }
        }
        let mut chunk = ReadBuf::new(&mut self.chunk);
        match stream.poll_read(context, &mut chunk)? {
            Poll::Ready(()) if chunk.filled().is_empty() => {
                Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(()) => {
                self.read.extend_from_slice(chunk.filled());
                Poll::Ready(Ok(Progress::Read))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Writes something now.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.queue(bytes);
        while !self.to_write.is_empty() {
            self.exchange().await?;
        }
        Ok(())
    }

    /// The next frame of what was read, if it is whole.
    pub(super) fn next_frame(&mut self, most: usize) -> Result<Option<&[u8]>, Failure> {
        let rest = &self.read[self.taken..];
        let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > most {
            let what = format!("{} sent what is no reply of ZooKeeper", self.endpoint);
            return Err(failure::of_nonsense(&what));
        }
        if rest.len() < 4 + length {
            return Ok(None);
        }
        let start = self.taken + 4;
        self.taken = start + length;
        Ok(Some(&self.read[start..self.taken]))
    }

    /// The next reply or notification of what was read.
    pub(super) fn next_reply(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.next_frame(FRAME_BYTES_MAX)
    }

    /// Waits for one frame.
    pub(super) async fn read_frame(&mut self, most: usize) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(frame) = self.next_frame(most)? {
                return Ok(frame.to_vec());
            }
            self.exchange().await?;
        }
    }

    /// Ends the session, if the server listens.
    pub(super) async fn close(&mut self) {
        let closing = async {
            self.write(&op::frame(0, op::CLOSE, Vec::new())).await?;
            loop {
                self.exchange().await?;
                while self.next_reply()?.is_some() {}
            }
        };
        // The server closes the connection when it has ended the session.
        let _: Result<Result<(), Failure>, _> = timeout(CLOSE_LIMIT, closing).await;
    }
}
