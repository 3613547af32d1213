//! One who wants a lock, by one library or another.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lockfast::{Address, Guard, Locker, Mutex, Options};
use rslock::{Lock, LockManager};

use crate::probe::{Line, Probe};

/// The lease of everything that is measured.
pub(crate) const TTL: Duration = Duration::from_secs(30);
const TTL_LONG: Duration = Duration::from_secs(600);

/// One who wants a lock.
pub(crate) enum Contender {
    Lockfast { mutex: Mutex, guard: Option<Guard> },
    Rslock { manager: LockManager, name: String, lock: Option<Lock> },
    Probe(Probe),
}

/// A connection from which contenders are made.
enum Connection {
    Lockfast(Locker),
    Rslock(LockManager),
    Probe(Line),
}

impl Connection {
    async fn open(peer: &str, port: u16) -> Result<Self> {
        let url = format!("redis://127.0.0.1:{port}");
        Ok(match peer {
            "lockfast" => {
                let address = Address::parse(&url)?;
                let connect = move |context| lockfast_backend_redis::connect(address, context);
                Self::Lockfast(Locker::builder().connect_with(connect).await?)
            }
            "rslock" => Self::Rslock(LockManager::new(vec![url])),
            "probe" => Self::Probe(Line::open(&url).await?),
            _ => bail!("there is no peer {peer}"),
        })
    }

    fn contender(&self, name: String) -> Result<Contender> {
        Ok(match self {
            Self::Lockfast(locker) => {
                let mutex = locker.mutex(name)?.with(Options::default().ttl(TTL))?;
                Contender::Lockfast { mutex, guard: None }
            }
            Self::Rslock(manager) => {
                Contender::Rslock { manager: manager.clone(), name, lock: None }
            }
            Self::Probe(line) => Contender::Probe(Probe::new(line, name)),
        })
    }
}

impl Contender {
    /// Each wants a lock of its own, all on one connection.
    pub(crate) async fn sharing_one_connection(
        peer: &str,
        port: u16,
        count: usize,
    ) -> Result<Vec<Self>> {
        let connection = Connection::open(peer, port).await?;
        (0..count).map(|number| connection.contender(format!("lock:{number:012}"))).collect()
    }

    /// All want the same lock, each on a connection of its own.
    pub(crate) async fn each_with_a_connection(
        peer: &str,
        port: u16,
        count: usize,
    ) -> Result<Vec<Self>> {
        let mut contenders = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = Connection::open(peer, port).await?;
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
        }
    }

    /// Takes the lock for so long that nothing needs to be done to keep it.
    pub(crate) async fn acquire_for_long(&mut self) -> Result<bool> {
        match self {
            Self::Lockfast { mutex, .. } => {
                *mutex = mutex.clone().with(Options::default().ttl(TTL_LONG))?;
                self.acquire().await
            }
            Self::Rslock { manager, name, lock } => {
                *lock = manager.lock(name.as_str(), TTL_LONG).await.ok();
                Ok(lock.is_some())
            }
            Self::Probe(probe) => probe.acquire().await,
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
        }
        Ok(())
    }
}
