//! Watching: every batch of changes is published once, and only while somebody watches. A lease
//! that runs out makes no noise in Redis, so whoever watches looks when one should have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use lockfast_core::time::wall_clock;
use lockfast_core::{
    ClientId, EventStream, Fence, LockName, Moment, Result, WatchEvent, WatchKind,
};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::batch::{Op, Plain};
use crate::inspect::{labels, look};
use crate::record;
use crate::store::Store;
use crate::wire::connection::{Arrival, Connection};
use crate::wire::link::jitter;
use crate::wire::{Failure, Pipeline};

/// How long the server publishes after the last watcher was heard of, and how often it is.
const WATCH_MS: &str = "30000";
const WATCH_REFRESH: Duration = Duration::from_secs(10);
/// How many leases a watcher keeps an eye on.
const LEASES_MAX: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(300);

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (sender, stream) = EventStream::channel();
    let (ready, opened) = oneshot::channel();
    let runtime = store.runtime.clone();
    let weak = Arc::downgrade(&store);
    drop(store);
    runtime.spawn(async move {
        let closed = sender.clone();
        let mut watch = pin!(async {
            let Some(store) = weak.upgrade() else { return };
            let mut watcher =
                Watcher { feed: Feed { sender, missed: false }, leases: Leases::default() };
            let mut ready = Some(ready);
            loop {
                let failure = watcher.run(&store, &mut ready).await;
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Err(failure));
                    return;
                }
                watcher.feed.missed = true;
                tokio::time::sleep(PAUSE.mul_f64(0.5 + jitter())).await;
            }
        });
        let mut gone = pin!(closed.closed());
        poll_fn(|context| match gone.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => watch.as_mut().poll(context),
        })
        .await;
    });
    match opened.await {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(failure)) => Err(failure.to_error()),
        Err(_) => Err(Failure::of_nonsense("the watch ended").to_error()),
    }
}

struct Watcher {
    feed: Feed,
    leases: Leases,
}

/// An event as it was published.
struct Raw {
    at_us: u64,
    kind: WatchKind,
    fence: Option<Fence>,
    client: ClientId,
    lasts: Duration,
    name: LockName,
}

impl Watcher {
    /// Watches on a connection of its own until that breaks.
    async fn run(
        &mut self,
        store: &Arc<Store>,
        ready: &mut Option<oneshot::Sender<std::result::Result<(), Failure>>>,
    ) -> Failure {
        let mut connection = match self.subscribe(store).await {
            Ok(connection) => connection,
            Err(failure) => return failure,
        };
        if let Some(ready) = ready.take() {
            let _ = ready.send(Ok(()));
        }
        let mut refreshed = Moment::now();
        loop {
            let refresh = (refreshed + WATCH_REFRESH).remaining(Moment::now());
            let wait = self
                .leases
                .next_due()
                .map_or(refresh, |due| due.remaining(Moment::now()).min(refresh));
            match tokio::time::timeout(wait, connection.arrival()).await {
                Ok(Ok(Arrival::Push(payload))) => self.pass_on(store, &payload).await,
                Ok(Ok(Arrival::Reply(_))) => {}
                Ok(Err(failure)) => return failure,
                Err(_) => {}
            }
            self.look_at_due(store).await;
            if store.has_left(connection.incoming.endpoint()) {
                return Failure::of_end(connection.incoming.endpoint());
            }
            if (refreshed + WATCH_REFRESH).has_passed(Moment::now()) {
                refreshed = Moment::now();
                if let Err(failure) = keep_publishing(store).await {
                    return failure;
                }
            }
        }
    }

    async fn subscribe(&self, store: &Arc<Store>) -> std::result::Result<Connection, Failure> {
        // What one node of a cluster publishes can be heard at all.
        let servers = store.servers();
        let at = (jitter() * servers.len() as f64) as usize;
        let server = servers.get(at).unwrap_or(store);
        let mut connection = server.dialer.dial().await?;
        let mut pipeline = Pipeline::default();
        pipeline.all(&["SUBSCRIBE", record::EVENT_CHANNEL]);
        connection.ask(pipeline).await?;
        keep_publishing(store).await?;
        Ok(connection)
    }

    /// Tells what was published.
    async fn pass_on(&mut self, store: &Arc<Store>, payload: &[u8]) {
        let Ok(payload) = std::str::from_utf8(payload) else { return };
        let mut lines = payload.lines();
        let Some(at_us) = lines.next().and_then(|line| line.parse().ok()) else { return };
        let prefix = store.config().prefix.as_str();
        let raws: Vec<Raw> = lines.filter_map(|line| Raw::read(line, at_us, prefix)).collect();
        for raw in raws {
            if raw.kind == WatchKind::Granted {
                // Those who shared it until now may have it still, or have run out.
                let before = self.leases.take_all_of(&raw.name);
                self.look_at(store, before).await;
            }
            self.leases.note(&raw);
            self.tell(store, raw).await;
        }
    }

    /// Looks at leases that should be over, if they were not renewed.
    async fn look_at_due(&mut self, store: &Arc<Store>) {
        let due = self.leases.take_due(Moment::now());
        self.look_at(store, due).await;
    }

    /// Tells which of these leases are over.
    async fn look_at(&mut self, store: &Arc<Store>, leases: Vec<Lease>) {
        if leases.is_empty() {
            return;
        }
        let names: HashSet<LockName> = leases.iter().map(|lease| lease.name.clone()).collect();
        let seen: HashMap<LockName, _> = match look(store, names.into_iter().collect()).await {
            Ok(seen) => seen.into_iter().collect(),
            // It will be looked at again.
            Err(_) => {
                leases.into_iter().for_each(|lease| self.leases.watch(lease, PAUSE));
                return;
            }
        };
        for lease in leases {
            let remaining = seen.get(&lease.name).and_then(|seen| seen.remaining_of(lease.fence));
            match remaining {
                Some(remaining) => self.leases.watch(lease, remaining),
                None => {
                    let raw = lease.expired();
                    self.tell(store, raw).await;
                }
            }
        }
    }

