//! Locks on etcd without Lockfast: a key by hand, the server's own lock, and the least that passes a
//! lock on.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use tokio::sync::oneshot;

use super::wire::{
    Client, Compare, Delete, LeaseRevoke, Lock, Locked, Nothing, Operation, Put, Range, Request, Transaction,
    TransactionResponse, Unlock, Watched, end_of,
};
use crate::contender::TTL;

const TXN: &str = "/etcdserverpb.KV/Txn";
const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const CREATE: i32 = 1;
const DELETED: i32 = 1;

/// Long enough that nothing needs to be kept alive while it is measured.
const LEASE_SECONDS: u64 = 20 * TTL.as_secs();

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A transaction that puts a key if it is not there, and its deletion.
    ByHand,
    /// The same under a lease of its own, which is revoked to release.
    OwnLease,
    /// The server's lock and unlock.
    LockRpc,
    /// A queue whose next is told by one standing watch. Nothing is done for waiters that died: a
    /// limit to compare with, not a lock to use.
    Probe,
}

/// A connection with a lease.
#[derive(Clone)]
pub(crate) struct Session {
    client: Client,
    kind: Kind,
    lease: i64,
    gone: Arc<Mutex<Gone>>,
    /// How many want locks with it, to tell those apart who want the same one.
    takers: Arc<AtomicUsize>,
}

/// Keys that were deleted before somebody waited for it, and those who wait.
#[derive(Default)]
struct Gone {
    early: HashSet<(Vec<u8>, i64)>,
    waiting: HashMap<(Vec<u8>, i64), oneshot::Sender<()>>,
}

impl Session {
    /// Opens one for a peer, if it is one of these.
    pub(crate) async fn open(peer: &str, url: &str) -> Result<Self> {
        let kind = match peer {
            "by-hand" => Kind::ByHand,
            "own-lease" => Kind::OwnLease,
            "lock-rpc" => Kind::LockRpc,
            "probe" => Kind::Probe,
            _ => anyhow::bail!("there is no peer {peer} on etcd"),
        };
        let client = Client::open(url).await?;
        let lease = client.grant_lease(LEASE_SECONDS).await?;
        let gone = Arc::default();
        if kind == Kind::Probe {
            let events = client.watch(b"probe/").await?;
            tokio::spawn(hear(events, Arc::clone(&gone)));
        }
        Ok(Self { client, kind, lease, gone, takers: Arc::default() })
    }
}

async fn hear(mut events: tonic::Streaming<Watched>, gone: Arc<Mutex<Gone>>) {
    while let Ok(Some(watched)) = events.message().await {
        let Ok(mut gone) = gone.lock() else { return };
        for event in watched.events.into_iter().filter(|event| event.kind == DELETED) {
            let Some(key) = event.prev_kv else { continue };
            let key = (key.key, key.create_revision);
            match gone.waiting.remove(&key) {
                Some(waiter) => {
                    let _ = waiter.send(());
                }
                None => {
                    gone.early.insert(key);
                }
            }
        }
    }
}

/// One who wants a lock.
pub(crate) struct Taker {
    session: Session,
    name: String,
    key: Vec<u8>,
    lease: i64,
}

impl Taker {
    pub(crate) fn new(session: &Session, name: String) -> Self {
        let number = session.takers.fetch_add(1, Ordering::Relaxed);
        let key = match session.kind {
            Kind::ByHand | Kind::OwnLease => format!("by-hand/{name}"),
            Kind::LockRpc => String::new(),
            Kind::Probe => format!("probe/{name}/{:x}-{number}", session.lease),
        };
        Self { session: session.clone(), name, key: key.into_bytes(), lease: session.lease }
    }

    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        match self.session.kind {
            Kind::ByHand => self.put_if_absent().await,
            Kind::OwnLease => {
                self.lease = self.session.client.grant_lease(LEASE_SECONDS).await?;
                self.put_if_absent().await
            }
            Kind::LockRpc => {
                let client = &self.session.client;
                // Whoever shares a lease shares the lock.
                let request =
                    Lock { name: self.name.clone().into_bytes(), lease: self.session.lease };
                let locked: Locked = client.call("/v3lockpb.Lock/Lock", request).await?;
                self.key = locked.key;
                Ok(true)
            }
            Kind::Probe => self.queue().await,
        }
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let (client, key) = (&self.session.client, self.key.clone());
        let _: Nothing = match self.session.kind {
            Kind::LockRpc => client.call("/v3lockpb.Lock/Unlock", Unlock { key }).await?,
            Kind::OwnLease => client.call(REVOKE, LeaseRevoke { id: self.lease }).await?,
            _ => client.call(DELETE, Delete { key, range_end: Vec::new() }).await?,
        };
        Ok(())
    }

    fn put(&self) -> Operation {
        let (key, lease) = (self.key.clone(), self.lease);
        Operation { request: Some(Request::Put(Put { key, value: b"holder".to_vec(), lease })) }
    }

    async fn put_if_absent(&self) -> Result<bool> {
        let key = self.key.clone();
        let absent = Compare { target: CREATE, key, create_revision: Some(0) };
        let request = Transaction { compare: vec![absent], success: vec![self.put()] };
        let said: TransactionResponse = self.session.client.call(TXN, request).await?;
        Ok(said.succeeded)
    }

    async fn queue(&self) -> Result<bool> {
        let prefix = format!("probe/{}/", self.name).into_bytes();
        let range_end = end_of(&prefix);
        let all = Range { key: prefix, range_end, keys_only: true };
        let look = Operation { request: Some(Request::Range(all)) };
        let request = Transaction { compare: Vec::new(), success: vec![self.put(), look] };
        let mut said: TransactionResponse = self.session.client.call(TXN, request).await?;
        let line = said.responses.pop().and_then(|it| it.range).context("no range")?.kvs;
        let own = line.iter().find(|it| it.key == self.key).context("no key of ours")?;
        let ahead = line.iter().filter(|it| it.create_revision < own.create_revision);
        let Some(before) = ahead.max_by_key(|it| it.create_revision) else { return Ok(true) };
        let key = (before.key.clone(), before.create_revision);
        let turn = {
            let mut gone = self.session.gone.lock().ok().context("a thread panicked")?;
            if gone.early.remove(&key) {
                return Ok(true);
            }
            let (sender, turn) = oneshot::channel();
            ensure!(gone.waiting.insert(key, sender).is_none(), "two wait for one key");
            turn
        };
        turn.await?;
        Ok(true)
    }
}
