//! The few messages of etcd that the peers send, over a plain gRPC channel.

use anyhow::{Context as _, Result};
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ranged {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// `CREATE` is 1; equal, which is 0, is left out.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    /// Always sent: which field it is says what is compared.
    #[prost(int64, optional, tag = "5")]
    pub(super) create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Request", tags = "1, 2")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OperationResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<Ranged>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TransactionResponse {
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<OperationResponse>,
}

/// A lease that is asked for; in the answer the fields are its header, its id and its ttl.
#[derive(Clone, PartialEq, Message)]
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGranted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(bool, tag = "6")]
    prev_kv: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Watched {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// `DELETE` is 1.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) prev_kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRevoke {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// What the server's own lock is asked for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// What is of no interest in an answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

/// One connection.
#[derive(Clone)]
pub(super) struct Client(Channel);

impl Client {
    /// Connects to the server of a URL `etcd://HOST:PORT`.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let place = url.strip_prefix("etcd://").context("no URL of etcd")?;
        let endpoint = Endpoint::from_shared(format!("http://{place}"))?.tcp_nodelay(true);
        Ok(Self(endpoint.connect().await?))
    }

    /// Calls a method and waits for its answer.
    pub(super) async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let request = tonic::Request::new(request);
        Ok(grpc.unary(request, PathAndQuery::from_static(method), codec).await?.into_inner())
    }

    pub(super) async fn grant_lease(&self, seconds: u64) -> Result<i64> {
        let request = LeaseGrant { ttl: i64::try_from(seconds)? };
        let granted: LeaseGranted = self.call("/etcdserverpb.Lease/LeaseGrant", request).await?;
        Ok(granted.id)
    }

    /// Hears of everything below a prefix from now on.
    pub(super) async fn watch(&self, prefix: &[u8]) -> Result<tonic::Streaming<Watched>> {
        let (key, range_end) = (prefix.to_vec(), end_of(prefix));
        let create = Some(WatchCreate { key, range_end, prev_kv: true });
        let requests = tokio_stream::once(WatchRequest { create });
        // The stream of requests stays open: when it ends, so does the watch.
        let requests = tokio_stream::StreamExt::chain(requests, tokio_stream::pending());
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, Watched>::default();
        let mut events =
            grpc.streaming(tonic::Request::new(requests), path, codec).await?.into_inner();
        let first = events.message().await?.context("the watch ended")?;
        anyhow::ensure!(first.created, "the watch was refused");
        Ok(events)
    }
}

/// The end of all keys that start with a prefix.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
