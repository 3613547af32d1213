//! A connection without the lease engine.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, Change, ClientId, ConnectContext, Expected,
    HolderId, Label, LockName, LossReporter, Moment, Query, ReleaseOutcome, ReleaseRequest, Result,
    Version, VersionedValue, Wait, WriteOutcome, WriteRequest,
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

    /// The write of a name whose value is `seen`, with an id of its own.
    pub fn change(&self, name: &str, seen: Option<Version>, change: Change) -> WriteRequest {
        let expected = seen.map_or(Expected::Nothing, Expected::Version);
        let id = *HolderId::random(self.client).unwrap().as_bytes();
        WriteRequest { name: LockName::new(name).unwrap(), expected, change, id }
    }

    /// The write of these bytes.
    pub fn put(&self, name: &str, seen: Option<Version>, bytes: &[u8]) -> WriteRequest {
        self.change(name, seen, Change::Put { bytes: bytes.to_vec(), keep: None })
    }

    pub async fn try_write(&self, request: WriteRequest) -> Result<WriteOutcome> {
        bounded(self.backend.write(request)).await
    }

    /// Writes what must be as expected.
    pub async fn write(&self, request: WriteRequest) -> Option<Version> {
        match self.try_write(request).await.unwrap() {
            WriteOutcome::Written(version) => version,
            WriteOutcome::Conflict(there) => panic!("something else is there: {there:?}"),
        }
    }

    pub async fn try_read(&self, name: &str) -> Result<Option<VersionedValue>> {
        bounded(self.backend.read(LockName::new(name).unwrap())).await
    }

    /// The bytes that are there.
    pub async fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.try_read(name).await.unwrap().map(|value| value.bytes)
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
