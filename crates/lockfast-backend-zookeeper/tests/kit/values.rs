//! Values, read and written without the library over them.

use std::sync::Arc;

use lockfast_core::{
    Address, Backend, Change, ClientId, ConnectContext, Expected, HolderId, Label, LockName,
    LossReporter, Result, Version, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::runtime::Handle;

use super::bounded;

/// A connection.
#[derive(Clone)]
pub struct Values {
    pub backend: Arc<dyn Backend>,
    client: ClientId,
}

pub fn put(text: &str) -> Change {
    Change::Put { bytes: text.into(), keep: None }
}

impl Values {
    pub async fn connect(url: &str) -> Self {
        let client = ClientId::random().unwrap();
        let context = ConnectContext {
            runtime: Handle::current(),
            client,
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        };
        let address = Address::parse(url).unwrap();
        let backend = bounded(lockfast_backend_zookeeper::connect(address, context)).await.unwrap();
        Self { backend, client }
    }

    pub async fn try_read(&self, name: &str) -> Result<Option<VersionedValue>> {
        bounded(self.backend.read(LockName::new(name).unwrap())).await
    }

    /// The version and the text that are there.
    pub async fn read(&self, name: &str) -> Option<(Version, String)> {
        let there = self.try_read(name).await.unwrap()?;
        Some((there.version, String::from_utf8(there.bytes).unwrap()))
    }

    pub fn request(&self, name: &str, seen: Option<Version>, change: Change) -> WriteRequest {
        WriteRequest {
            name: LockName::new(name).unwrap(),
            expected: seen.map_or(Expected::Nothing, Expected::Version),
            change,
            id: *HolderId::random(self.client).unwrap().as_bytes(),
        }
    }

    pub async fn try_write(
        &self,
        name: &str,
        seen: Option<Version>,
        change: Change,
    ) -> Result<WriteOutcome> {
        bounded(self.backend.write(self.request(name, seen, change))).await
    }

    /// Writes what is expected to be possible.
    pub async fn write(
        &self,
        name: &str,
        seen: Option<Version>,
        change: Change,
    ) -> Option<Version> {
        match self.try_write(name, seen, change).await.unwrap() {
            WriteOutcome::Written(version) => version,
            WriteOutcome::Conflict(there) => panic!("{there:?} is there"),
        }
    }
}
