//! What the tests of these stores share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod child;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, ClientId, ConnectContext, Fence, Grant,
    HolderId, Label, LockName, LossReport, LossReporter, Mode, Refusal, ReleaseOutcome,
    ReleaseRequest, Result, Wait,
};

/// Somebody who is connected.
pub(crate) struct Asker {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) client: ClientId,
    pub(crate) losses: Arc<Mutex<Vec<LossReport>>>,
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) grant: Grant,
}

impl Asker {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.unwrap()
    }

    pub(crate) async fn try_connect(url: &str) -> Result<Self> {
        let client = ClientId::random()?;
        let losses = Arc::new(Mutex::new(Vec::new()));
        let context = ConnectContext {
            runtime: tokio::runtime::Handle::current(),
            client,
            label: Label::of_this_process(),
            losses: LossReporter::new({
                let losses = Arc::clone(&losses);
                move |report| losses.lock().unwrap().push(report)
            }),
        };
        let address = Address::parse(url)?;
        let backend = lockfast_backend_embedded::connect(address, context).await?;
        Ok(Self { backend, client, losses })
    }
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// An exclusive request of a new holder with a ttl of 30 s.
pub(crate) fn request(asker: &Asker, lock: &str, wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: name(lock),
        mode: Mode::Exclusive,
        holder: HolderId::random(asker.client).unwrap(),
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        wait,
        detached: false,
        floor: None,
    }
}

pub(crate) fn granted(outcome: Result<AcquireOutcome>) -> Grant {
    match outcome.unwrap() {
        AcquireOutcome::Granted(grant) => grant,
        AcquireOutcome::Taken(refusal) => panic!("taken: {refusal}"),
    }
}

pub(crate) fn refused(outcome: Result<AcquireOutcome>) -> Refusal {
    match outcome.unwrap() {
        AcquireOutcome::Granted(grant) => panic!("granted: {grant:?}"),
        AcquireOutcome::Taken(refusal) => refusal,
    }
}

/// Sends a request, which must be granted in time.
pub(crate) async fn ask(asker: &Asker, request: AcquireRequest) -> Held {
    let (name, holder) = (request.name.clone(), request.holder);
    let outcome = bounded(asker.backend.acquire(request)).await;
    let grant = granted(outcome);
    Held { name, holder, grant }
}

pub(crate) async fn acquire(asker: &Asker, lock: &str, mode: Mode, wait: Wait) -> Held {
    let request = AcquireRequest { mode, ..request(asker, lock, wait) };
    ask(asker, request).await
}

pub(crate) async fn taken(asker: &Asker, lock: &str, wait: Wait) -> Refusal {
    refused(asker.backend.acquire(request(asker, lock, wait)).await)
}

pub(crate) async fn release(asker: &Asker, held: &Held) -> ReleaseOutcome {
    let request = ReleaseRequest { name: held.name.clone(), holder: held.holder };
    asker.backend.release(request).await.unwrap()
}

pub(crate) async fn released(asker: &Asker, held: &Held) {
    assert_eq!(release(asker, held).await, ReleaseOutcome::Released);
}

/// Polls a future one time.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Nothing in these tests takes longer than 20 s on a busy machine.
pub(crate) async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

/// Waits until a state is reached.
pub(crate) async fn eventually(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if reached().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}