    async fn tell(&mut self, store: &Arc<Store>, raw: Raw) {
        let label = labels(store, HashSet::from([raw.client])).await.remove(&raw.client);
        self.feed.offer(WatchEvent {
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(raw.at_us),
            name: raw.name,
            kind: raw.kind,
            fence: raw.fence,
            label,
        });
    }
}

/// Asks the server to publish for a while.
async fn keep_publishing(store: &Arc<Store>) -> std::result::Result<(), Failure> {
    let cluster = store.cluster.as_ref().and_then(Weak::upgrade);
    let is_cluster = cluster.is_some();
    cluster.into_iter().for_each(|it| it.is_watching.store(true, Ordering::Release));
    for server in store.servers() {
        let (asker, answer) = oneshot::channel();
        let write = move |pipeline: &mut Pipeline| match is_cluster {
            true => pipeline.all(&["SUBSCRIBE", record::WATCH_CHANNEL]),
            false => pipeline.all(&["SET", record::WATCH_KEY, "1", "PX", WATCH_MS]),
        };
        let plain = Plain { write: Box::new(write), asker, slot: None, tries: 0 };
        server.submit_here(Op::Plain(plain));
        match answer.await {
            Ok(Ok(_)) => {}
            // A node that comes back later is told by whoever connects to it.
            Ok(Err(failure)) if is_cluster => {
                tracing::debug!(failure = failure.message, "a node does not publish");
            }
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(Failure::of_nonsense("no answer")),
        }
    }
    Ok(())
}

impl Raw {
    fn read(line: &str, at_us: u64, prefix: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t');
        let kind = match fields.next()? {
            "q" => WatchKind::Queued,
            "g" => WatchKind::Granted,
            "r" => WatchKind::Released,
            "a" => WatchKind::Abandoned,
            "v" => WatchKind::Revoked,
            _ => return None,
        };
        let fence = fields.next().and_then(|fence| Fence::parse(fence).ok());
        let client = record::read_client(fields.next()?)?;
        let lasts = Duration::from_millis(fields.next()?.parse().ok()?);
        let name = LockName::new(fields.next()?.strip_prefix(prefix)?).ok()?;
        Some(Self { at_us, kind, fence, client, lasts, name })
    }
}

/// The leases that were seen to begin and not yet to end.
#[derive(Default)]
struct Leases {
    known: BTreeMap<(LockName, u64), Lease>,
    due: BTreeSet<(u64, LockName, u64)>,
}

#[derive(Clone)]
struct Lease {
    name: LockName,
    fence: Fence,
    client: ClientId,
    due_ns: u64,
}

impl Lease {
    fn expired(self) -> Raw {
        Raw {
            at_us: lockfast_core::time::wall_clock_us(),
            kind: WatchKind::Expired,
            fence: Some(self.fence),
            client: self.client,
            lasts: Duration::ZERO,
            name: self.name,
        }
    }
}

impl Leases {
    /// Takes note of an event.
    fn note(&mut self, raw: &Raw) {
        let Some(fence) = raw.fence else { return };
        let (name, client) = (raw.name.clone(), raw.client);
        if raw.kind != WatchKind::Granted {
            self.remove(name, fence.get());
        } else if self.known.len() < LEASES_MAX {
            self.watch(Lease { name, fence, client, due_ns: 0 }, raw.lasts);
        }
    }

    fn watch(&mut self, mut lease: Lease, lasts: Duration) {
        let fence = lease.fence.get();
        lease.due_ns = (Moment::now() + lasts + Duration::from_millis(2)).host_ns();
        self.due.insert((lease.due_ns, lease.name.clone(), fence));
        self.known.insert((lease.name.clone(), fence), lease);
    }

    fn remove(&mut self, name: LockName, fence: u64) -> Option<Lease> {
        let lease = self.known.remove(&(name, fence))?;
        self.due.remove(&(lease.due_ns, lease.name.clone(), fence));
        Some(lease)
    }

    fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due_ns, ..)| Moment::from_host_ns(*due_ns))
    }

    fn take_due(&mut self, now: Moment) -> Vec<Lease> {
        let is_due = |(due_ns, ..): &&(u64, LockName, u64)| *due_ns <= now.host_ns();
        let due: Vec<_> = self.due.iter().take_while(is_due).cloned().collect();
        due.into_iter().filter_map(|(_, name, fence)| self.remove(name, fence)).collect()
    }

    fn take_all_of(&mut self, name: &LockName) -> Vec<Lease> {
        let all = (name.clone(), 0)..=(name.clone(), u64::MAX);
        let fences: Vec<u64> = self.known.range(all).map(|((_, fence), _)| *fence).collect();
        fences.into_iter().filter_map(|fence| self.remove(name.clone(), fence)).collect()
    }
}

/// A stream that is not read fast enough loses events and is told so.
struct Feed {
    sender: Sender<WatchEvent>,
    missed: bool,
}

impl Feed {
    fn offer(&mut self, event: WatchEvent) {
        if self.missed {
            let missed = WatchEvent {
                at: wall_clock(),
                name: event.name.clone(),
                kind: WatchKind::Missed,
                fence: None,
                label: None,
            };
            self.missed = self.sender.try_send(missed).is_err();
        }
        if !self.missed && matches!(self.sender.try_send(event), Err(TrySendError::Full(_))) {
            self.missed = true;
        }
    }
}
