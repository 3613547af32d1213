//! An HTTP service behind the layer, on a real connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use lockfast::fence::http::{FenceLayer, problem};
use lockfast::fence::sql::{Dialect, TableGate};
use lockfast::{Error, Fence, FencingToken, LockName, Result};
use lockfast_core::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::account::{Account, LOCK, START, Site};
use crate::exchange::{Answer, ask};
use crate::sql::Place;
use crate::story;

/// What the service has.
#[derive(Clone)]
struct Accounts {
    data: Arc<Mutex<(u64, Vec<u64>)>>,
    /// Writes wait for a permit, so that a test can stop one inside.
    permits: Arc<Semaphore>,
}

type Reply = Response<Full<Bytes>>;

fn reply(text: impl Into<Bytes>) -> Reply {
    Response::new(Full::new(text.into()))
}

impl Accounts {
    fn new() -> Self {
        let permits = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { data: Arc::new(Mutex::new((START, Vec::new()))), permits }
    }

    async fn serve(self, request: Request<Incoming>) -> Reply {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        if parts.method == Method::PUT {
            self.permits.acquire().await.unwrap().forget();
        }
        let mut data = self.data.lock().unwrap();
        match (parts.method.as_str(), parts.uri.path()) {
            ("PUT", _) => data.0 = text.parse().unwrap(),
            ("POST", _) => {
                let token: &FencingToken = parts.extensions.get().unwrap();
                data.1.push(token.fence.get());
            }
            (_, "/history") => {
                let fences: Vec<String> = data.1.iter().map(u64::to_string).collect();
                return reply(fences.join(" "));
            }
            _ => return reply(data.0.to_string()),
        }
        reply("")
    }
}

impl Service<Request<Incoming>> for Accounts {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Reply, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::result::Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let accounts = self.clone();
        Box::pin(async move { Ok(accounts.serve(request).await) })
    }
}

/// Everything under `/fenced` is guarded, and nothing else.
fn lock_of(request: &http::request::Parts) -> Result<Option<LockName>> {
    match request.uri.path().strip_prefix("/fenced/") {
        Some(name) => LockName::new(name).map(Some),
        None => Ok(None),
    }
}

/// Serves on a free port until the runtime ends.
async fn serve<S>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Reply, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}

/// A client of the service.
#[derive(Clone)]
pub(crate) struct Client {
    server: String,
}

impl Client {
    pub(crate) fn of(server: &str) -> Self {
        Self { server: server.to_owned() }
    }

    /// A request, through the gate if there is a token.
    fn ask(&self, method: &str, path: &str, token: Option<&FencingToken>, body: &str) -> Answer {
        match token {
            None => ask(&self.server, method, &format!("/{path}"), &[], body),
            Some(token) => {
                let header = format!("Fencing-Token: {}", token.fence);
                let path = format!("/fenced/{}", token.lock);
                ask(&self.server, method, &path, &[&header], body)
            }
        }
    }

    /// What a refusal tells, as the error that a gate gives.
    fn read(answer: Answer, token: Option<&FencingToken>) -> Result<String> {
        if answer.status == 200 {
            return Ok(answer.body);
        }
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert!(answer.head.contains("content-type: application/problem+json"), "{}", answer.head);
        let problem = answer.json();
        assert_eq!((&problem["code"], &problem["lock"]), (&"stale_fence".into(), &LOCK.into()));
        let seen = Fence::new(problem["seen"].as_u64().unwrap()).unwrap();
        Err(Error::stale_fence(token.unwrap(), seen))
    }
}

