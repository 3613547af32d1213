//! One connection to a member: calls that are answered, and streams.

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use lockfast_core::ErrorKind;
use lockfast_net::drive::Plug;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::cork::Cork;
use super::message::{
    AuthenticateRequest, AuthenticateResponse, KeepAliveRequest, KeepAliveResponse,
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest,
    RangeResponse, StatusRequest, StatusResponse, TimeToLiveRequest, TimeToLiveResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::status::read_status;
use crate::crew::Crew;
use crate::failure::{self, Failure};

/// A listing of many locks is long.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const WINDOW_BYTES: u32 = 4 << 20;

/// A connection; clones share it, and it is closed with the last.
#[derive(Clone)]
pub(crate) struct Connection {
    grpc: Grpc<Sender>,
    endpoint: Arc<str>,
    token: Arc<RwLock<Token>>,
    renewing: Arc<Mutex<()>>,
    limit: Duration,
    plug: Arc<Plug>,
}

/// What proves who we are, and which one in a row it is.
#[derive(Default)]
struct Token {
    number: u64,
    value: Option<MetadataValue<Ascii>>,
}

/// Two directions of messages.
pub(crate) struct Stream<Q, A> {
    /// Where questions are written.
    pub(crate) questions: mpsc::UnboundedSender<Q>,
    answers: Answers<A>,
    endpoint: Arc<str>,
}

/// A server says that it takes a stream when it answers the first question.
enum Answers<A> {
    Opening(Pin<Box<dyn Future<Output = Result<Streaming<A>, Failure>> + Send>>),
    Open(Box<Streaming<A>>),
}

impl<Q, A> Stream<Q, A> {
    /// The next answer.
    ///
    /// # Cancel safety
    /// Safe: no answer is lost.
    pub(crate) async fn next(&mut self) -> Result<A, Failure> {
        if let Answers::Opening(opening) = &mut self.answers {
            self.answers = Answers::Open(Box::new(opening.await?));
        }
        let Answers::Open(answers) = &mut self.answers else {
            return Err(failure::of_closing());
        };
        match answers.message().await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(read_status(&self.endpoint, &tonic::Status::unavailable("it ended"))),
            Err(status) => Err(read_status(&self.endpoint, &status)),
        }
    }
}

impl Connection {
    /// Says hello over a stream of bytes.
    pub(crate) async fn start<S>(
        endpoint: String,
        (stream, plug): (S, Arc<Plug>),
        limit: Duration,
        crew: &Crew,
    ) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let unreachable = |error: hyper::Error| {
            let message = format!("{endpoint} does not speak as etcd: {error}");
            Failure::new(ErrorKind::Unreachable, message)
        };
        let (sender, driver) = http2::Builder::new(crew.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(Cork::new(stream)))
            .await
            .map_err(unreachable)?;
        // It ends with the last sender, or tells its end to whoever still waits for answers.
        crew.spawn(async move { drop(driver.await) });
        let origin = Uri::try_from(format!("http://{endpoint}"))
            .map_err(|_| failure::of_nonsense("its address is none"))?;
        let grpc =
            Grpc::with_origin(Sender(sender), origin).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let (token, renewing) = (Arc::default(), Arc::default());
        Ok(Self { grpc, endpoint: endpoint.into(), token, renewing, limit, plug })
    }

    /// The socket under it.
    pub(crate) fn plug(&self) -> &Arc<Plug> {
        &self.plug
    }

    /// Every request carries this from now on.
    pub(super) fn set_token(&self, token: String) -> Result<(), Failure> {
        let value = MetadataValue::try_from(token)
            .map_err(|_| failure::of_nonsense("its token is none"))?;
        let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
        *token = Token { number: token.number + 1, value: Some(value) };
        Ok(())
    }

    /// No request carries one from now on.
    pub(super) fn forget_token(&self) {
        let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
        *token = Token { number: token.number + 1, value: None };
    }

    /// Which token is in use.
    pub(crate) fn token_number(&self) -> u64 {
        self.token.read().unwrap_or_else(PoisonError::into_inner).number
    }

    /// The right to ask for a new token: many may find out at once that one is needed.
    pub(super) async fn renewing(&self) -> MutexGuard<'_, ()> {
        self.renewing.lock().await
    }

    /// The same connection, over which requests do not say who we are.
    pub(super) fn anonymous(&self) -> Self {
        Self { token: Arc::default(), ..self.clone() }
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &token.value {
            request.metadata_mut().insert("token", value.clone());
        }
        request
    }

    pub(super) async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ask(path, self.request(message)).await
    }

    async fn ask<Q, A>(&self, path: &'static str, request: Request<Q>) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        let calling = async {
            grpc.ready().await.map_err(|error| gone(&self.endpoint, &error))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|it| read_status(&self.endpoint, &it))
        };
        match tokio::time::timeout(self.limit, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(failure::of_silence(&self.endpoint, self.limit)),
        }
    }

    fn stream<Q, A>(&self, path: &'static str) -> Stream<Q, A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        let (questions, receiver) = mpsc::unbounded_channel();
        let request = self.request(UnboundedReceiverStream::new(receiver));
        let endpoint = Arc::clone(&self.endpoint);
        let opening = async move {
            grpc.ready().await.map_err(|error| gone(&endpoint, &error))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.streaming(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|it| read_status(&endpoint, &it))
        };
        let answers = Answers::Opening(Box::pin(opening));
        Stream { questions, answers, endpoint: Arc::clone(&self.endpoint) }
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    pub(crate) async fn grant(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, Failure> {
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    pub(crate) async fn revoke(&self, id: i64) -> Result<LeaseRevokeResponse, Failure> {
        self.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id }).await
    }

    pub(crate) async fn time_to_live(&self, id: i64) -> Result<TimeToLiveResponse, Failure> {
        self.call("/etcdserverpb.Lease/LeaseTimeToLive", TimeToLiveRequest { id }).await
    }

    pub(crate) async fn status(&self) -> Result<StatusResponse, Failure> {
        self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
    }

    pub(super) async fn authenticate(
        &self,
        request: AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Failure> {
        // Without a token: one that is too old would be refused here as well.
        self.ask("/etcdserverpb.Auth/Authenticate", Request::new(request)).await
    }

    /// The stream on which leases are kept alive.
    pub(crate) fn keep_alive(&self) -> Stream<KeepAliveRequest, KeepAliveResponse> {
        self.stream("/etcdserverpb.Lease/LeaseKeepAlive")
    }

    /// The stream of all watches.
    pub(crate) fn watch(&self) -> Stream<WatchRequest, WatchResponse> {
        self.stream("/etcdserverpb.Watch/Watch")
    }
}

fn gone(endpoint: &str, error: &hyper::Error) -> Failure {
    let message = format!("the connection to {endpoint} is closed: {error}");
    Failure::new(ErrorKind::Unreachable, message).with(failure::Fate::Broken)
}

/// Sends requests over one connection and never makes another.
#[derive(Clone)]
struct Sender(SendRequest<Body>);

impl GrpcService<Body> for Sender {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<http::Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The crew does the work of a connection.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Crew {
    fn execute(&self, part: F) {
        self.spawn(part);
    }
}
