//! Watching: every change is mailed to those who watch, and only while somebody does. A lease that
//! runs out changes nothing in the database, so whoever watches looks when one should have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lockfast_core::time::wall_clock;
use lockfast_core::{
    ClientId, EventStream, Fence, LockName, Moment, Result, WatchEvent, WatchKind,
};
use tokio::sync::mpsc;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::claim::read_client;
use crate::failure::Failure;
use crate::store::{Store, lock};
use crate::wire::Argument;

/// How long events are mailed after the last watcher was heard of, and how often it is.
const WATCH_US: u64 = 30_000_000;
const WATCH_REFRESH: Duration = Duration::from_secs(10);
/// How many leases a watcher keeps an eye on, and how many events may wait for it.
const LEASES_MAX: usize = 10_000;
const EVENTS_MAX: usize = 4096;
const PAUSE: Duration = Duration::from_millis(300);

/// Those who watch through this connection.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<Vec<Arc<Mailbox>>>);

struct Mailbox {
    sender: Sender<Raw>,
    /// Whether an event did not fit, or may have been lost on the way.
    has_missed: AtomicBool,
}

impl Feeds {
    /// Passes an event on.
    pub(crate) fn tell(&self, fields: &[&str]) {
        let Some(raw) = Raw::read(fields) else { return };
        let mut mailboxes = lock(&self.0);
        mailboxes.retain(|mailbox| match mailbox.sender.try_send(raw.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                mailbox.has_missed.store(true, Ordering::Release);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        });
    }

    /// Events may have been lost.
    pub(crate) fn miss(&self) {
        for mailbox in lock(&self.0).iter() {
            mailbox.has_missed.store(true, Ordering::Release);
        }
    }
}

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (feed, stream) = EventStream::channel();
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let mailbox = Arc::new(Mailbox { sender, has_missed: AtomicBool::new(false) });
    lock(&store.feeds.0).push(Arc::clone(&mailbox));
    keep_mailing(&store).await.map_err(|failure| failure.to_error())?;
    let weak = Arc::downgrade(&store);
    let runtime = store.runtime.clone();
    drop(store);
    runtime.spawn(async move {
        let Some(store) = weak.upgrade() else { return };
        let feed = Feed { sender: feed, missed: false };
        let mut watcher = Watcher { feed, mailbox, events, leases: Leases::default() };
        watcher.run(&store).await;
    });
    Ok(stream)
}

struct Watcher {
    feed: Feed,
    mailbox: Arc<Mailbox>,
    events: mpsc::Receiver<Raw>,
    leases: Leases,
}

/// An event as it was mailed.
#[derive(Clone)]
struct Raw {
    at_us: u64,
    kind: WatchKind,
    fence: Option<Fence>,
    client: ClientId,
    lasts: Duration,
    name: LockName,
}

impl Watcher {
    /// Watches until nobody wants to know any more.
    async fn run(&mut self, store: &Arc<Store>) {
        let mut refreshed = Moment::now();
        while !self.feed.sender.is_closed() {
            let refresh = (refreshed + WATCH_REFRESH).remaining(Moment::now()).min(PAUSE);
            let wait = self
                .leases
                .next_due()
                .map_or(refresh, |due| due.remaining(Moment::now()).min(refresh));
            match tokio::time::timeout(wait, self.events.recv()).await {
                Ok(Some(raw)) => self.pass_on(store, raw).await,
                Ok(None) => return,
                Err(_) => {}
            }
            self.feed.missed |= self.mailbox.has_missed.swap(false, Ordering::AcqRel);
            self.look_at_due(store).await;
            if (refreshed + WATCH_REFRESH).has_passed(Moment::now()) {
                // It is mailed for long enough to try again.
                if keep_mailing(store).await.is_ok() {
                    refreshed = Moment::now();
                }
            }
        }
        self.events.close();
    }

    async fn pass_on(&mut self, store: &Arc<Store>, raw: Raw) {
        if raw.kind == WatchKind::Granted {
            // Those who shared it until now may have it still, or have run out.
            let before = self.leases.take_all_of(&raw.name);
            self.look_at(store, before).await;
        }
        self.leases.note(&raw);
        self.tell(store, raw).await;
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
        let names: Vec<LockName> = names.into_iter().collect();
        let Ok(seen) = store.look(&names).await else {
            // It will be looked at again.
            leases.into_iter().for_each(|lease| self.leases.watch(lease, PAUSE));
            return;
        };
        let seen: HashMap<LockName, _> = names.into_iter().zip(seen).collect();
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
        let label = store.find_labels(HashSet::from([raw.client])).await.remove(&raw.client);
        self.feed.offer(WatchEvent {
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(raw.at_us),
            name: raw.name,
            kind: raw.kind,
            fence: raw.fence,
            label,
        });
    }
}

/// Asks for events for a while.
async fn keep_mailing(store: &Store) -> std::result::Result<(), Failure> {
    let arguments = vec![Argument::from(&store.who), Argument::from(WATCH_US)];
    store.ask("CALL lockfast_watch(?, ?)", arguments).await.map(|_| ())
}

impl Raw {
    fn read(fields: &[&str]) -> Option<Self> {
        // Without a fence there is a field less.
        let (head, [client, lasts_us, name]) = fields.split_last_chunk()?;
        let (at_us, kind, fence) = match head {
            [at_us, kind] => (at_us, kind, None),
            [at_us, kind, fence] => (at_us, kind, Fence::parse(fence).ok()),
            _ => return None,
        };
        let kind = match *kind {
            "q" => WatchKind::Queued,
            "g" => WatchKind::Granted,
            "r" => WatchKind::Released,
            "a" => WatchKind::Abandoned,
            "v" => WatchKind::Revoked,
            _ => return None,
        };
        Some(Self {
            at_us: at_us.parse().ok()?,
            kind,
            fence,
            client: read_client(client)?,
            lasts: Duration::from_micros(lasts_us.parse().ok()?),
            name: LockName::new(name).ok()?,
        })
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
