//! What happens to the locks, for whoever watches: each node publishes what it did, and what a
//! quorum of them did has happened. An expiry is told by nobody, so leases are looked at when
//! they should be over.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockfast_backend_redis::node::read_client;
use lockfast_core::watch::{EventFeed, Leases, Notice};
use lockfast_core::{EventStream, Fence, LockName, Moment, Result, WatchKind};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::inspect::labels;
use crate::record::{self, Seen};
use crate::store::{Store, lock};

/// How long nodes publish after somebody asked for it, and how often that is done.
const WATCH_MS: &str = "60000";
const WATCH_REFRESH: Duration = Duration::from_secs(20);
/// How many events are remembered until a quorum has told of them.
const TOLD_MAX: usize = 8192;
/// How many leases are watched for their expiry, and how many of them are looked at together.
const LEASES_MAX: usize = 100_000;
const LOOK_MAX: usize = 256;

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (feed, stream) = EventStream::channel();
    let (heard, raws) = mpsc::unbounded_channel();
    lock(&store.watchers).push(heard);
    store.is_watching.store(true, Ordering::Release);
    let channel = store.config.event_channel();
    let answers = store
        .ask_all(move |pipeline| {
            pipeline.all(&["SUBSCRIBE", &channel]);
            pipeline.all(&["SET", record::WATCH_KEY, &channel, "PX", WATCH_MS]);
        })
        .await;
    store.require_quorum(answers).await?;
    let runtime = store.runtime.clone();
    let watcher = Watcher { feed, leases: Leases::up_to(LEASES_MAX), told: Told::default() };
    runtime.spawn(watcher.run(store, raws));
    Ok(stream)
}

struct Watcher {
    feed: EventFeed,
    leases: Leases,
    told: Told,
}

impl Watcher {
    async fn run(mut self, store: Arc<Store>, mut raws: UnboundedReceiver<(usize, Vec<u8>)>) {
        let mut refreshed = Moment::now();
        while !self.feed.is_closed() {
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
                let channel = store.config.event_channel();
                store
                    .ask_all(move |pipeline| {
                        pipeline.all(&["SET", record::WATCH_KEY, &channel, "PX", WATCH_MS]);
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
            let notice = read_notice(line, at_us, store.config.prefix());
            let Some((tag, notice)) = notice else { continue };
            if self.told.count(node, tag, &notice) == store.config.quorum {
                self.leases.note(&notice);
                self.tell(store, notice).await;
            }
        }
    }

    /// Looks at leases that should be over, if they were not renewed.
    async fn look_at_due(&mut self, store: &Arc<Store>) {
        let leases = self.leases.take_due(Moment::now(), LOOK_MAX);
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
            let mut holds = sight.holds(store.config.quorum).into_iter();
            let is_it = |seen: &Seen| seen.claim().is_some_and(|(_, fence)| fence == lease.fence);
            match holds.find(is_it).and_then(|seen| seen.left) {
                Some(left) => self.leases.watch(lease, left),
                None => self.tell(store, lease.expired()).await,
            }
        }
    }

    async fn tell(&mut self, store: &Arc<Store>, notice: Notice) {
        let client = notice.client;
        let label = labels(store, HashSet::from([client])).await.remove(&client);
        self.feed.offer(notice.into_event(label));
    }
}

/// An event as a node published it, and the tag of the holder that it is about.
fn read_notice<'a>(line: &'a str, at_us: u64, prefix: &str) -> Option<(&'a str, Notice)> {
    let mut fields = line.splitn(6, '\t');
    let kind = WatchKind::from_letter(fields.next()?)?;
    let fence = fields.next().and_then(|fence| Fence::parse(fence).ok());
    let client = read_client(fields.next()?)?;
    let tag = fields.next()?;
    let lasts = Duration::from_millis(fields.next()?.parse().ok()?);
    let name = LockName::new(fields.next()?.strip_prefix(prefix)?).ok()?;
    Some((tag, Notice { at_us, kind, fence, client, lasts, name }))
}

/// Which nodes have told of what.
#[derive(Default)]
struct Told {
    nodes: HashMap<(String, &'static str, u64), u32>,
    order: VecDeque<(String, &'static str, u64)>,
}

impl Told {
    /// Counts a node. Returns how many have told, or nothing if this one had already.
    fn count(&mut self, node: usize, tag: &str, notice: &Notice) -> usize {
        let key = (tag.to_owned(), notice.kind.as_str(), notice.fence.map_or(0, Fence::get));
        let nodes = self.nodes.entry(key.clone()).or_insert_with(|| {
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
