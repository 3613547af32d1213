//! The lock of the crate zookeeper-client, by the recipe of ZooKeeper's documentation.

use std::mem;

use anyhow::{Context as _, Result};
use zookeeper_client::{Acls, Client, CreateMode, Error, LockPrefix, OwnedLockClient};

use crate::contender::TTL;

const NODE: &str = "/recipe";

/// A connection of zookeeper-client.
pub(crate) struct RecipeClient {
    client: Client,
    /// Whether whoever gives a lock back waits until it is free. The library itself does not wait.
    awaits_release: bool,
}

/// One who wants a lock.
pub(crate) struct Recipe {
    client: Client,
    path: String,
    awaits_release: bool,
    held: Option<OwnedLockClient>,
}

impl RecipeClient {
    pub(crate) async fn open(url: &str, awaits_release: bool) -> Result<Self> {
        let (_, hosts) = url.split_once("://").context("no URL")?;
        let connector = Client::connector().with_session_timeout(TTL);
        Ok(Self { client: connector.connect(hosts).await?, awaits_release })
    }

    pub(crate) fn contender(&self, name: &str) -> Recipe {
        let path = format!("{NODE}-{}", name.replace([':', '/'], "-"));
        let (client, awaits_release) = (self.client.clone(), self.awaits_release);
        Recipe { client, path, awaits_release, held: None }
    }
}

impl Recipe {
    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        let held = match self.lock().await {
            Err(Error::NoNode) => {
                let node = CreateMode::Persistent.with_acls(Acls::anyone_all());
                // Another task may be faster.
                let _ = self.client.create(&self.path, b"", &node).await;
                self.lock().await?
            }
            held => held?,
        };
        self.held = Some(held);
        Ok(true)
    }

    async fn lock(&self) -> Result<OwnedLockClient, Error> {
        let prefix = LockPrefix::new_curator(&self.path, "lock-")?;
        Ok(self.client.lock(prefix, b"", Acls::anyone_all()).await?.into_owned())
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let held = self.held.take().context("it is not held")?;
        if self.awaits_release {
            self.client.delete(held.lock_path(), None).await?;
            // It would be deleted once more when it is dropped.
            mem::forget(held);
        }
        Ok(())
    }
}
