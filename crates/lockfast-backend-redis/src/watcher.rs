//! Watching: every batch of changes is published once, and only while somebody watches. A lease
//! that runs out makes no noise in Redis, so whoever watches looks when one should have.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use lockfast_core::watch::{EventFeed, Lease, Leases, Notice};
use lockfast_core::{EventStream, Fence, LockName, Moment, Result, WatchKind, jitter};
use tokio::sync::oneshot;

use crate::batch::{Op, Plain};
use crate::inspect::{labels, look};
use crate::record;
use crate::store::Store;
use crate::wire::connection::{Arrival, Connection};
use crate::wire::{Failure, Pipeline, failure};

/// How long the server publishes after the last watcher was heard of, and how often it is.
const WATCH_MS: &str = "30000";
const WATCH_REFRESH: Duration = Duration::from_secs(10);
/// How many leases a watcher keeps an eye on.
const LEASES_MAX: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(300);

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (feed, stream) = EventStream::channel();
    let (ready, opened) = oneshot::channel();
    let runtime = store.runtime.clone();
    let weak = Arc::downgrade(&store);
    drop(store);
    runtime.spawn(async move {
        let mut gone = pin!(feed.closing());
        let mut watch = pin!(async {
            let Some(store) = weak.upgrade() else { return };
            let mut watcher = Watcher { feed, leases: Leases::up_to(LEASES_MAX) };
            let mut ready = Some(ready);
            loop {
                let failure = watcher.run(&store, &mut ready).await;
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Err(failure));
                    return;
                }
                watcher.feed.miss();
                tokio::time::sleep(PAUSE.mul_f64(0.5 + jitter())).await;
            }
        });
        poll_fn(|context| match gone.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => watch.as_mut().poll(context),
        })
        .await;
    });
    match opened.await {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(failure)) => Err(failure.to_error()),
        Err(_) => Err(failure::of_nonsense("the watch ended").to_error()),
    }
}

struct Watcher {
    feed: EventFeed,
    leases: Leases,
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
                return failure::of_end(connection.incoming.endpoint());
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
        pipeline.all(&["SUBSCRIBE", &record::event_channel(store.config().database)]);
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
        for notice in lines.filter_map(|line| read_notice(line, at_us, prefix)) {
            if notice.kind == WatchKind::Granted {
                // Those who shared it until now may have it still, or have run out.
                let before = self.leases.take_all_of(&notice.name);
                self.look_at(store, before).await;
            }
            self.leases.note(&notice);
            self.tell(store, notice).await;
        }
    }

    /// Looks at leases that should be over, if they were not renewed.
    async fn look_at_due(&mut self, store: &Arc<Store>) {
        let due = self.leases.take_due(Moment::now(), LEASES_MAX);
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
                None => self.tell(store, lease.expired()).await,
            }
        }
    }

    async fn tell(&mut self, store: &Arc<Store>, notice: Notice) {
        let label = labels(store, HashSet::from([notice.client])).await.remove(&notice.client);
        self.feed.offer(notice.into_event(label));
    }
}

/// Asks the server to publish for a while.
async fn keep_publishing(store: &Arc<Store>) -> std::result::Result<(), Failure> {
    let cluster = store.cluster.as_ref().and_then(Weak::upgrade);
    let is_cluster = cluster.is_some();
    cluster.into_iter().for_each(|it| it.is_watching.store(true, Ordering::Release));
    for server in store.servers() {
        let (asker, answer) = oneshot::channel();
        let channel = record::event_channel(store.config().database);
        let write = move |pipeline: &mut Pipeline| match is_cluster {
            true => pipeline.all(&["SUBSCRIBE", record::WATCH_CHANNEL]),
            false => pipeline.all(&["SET", record::WATCH_KEY, &channel, "PX", WATCH_MS]),
        };
        let plain = Plain { write: Box::new(write), asker, slot: None, tries: 0 };
        server.submit_here(Op::Plain(plain));
        match answer.await {
            Ok(Ok(_)) => {}
            // A node that comes back later is told by whoever connects to it.
            Ok(Err(failure)) if is_cluster => {
                tracing::debug!(failure = failure.message(), "a node does not publish");
            }
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(failure::of_nonsense("no answer")),
        }
    }
    Ok(())
}

/// An event as it was published.
fn read_notice(line: &str, at_us: u64, prefix: &str) -> Option<Notice> {
    let mut fields = line.splitn(5, '\t');
    let kind = WatchKind::from_letter(fields.next()?)?;
    let fence = fields.next().and_then(|fence| Fence::parse(fence).ok());
    let client = record::read_client(fields.next()?)?;
    let lasts = Duration::from_millis(fields.next()?.parse().ok()?);
    let name = LockName::new(fields.next()?.strip_prefix(prefix)?).ok()?;
    Some(Notice { at_us, kind, fence, client, lasts, name })
}
