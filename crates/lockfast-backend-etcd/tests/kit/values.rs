//! Values, read and written without the library over them.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    Address, Backend, Change, ClientId, ConnectContext, ErrorKind, Expected, HolderId, Label,
    LockName, LossReporter, Result, Version, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::runtime::Handle;

use super::{TIME_MAX, bounded};

/// The value that everything is about.
pub const NAME: &str = "nightly";

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
        let backend = bounded(lockfast_backend_etcd::connect(address, context)).await.unwrap();
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

    /// Asks again while the store is out of reach.
    async fn insist<T, F>(ask: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Adds a word to a text, once, whatever becomes of the answers.
    pub async fn append(&self, name: &str, word: &str) {
        loop {
            let there = Self::insist(|| self.backend.read(LockName::new(name).unwrap())).await;
            let seen = there.as_ref().map(|there| there.version);
            let text = String::from_utf8(there.map_or(Vec::new(), |it| it.bytes)).unwrap();
            if text.split(' ').any(|it| it == word) {
                return;
            }
            let request = self.request(name, seen, put(&format!("{text}{word} ")));
            let written = Self::insist(|| self.backend.write(request.clone())).await;
            if matches!(written, WriteOutcome::Written(_)) {
                return;
            }
        }
    }
}

/// Adds words from several connections while `fault` is done, and checks that each is there once.
pub async fn append_through(url: &str, fault: impl AsyncFnOnce()) {
    const WRITERS: usize = 4;
    const WORDS: usize = 60;
    let mut writing = Vec::new();
    for writer in 0..WRITERS {
        let values = Values::connect(url).await;
        writing.push(tokio::spawn(async move {
            for word in 0..WORDS {
                values.append(NAME, &format!("{writer}.{word}")).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }));
    }
    fault().await;
    for writer in writing {
        tokio::time::timeout(TIME_MAX * 4, writer).await.unwrap().unwrap();
    }
    let (_, text) = Values::connect(url).await.read(NAME).await.unwrap();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    let mut expected: Vec<String> = (0..WRITERS)
        .flat_map(|writer| (0..WORDS).map(move |word| format!("{writer}.{word}")))
        .collect();
    expected.sort_unstable();
    assert_eq!(words, expected);
}
