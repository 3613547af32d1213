//! What happens to the locks, for whoever watches: each node publishes what it did, and what a
//! quorum of them did has happened. An expiry is told by nobody, so leases are looked at when
//! they should be over.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use lockfast_backend_redis::node::read_holder;
use lockfast_core::time::{wall_clock, wall_clock_us};
use lockfast_core::{
    ClientId, EventStream, Fence, HolderId, LockName, Moment, Result, WatchEvent, WatchKind,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Sender, UnboundedReceiver};

use crate::inspect::labels;
use crate::record;
use crate::store::{Store, lock};

/// How long nodes publish after somebody asked for it, and how often that is done.
const WATCH_MS: &str = "60000";
const WATCH_REFRESH: Duration = Duration::from_secs(20);
/// How many events are remembered until a quorum has told of them.
const TOLD_MAX: usize = 8192;
/// How many leases are watched for their expiry.
const LEASES_MAX: usize = 100_000;

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (sender, stream) = EventStream::channel();
    let (heard, raws) = mpsc::unbounded_channel();
    lock(&store.watchers).push(heard);
    store.is_watching.store(true, Ordering::Release);
    let answers = store
        .ask_all(|pipeline| {
            pipeline.all(&["SUBSCRIBE", record::EVENT_CHANNEL]);
            pipeline.all(&["SET", record::WATCH_KEY, "1", "PX", WATCH_MS]);
        })
        .await;
    store.require_quorum(answers).await?;
    let runtime = store.runtime.clone();
    let watcher = Watcher {
        feed: Feed { sender, missed: false },
        leases: Leases::default(),
        told: Told::default(),
    };
    runtime.spawn(watcher.run(store, raws));
    Ok(stream)
}

struct Watcher {
    feed: Feed,
    leases: Leases,
    told: Told,
}

/// An event as a node published it.
#[derive(Clone, Debug)]
struct Raw {
    at_us: u64,
    kind: WatchKind,
    fence: Option<Fence>,
    holder: HolderId,
    lasts: Duration,
    name: LockName,
}

impl Watcher {
    async fn run(mut self, store: Arc<Store>, mut raws: UnboundedReceiver<(usize, Vec<u8>)>) {
        let mut refreshed = Moment::now();
        while !self.feed.sender.is_closed() {
            let refresh = (refreshed + WATCH_REFRESH).remaining(Moment::now());
            let due = self.leases.next_due().map(|due| due.remaining(Moment::now()));
            let wait = due.map_or(refresh, |due| due.min(refresh)).min(Duration::from_secs(1));
            match tokio::time::timeout(wait, raws.recv()).await {
                Ok(Some((node, payload))) => self.count(&store, node, &payload).await,
                Ok(None) => return,
                Err(_) => {}
            }
            self.look_at_due(&store).await;
            if (refreshed + WATCH_REFRESH).has_passed(Moment::now()) {
                refreshed = Moment::now();
                store
                    .ask_all(|pipeline| {
                        pipeline.all(&["SET", record::WATCH_KEY, "1", "PX", WATCH_MS]);
                    })
                    .await;
            }
        }
    }

    /// Tells what a quorum of nodes has published.
    async fn count(&mut self, store: &Arc<Store>, node: usize, payload: &[u8]) {
        let Ok(payload) = std::str::from_utf8(payload) else { return };
        let mut lines = payload.lines().skip(1);
        let Some(at_us) = lines.next().and_then(|line| line.parse().ok()) else { return };
        for line in lines {
            let Some(raw) = Raw::read(line, at_us, store.config.prefix()) else { continue };
            if self.told.count(node, &raw) == store.config.quorum {
                self.leases.note(&raw);
                self.tell(store, raw).await;
            }
        }
    }

