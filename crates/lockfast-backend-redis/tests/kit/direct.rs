//! A connection without the lease engine.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, ClientId, ConnectContext, HolderId, Label,
    LockName, LossReporter, Moment, Query, ReleaseOutcome, ReleaseRequest, Wait,
};
use tokio::runtime::Handle;

use super::{bounded, eventually, shorthand};

/// Of every lease, so long that no test sees its end.
pub const TTL: Duration = Duration::from_secs(60);

/// A connection without the lease engine, so that only what the test asks for is asked for.
#[derive(Clone)]
pub struct Direct {
    pub backend: Arc<dyn Backend>,
    pub client: ClientId,
}

impl Direct {
    pub async fn connect(url: &str) -> Self {
        Self::connect_on(url, Handle::current()).await
    }

    pub async fn connect_on(url: &str, runtime: Handle) -> Self {
        let client = ClientId::random().unwrap();
        let context = ConnectContext {
            runtime,
            client,
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        };
        let address = Address::parse(url).unwrap();
        let backend = bounded(lockfast_backend_redis::connect(address, context)).await.unwrap();
        Self { backend, client }
    }

    pub fn request(&self, name: &str, wait: Wait) -> AcquireRequest {
        shorthand::request(self.client, name, TTL, wait)
    }

    pub async fn take(&self, request: AcquireRequest) -> HolderId {
        let holder = request.holder;
        match bounded(self.backend.acquire(request)).await.unwrap() {
            AcquireOutcome::Granted(_) => holder,
            AcquireOutcome::Taken(refusal) => panic!("not granted: {refusal}"),
        }
    }

    pub async fn give(&self, name: &str, holder: HolderId) -> ReleaseOutcome {
        let name = LockName::new(name).unwrap();
        bounded(self.backend.release(ReleaseRequest { name, holder })).await.unwrap()
    }

    pub async fn waiting(&self, name: &str) -> usize {
        let query = Query::Name(LockName::new(name).unwrap());
        bounded(self.backend.inspect(query)).await.unwrap()[0].waiting
    }

    /// Begins to wait, and returns when the server knows.
    pub async fn queue(&self, name: &str) -> tokio::task::JoinHandle<(HolderId, Moment)> {
        let before = self.waiting(name).await;
        let (direct, request) = (self.clone(), self.request(name, Wait::Forever));
        let task = tokio::spawn(async move { (direct.take(request).await, Moment::now()) });
        eventually("it waits", TTL, async || self.waiting(name).await == before + 1).await;
        task
    }
}
