//! One connection: bytes out, replies in, and nothing that waits by itself.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use redis::ValueCodec;
use tokio_util::codec::Decoder as _;

use super::stream::{Readiness, Stream};
use super::{Failure, Pipeline, Reply, failure};
use crate::config::Endpoint;

/// The server's answers are small; what is larger is not from a lock.
const READ_BYTES: usize = 16 * 1024;

/// Something that arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// The reply to the oldest command that has none.
    Reply(Reply),
    /// The payload of a message on one of our channels.
    Push(Vec<u8>),
}

/// An open connection.
pub struct Connection {
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// How the runtime on which it was made knows that something can be read or written.
    pub(crate) readiness: Readiness,
}

/// The side that reads.
pub(crate) struct Incoming {
    endpoint: Endpoint,
    stream: Arc<Stream>,
    codec: ValueCodec,
    bytes: BytesMut,
    room: Box<[u8]>,
    /// Whether the operating system has nothing more for us at the moment.
    is_drained: bool,
}

/// The side that writes.
pub(crate) struct Outgoing {
    endpoint: Endpoint,
    stream: Arc<Stream>,
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    /// Takes the commands of a pipeline, which is empty afterwards.
    pub(crate) fn enqueue(&mut self, pipeline: &mut Pipeline) {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, &mut pipeline.bytes);
        } else {
            self.bytes.extend_from_slice(&pipeline.bytes);
        }
        pipeline.bytes.clear();
        pipeline.commands = 0;
    }

    /// Writes as much as the operating system takes; whether that was all.
    pub(crate) fn write(&mut self) -> Result<bool, Failure> {
        match self.write_all() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(failure::of_io(&self.endpoint, &error)),
        }
    }

    fn write_all(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        while self.written < self.bytes.len() {
            match self.stream.write(&self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.flush()?;
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }
}

impl Incoming {
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The operating system says that something can be read.
    pub(crate) fn rouse(&mut self) {
        self.is_drained = false;
    }

    /// The next thing that has arrived, if something has. After nothing, there is something
    /// again only after [`Incoming::rouse`].
    pub(crate) fn take(&mut self) -> Result<Option<Arrival>, Failure> {
        loop {
            while !self.bytes.is_empty() {
                match self.codec.decode(&mut self.bytes) {
                    Ok(Some(value)) => match Reply(value).into_push() {
                        Ok(Some(payload)) => return Ok(Some(Arrival::Push(payload))),
                        Ok(None) => {}
                        Err(reply) => return Ok(Some(Arrival::Reply(reply))),
                    },
                    Ok(None) => break,
                    Err(error) => return Err(failure::of_nonsense(error)),
                }
            }
            if self.is_drained {
                return Ok(None);
            }
            match self.stream.read(&mut self.room) {
                Ok(0) => return Err(failure::of_end(&self.endpoint)),
                Ok(count) => {
                    self.bytes.extend_from_slice(&self.room[..count]);
                    self.is_drained =
                        count < self.room.len() && self.stream.tells_end_by_short_read();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_drained = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure::of_io(&self.endpoint, &error)),
            }
        }
    }
}

impl Connection {
    /// A connection that the present runtime watches.
    pub(crate) fn new(endpoint: Endpoint, stream: Stream) -> Result<Self, Failure> {
        let stream = Arc::new(stream);
        let readiness =
            Readiness::new(&stream).map_err(|error| failure::of_io(&endpoint, &error))?;
        Ok(Self {
            incoming: Incoming {
                endpoint: endpoint.clone(),
                stream: Arc::clone(&stream),
                codec: ValueCodec::default(),
                bytes: BytesMut::with_capacity(READ_BYTES),
                room: vec![0; READ_BYTES].into(),
                is_drained: false,
            },
            outgoing: Outgoing { endpoint, stream, bytes: Vec::new(), written: 0 },
            readiness,
        })
    }

    /// The next thing that arrives.
    pub(crate) async fn arrival(&mut self) -> Result<Arrival, Failure> {
        loop {
            if let Some(arrival) = self.incoming.take()? {
                return Ok(arrival);
            }
            let ready = poll_fn(|context| self.readiness.poll_read(context)).await;
            ready.map_err(|error| failure::of_io(&self.incoming.endpoint, &error))?;
            self.incoming.rouse();
        }
    }

    /// Sends commands and waits for their replies; the first complaint is the result.
    pub async fn ask(&mut self, pipeline: Pipeline) -> Result<Vec<Reply>, Failure> {
        let replies = self.exchange(pipeline).await?;
        match replies.iter().find_map(Reply::failure) {
            Some(failure) => Err(failure),
            None => Ok(replies),
        }
    }

    /// Sends commands and waits for their replies, complaints among them.
    pub(crate) async fn exchange(&mut self, mut pipeline: Pipeline) -> Result<Vec<Reply>, Failure> {
        let expected = pipeline.commands();
        self.outgoing.enqueue(&mut pipeline);
        while !self.outgoing.write()? {
            let ready = poll_fn(|context| self.readiness.poll_write(context)).await;
            ready.map_err(|error| failure::of_io(&self.outgoing.endpoint, &error))?;
        }
        let mut replies = Vec::with_capacity(expected);
        while replies.len() < expected {
            if let Arrival::Reply(reply) = self.arrival().await? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }
}