    /// Looks at leases that should be over, if they were not renewed.
    async fn look_at_due(&mut self, store: &Arc<Store>) {
        let leases = self.leases.take_due(Moment::now());
        if leases.is_empty() {
            return;
        }
        let names: Vec<LockName> = leases.iter().map(|lease| lease.name.clone()).collect();
        let Ok(sights) = store.look(names).await else {
            // It will be looked at again.
            leases.into_iter().for_each(|it| self.leases.watch(it, Duration::from_millis(500)));
            return;
        };
        for (lease, sight) in leases.into_iter().zip(sights) {
            let hold = sight.hold(store.config.quorum);
            let hold = hold
                .filter(|seen| seen.claim().is_some_and(|(_, fence)| Some(fence) == lease.fence));
            match hold.and_then(|seen| seen.left) {
                Some(left) => self.leases.watch(lease, left),
                None => {
                    let (kind, at_us) = (WatchKind::Expired, wall_clock_us());
                    self.tell(store, Raw { kind, at_us, ..lease }).await;
                }
            }
        }
    }

    async fn tell(&mut self, store: &Arc<Store>, raw: Raw) {
        let client: ClientId = raw.holder.client();
        let label = labels(store, HashSet::from([client])).await.remove(&client);
        self.feed.offer(WatchEvent {
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(raw.at_us),
            name: raw.name,
            kind: raw.kind,
            fence: raw.fence,
            label,
        });
    }
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
        let holder = read_holder(fields.next()?)?;
        let lasts = Duration::from_millis(fields.next()?.parse().ok()?);
        let name = LockName::new(fields.next()?.strip_prefix(prefix)?).ok()?;
        Some(Self { at_us, kind, fence, holder, lasts, name })
    }
}

/// Which nodes have told of what.
#[derive(Default)]
struct Told {
    nodes: HashMap<(HolderId, &'static str, u64), u32>,
    order: VecDeque<(HolderId, &'static str, u64)>,
}

impl Told {
    /// Counts a node. Returns how many have told, or nothing if this one had already.
    fn count(&mut self, node: usize, raw: &Raw) -> usize {
        let key = (raw.holder, raw.kind.as_str(), raw.fence.map_or(0, Fence::get));
        let nodes = self.nodes.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            0
        });
        if *nodes & (1 << node) != 0 {
            return 0;
        }
        *nodes |= 1 << node;
        let count = nodes.count_ones() as usize;
        if self.order.len() > TOLD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
        count
    }
}

/// The leases that were seen to begin and not yet to end.
#[derive(Default)]
struct Leases {
    known: BTreeMap<(LockName, u64), (u64, Raw)>,
    due: BTreeSet<(u64, LockName, u64)>,
}

impl Leases {
    /// Takes note of an event.
    fn note(&mut self, raw: &Raw) {
        let Some(fence) = raw.fence else { return };
        if raw.kind != WatchKind::Granted {
            self.remove(&raw.name, fence.get());
        } else if self.known.len() < LEASES_MAX {
            self.watch(raw.clone(), raw.lasts);
        }
    }

    fn watch(&mut self, raw: Raw, lasts: Duration) {
        let fence = raw.fence.map_or(0, Fence::get);
        let due_ns = (Moment::now() + lasts + Duration::from_millis(2)).host_ns();
        self.due.insert((due_ns, raw.name.clone(), fence));
        self.known.insert((raw.name.clone(), fence), (due_ns, raw));
    }

    fn remove(&mut self, name: &LockName, fence: u64) -> Option<Raw> {
        let (due_ns, raw) = self.known.remove(&(name.clone(), fence))?;
        self.due.remove(&(due_ns, name.clone(), fence));
        Some(raw)
    }

    fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due_ns, ..)| Moment::from_host_ns(*due_ns))
    }

    fn take_due(&mut self, now: Moment) -> Vec<Raw> {
        let is_due = |(due_ns, ..): &&(u64, LockName, u64)| *due_ns <= now.host_ns();
        let due: Vec<_> = self.due.iter().take_while(is_due).take(256).cloned().collect();
        due.into_iter().filter_map(|(_, name, fence)| self.remove(&name, fence)).collect()
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
