//! One who wants a lock, by one library or another.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lockfast::{Guard, Locker, Mutex};
use rslock::{Lock, LockManager};

use crate::by_hand::{Lease, Pool};
use crate::etcd::{Session, Taker};
use crate::probe::{Line, Probe};
use crate::recipe::{Recipe, RecipeClient};

/// The lease of everything that is measured.
pub(crate) const TTL: Duration = Duration::from_secs(30);
const TTL_LONG: Duration = Duration::from_secs(600);

/// One who wants a lock.
pub(crate) enum Contender {
    Lockfast { mutex: Mutex, guard: Option<Guard> },
    Rslock { manager: LockManager, name: String, lock: Option<Lock> },
    Probe(Probe),
    ByHand(Lease),
    Etcd(Taker),
    Recipe(Recipe),
}

/// A connection from which contenders are made.
pub(crate) enum Connection {
    Lockfast(Locker),
    Rslock(LockManager),
    Probe(Line),
    ByHand(Pool),
    Etcd(Session),
    Recipe(RecipeClient),
}

impl Connection {
    /// Opens one to a store's URL; `by-hand` has so many sessions.
    pub(crate) async fn open(peer: &str, url: &str, sessions: usize) -> Result<Self> {
        Ok(match peer {
            "lockfast" => Self::Lockfast(Locker::connect(url).await?),
            peer if url.starts_with("etcd:") => Self::Etcd(Session::open(peer, url).await?),
            "rslock" => {
                let (_, hosts) = url.split_once("://").context("no URL")?;
                let urls = hosts.split(',').map(|host| format!("redis://{host}"));
                Self::Rslock(LockManager::new(urls.collect::<Vec<_>>()))
            }
            "probe" => Self::Probe(Line::open(url).await?),
            "by-hand" => Self::ByHand(Pool::open(url, sessions).await?),
            "zookeeper-client" => Self::Recipe(RecipeClient::open(url, true).await?),
            "zookeeper-client-background" => Self::Recipe(RecipeClient::open(url, false).await?),
            _ => bail!("there is no peer {peer}"),
        })
    }

    /// So many, each of whom wants a lock of its own.
    pub(crate) fn contenders(&self, count: usize) -> Result<Vec<Contender>> {
        (0..count).map(|number| self.contender(format!("lock:{number:012}"))).collect()
    }

    pub(crate) fn contender(&self, name: String) -> Result<Contender> {
        Ok(match self {
            Self::Lockfast(locker) => {
                let mutex = locker.mutex(name)?.ttl(TTL);
                Contender::Lockfast { mutex, guard: None }
            }
            Self::Rslock(manager) => {
                Contender::Rslock { manager: manager.clone(), name, lock: None }
            }
            Self::Probe(line) => Contender::Probe(Probe::new(line, name)),
            Self::ByHand(pool) => Contender::ByHand(Lease::new(pool, name)),
            Self::Etcd(session) => Contender::Etcd(Taker::new(session, name)),
            Self::Recipe(client) => Contender::Recipe(client.contender(&name)),
        })
    }
}

impl Contender {
    /// All want the same lock, each on a connection of its own.
    pub(crate) async fn each_with_a_connection(
        peer: &str,
        url: &str,
        count: usize,
    ) -> Result<Vec<Self>> {
        let mut contenders = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = Connection::open(peer, url, 1).await?;
            contenders.push(connection.contender("lock:shared".to_owned())?);
        }
        Ok(contenders)
    }

    /// Takes the lock. False when the library gave up by its own default.
    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        match self {
            Self::Lockfast { mutex, guard } => {
                *guard = Some(mutex.acquire().await?);
                Ok(true)
            }
            Self::Rslock { manager, name, lock } => {
                *lock = manager.lock(name.as_str(), TTL).await.ok();
                Ok(lock.is_some())
            }
            Self::Probe(probe) => probe.acquire().await,
            Self::ByHand(lease) => lease.acquire().await,
            Self::Etcd(taker) => taker.acquire().await,
            Self::Recipe(recipe) => recipe.acquire().await,
        }
    }

    /// Takes the lock for so long that nothing needs to be done to keep it.
    pub(crate) async fn acquire_for_long(&mut self) -> Result<bool> {
        match self {
            Self::Lockfast { mutex, .. } => {
                *mutex = mutex.clone().ttl(TTL_LONG);
                self.acquire().await
            }
            Self::Rslock { manager, name, lock } => {
                *lock = manager.lock(name.as_str(), TTL_LONG).await.ok();
                Ok(lock.is_some())
            }
            Self::Probe(_) | Self::ByHand(_) | Self::Etcd(_) | Self::Recipe(_) => {
                self.acquire().await
            }
        }
    }

    /// Gives it back.
    pub(crate) async fn release(&mut self) -> Result<()> {
        match self {
            Self::Lockfast { guard, .. } => {
                guard.take().context("it is not held")?.release().await?;
            }
            Self::Rslock { lock, .. } => {
                lock.take().context("it is not held")?.release().await;
            }
            Self::Probe(probe) => probe.release().await?,
            Self::ByHand(lease) => lease.release().await?,
            Self::Etcd(taker) => taker.release().await?,
            Self::Recipe(recipe) => recipe.release().await?,
        }
        Ok(())
    }
}
