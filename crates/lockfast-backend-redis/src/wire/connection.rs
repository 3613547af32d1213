//! One connection: bytes out, replies in, and nothing that waits by itself.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use redis::ValueCodec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Decoder as _;
use tokio_util::io::poll_read_buf;

use super::{Failure, Pipeline, Reply};
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
pub(crate) struct Connection {
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
}

/// The side that reads.
pub(crate) struct Incoming {
    endpoint: Endpoint,
    stream: Box<dyn AsyncRead + Send + Unpin>,
    codec: ValueCodec,
    bytes: BytesMut,
}

/// The side that writes.
pub(crate) struct Outgoing {
    endpoint: Endpoint,
    stream: Box<dyn AsyncWrite + Send + Unpin>,
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

    /// Writes as much as the operating system takes.
    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let failed = |endpoint: &Endpoint, error| Failure::of_io(endpoint, &error);
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest)) {
                Ok(0) => return Poll::Ready(Err(Failure::of_end(&self.endpoint))),
                Ok(count) => self.written += count,
                Err(error) => return Poll::Ready(Err(failed(&self.endpoint, error))),
            }
        }
        if let Err(error) = ready!(Pin::new(&mut self.stream).poll_flush(context)) {
            return Poll::Ready(Err(failed(&self.endpoint, error)));
        }
        self.bytes.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl Incoming {
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next thing that arrives.
    pub(crate) fn poll_arrival(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Arrival, Failure>> {
        loop {
            while !self.bytes.is_empty() {
                match self.codec.decode(&mut self.bytes) {
                    Ok(Some(value)) => match Reply(value).into_push() {
                        Ok(Some(payload)) => return Poll::Ready(Ok(Arrival::Push(payload))),
                        Ok(None) => {}
                        Err(reply) => return Poll::Ready(Ok(Arrival::Reply(reply))),
                    },
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(Failure::of_nonsense(error))),
                }
            }
            self.bytes.reserve(READ_BYTES);
            let stream = Pin::new(&mut self.stream);
            match ready!(poll_read_buf(stream, context, &mut self.bytes)) {
                Ok(0) => return Poll::Ready(Err(Failure::of_end(&self.endpoint))),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(Failure::of_io(&self.endpoint, &error))),
            }
        }
    }

    /// The next thing that arrives.
    pub(crate) async fn arrival(&mut self) -> Result<Arrival, Failure> {
        poll_fn(|context| self.poll_arrival(context)).await
    }
}

impl Connection {
    pub(crate) fn new(
        endpoint: Endpoint,
        (reader, writer): (
            impl AsyncRead + Send + Unpin + 'static,
            impl AsyncWrite + Send + Unpin + 'static,
        ),
    ) -> Self {
        Self {
            incoming: Incoming {
                endpoint: endpoint.clone(),
                stream: Box::new(reader),
                codec: ValueCodec::default(),
                bytes: BytesMut::with_capacity(READ_BYTES),
            },
            outgoing: Outgoing {
                endpoint,
                stream: Box::new(writer),
                bytes: Vec::new(),
                written: 0,
            },
        }
    }

    /// Sends commands and waits for their replies; the first complaint is the result.
    pub(crate) async fn ask(&mut self, mut pipeline: Pipeline) -> Result<Vec<Reply>, Failure> {
        let expected = pipeline.commands();
        self.outgoing.enqueue(&mut pipeline);
        poll_fn(|context| self.outgoing.poll_write(context)).await?;
        let mut replies = Vec::with_capacity(expected);
        while replies.len() < expected {
            if let Arrival::Reply(reply) = self.incoming.arrival().await? {
                replies.push(reply);
            }
        }
        match replies.iter().find_map(Reply::failure) {
            Some(failure) => Err(failure),
            None => Ok(replies),
        }
    }
}