impl Account for Client {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        let client = self.clone();
        Box::pin(async move {
            let answer = client.ask("GET", "balance", token, "");
            Ok(Self::read(answer, token)?.parse().unwrap())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        let client = self.clone();
        Box::pin(async move {
            let answer = client.ask("PUT", "balance", token, &balance.to_string());
            Self::read(answer, token).map(drop)
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        let client = self.clone();
        Box::pin(async move {
            let answer = client.ask("POST", "history", Some(token), "");
            Self::read(answer, Some(token)).map(drop)
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        let client = self.clone();
        Box::pin(async move {
            let body = client.ask("GET", "history", None, "").body;
            body.split_whitespace().map(|fence| fence.parse().unwrap()).collect()
        })
    }
}

fn site(address: SocketAddr) -> Site {
    Site::new("http", Place::Table, address.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stopped_holder_writes_late() {
    let address = serve(FenceLayer::new(lock_of).layer(Accounts::new())).await;
    story::a_stopped_holder_writes_late(&site(address)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn racing_writers_pass_in_order() {
    let address = serve(FenceLayer::new(lock_of).layer(Accounts::new())).await;
    story::racing_writers_pass_in_order(&site(address)).await;
}

/// A write that has passed and hangs inside the service: a higher fence is let in when it is done,
/// and not before, so that it cannot land afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_that_hangs_inside_does_not_land_after_a_higher_fence() {
    let accounts = Accounts { permits: Arc::new(Semaphore::new(0)), ..Accounts::new() };
    let address = serve(FenceLayer::new(lock_of).layer(accounts.clone())).await;
    let send = |fence, method: &'static str, body: &'static str| {
        let client = Client::of(&address.to_string());
        tokio::task::spawn_blocking(move || {
            client.ask(method, "", Some(&story::token(fence)), body).status
        })
    };
    let slow = send(41, "PUT", "150");
    let refused = |fence| async move { send(fence, "GET", "").await.unwrap() == 409 };
    lockfast_faults::wait::eventually("41 is inside", story::PATIENCE, async || refused(40).await)
        .await;
    let opens = send(42, "GET", "");
    lockfast_faults::wait::eventually("42 was seen", story::PATIENCE, async || refused(41).await)
        .await;
    assert!(!slow.is_finished() && !opens.is_finished());
    accounts.permits.add_permits(1);
    assert_eq!((slow.await.unwrap(), opens.await.unwrap()), (200, 200));
    assert_eq!(accounts.data.lock().unwrap().0, 150);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_fence_is_answered_400() {
    let address = serve(FenceLayer::new(lock_of).layer(Accounts::new())).await.to_string();
    let table: [(&str, &[&str], u16, &str); 8] = [
        ("/fenced/a", &[], 400, "invalid_fence"),
        ("/fenced/a", &["Fencing-Token: "], 400, "invalid_fence"),
        ("/fenced/a", &["Fencing-Token: 0"], 400, "invalid_fence"),
        ("/fenced/a", &["Fencing-Token: 0x10"], 400, "invalid_fence"),
        ("/fenced/a", &["Fencing-Token: 1", "Fencing-Token: 2"], 400, "invalid_fence"),
        ("/fenced/a", &["Fencing-Token: 9007199254740992"], 400, "invalid_fence"),
        ("/fenced/..", &["Fencing-Token: 7"], 400, "invalid_name"),
        ("/fenced/a", &["fencing-token: 7"], 200, ""),
    ];
    for (path, headers, status, code) in table {
        let answer = ask(&address, "GET", path, headers, "");
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
        if status == 400 {
            let problem = answer.json();
            assert_eq!((&problem["status"], &problem["code"]), (&400.into(), &code.into()));
            assert_eq!(problem["title"], "Bad Request");
            assert!(answer.head.contains("application/problem+json"), "{}", answer.head);
        }
    }
    assert_eq!(ask(&address, "GET", "/balance", &[], "").status, 200, "it is not guarded");
}

/// A service whose data is in a database checks there; the layer only reads the header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_can_check_where_its_data_is() {
    let gate = TableGate::new(Dialect::Sqlite, LOCK).unwrap();
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute(gate.setup(), []).unwrap();
    let database = Arc::new(Mutex::new(database));
    let service = Checking { gate, database };
    let address = serve(FenceLayer::reading(lock_of).layer(service)).await.to_string();
    let put = |path: &str, fence: &str| {
        ask(&address, "PUT", path, &[&format!("Fencing-Token: {fence}")], "1")
    };
    assert_eq!(put("/fenced/account/7", "42").status, 200);
    let stale = put("/fenced/account/7", "41");
    assert_eq!((stale.status, &stale.json()["seen"]), (409, &42.into()));
    let other = put("/fenced/account/8", "50");
    assert_eq!((other.status, &other.json()["code"]), (400, &"different_lock".into()));
    assert_eq!(put("/fenced/account/7", "x").status, 400);
}

/// Checks in its database, in the transaction that writes.
#[derive(Clone)]
struct Checking {
    gate: TableGate,
    database: Arc<Mutex<rusqlite::Connection>>,
}

impl Checking {
    fn write(&self, token: &FencingToken) -> Result<()> {
        let mut database = self.database.lock().unwrap();
        let transaction = database.transaction().unwrap();
        let check = self.gate.check(token)?;
        let answer = transaction
            .query_row(check.sql(), (check.fence(), check.lock()), |row| row.get::<_, i64>(0))
            .map_err(|error| check.explain(error))?;
        check.admit(Some(answer))?;
        transaction.commit().unwrap();
        Ok(())
    }
}

impl Service<Request<Incoming>> for Checking {
    type Response = Reply;
    type Error = Infallible;
    type Future = std::future::Ready<std::result::Result<Reply, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::result::Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let token: &FencingToken = request.extensions().get().unwrap();
        let reply = match self.write(token) {
            Ok(()) => reply(""),
            Err(error) => problem(&error),
        };
        assert_ne!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
        std::future::ready(Ok(reply))
    }
}
