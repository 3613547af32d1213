//! The nodes of a cluster: each master has a link of its own, and a request goes to the one that
//! has the slot of its lock. When that is another one by now, the map is drawn anew.

mod tally;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockfast_core::lobby::Lobby;
use lockfast_core::{ConnectContext, ErrorKind, Moment, RenewRequest, jitter};
use tokio::sync::oneshot;

use crate::batch::{Op, Plain, Renew};
use crate::claim::Claim;
use crate::config::Endpoint;
use crate::record;
use crate::slot;
use crate::store::{Labels, Store, lock};
use crate::wire::cluster::{Range, draw_map, read_place};
use crate::wire::dial::Dialer;
use crate::wire::link::{Link, Traffic as _};
use crate::wire::{Failure, Pipeline, failure};

/// The least time between two maps.
const PAUSE: Duration = Duration::from_millis(100);
/// How often our label is written again, and how long it stays.
const LABEL_REFRESH: Duration = Duration::from_secs(3600);
const LABEL_MS: &str = "86400000";

/// All nodes.
pub(crate) struct Cluster {
    me: Weak<Self>,
    dialer: Arc<Dialer>,
    context: ConnectContext,
    lobby: Arc<Lobby<Claim>>,
    labels: Labels,
    map: Mutex<Map>,
    /// Requests that wait for a new map.
    moved: Mutex<Vec<Op>>,
    is_drawing: AtomicBool,
    links: AtomicU64,
    /// The nodes that there was a connection to.
    met: Mutex<HashSet<String>>,
    pub(crate) is_watching: AtomicBool,
}

#[derive(Default)]
struct Map {
    ranges: Vec<Range>,
    nodes: Vec<Node>,
    drawn: Option<Moment>,
}

struct Node {
    endpoint: Endpoint,
    store: Arc<Store>,
    _link: Link<Store>,
}

impl Map {
    fn find(&self, slot: u16) -> Option<Arc<Store>> {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        let node = self.nodes.iter().find(|node| node.endpoint == range.master)?;
        Some(Arc::clone(&node.store))
    }
}

impl Cluster {
    /// Draws the first map.
    pub(crate) async fn open(
        dialer: Arc<Dialer>,
        seeds: Vec<Endpoint>,
        context: ConnectContext,
    ) -> Result<Arc<Self>, Failure> {
        let ranges = draw_map(&dialer, &seeds).await?;
        let cluster = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            dialer,
            context,
            lobby: Arc::default(),
            labels: Arc::default(),
            map: Mutex::default(),
            moved: Mutex::default(),
            is_drawing: AtomicBool::new(false),
            links: AtomicU64::new(0),
            met: Mutex::default(),
            is_watching: AtomicBool::new(false),
        });
        cluster.adopt(ranges);
        Ok(cluster)
    }

    /// A store that hands everything to the right node.
    pub(crate) fn front(&self) -> Arc<Store> {
        self.store(Arc::clone(&self.dialer))
    }

    fn store(&self, dialer: Arc<Dialer>) -> Arc<Store> {
        let shared = (Arc::clone(&self.lobby), Arc::clone(&self.labels));
        Store::build(dialer, self.context.clone(), shared, Some(self.me.clone()))
    }

    /// A number for a new connection, above those of all earlier ones, and whether it is not the
    /// first to this node.
    pub(crate) fn number_link(&self, node: &Endpoint) -> (u64, bool) {
        let is_first = lock(&self.met).insert(node.to_string());
        (self.links.fetch_add(1, Ordering::Relaxed), !is_first)
    }

    /// All masters.
    pub(crate) fn masters(&self) -> Vec<Arc<Store>> {
        lock(&self.map).nodes.iter().map(|node| Arc::clone(&node.store)).collect()
    }

    /// Whether a server is not a master here (any more).
    pub(crate) fn has_left(&self, endpoint: &Endpoint) -> bool {
        !lock(&self.map).nodes.iter().any(|node| node.endpoint == *endpoint)
    }

    fn slot(&self, name: &lockfast_core::LockName) -> u16 {
        slot::of_key(&format!("{}{name}", self.dialer.config().prefix))
    }

    /// Hands a request to the node that can serve it.
    pub(crate) fn route(&self, op: Op) {
        let slot = match &op {
            Op::Take(take) => self.slot(&take.claim.name),
            Op::Give(give) => self.slot(&give.name),
            Op::Plain(plain) => plain.slot.unwrap_or(0),
            Op::Renew(renew) if renew.leases.len() == 1 => self.slot(&renew.leases[0].name),
            Op::Renew(_) => return self.route_each(op),
        };
        self.hand(slot, op);
    }

    fn hand(&self, slot: u16, op: Op) {
        let store = lock(&self.map).find(slot);
        match store {
            Some(store) => store.submit_here(op),
            None => {
                self.redraw();
                let message = format!("no master of the cluster has slot {slot} at the moment");
                self.fail(op, &Failure::new(ErrorKind::Unreachable, message));
            }
        }
    }

    fn fail(&self, op: Op, failure: &Failure) {
        self.front().fail_op(op, failure);
    }

    /// Each lease is renewed by the node that has it, whatever comes of the others, and the
    /// answers are put together again.
    fn route_each(&self, op: Op) {
        let Op::Renew(Renew { leases, asker, tries, .. }) = op else { return };
        let start = Moment::now();
        let ask = |lease: &RenewRequest| {
            let (asker, answer) = oneshot::channel();
            let renew = Renew { tries, ..Renew::new([lease.clone()].into(), asker) };
            self.hand(self.slot(&lease.name), Op::Renew(renew));
            answer
        };
        let answers = leases.iter().map(ask).collect();
        let shortest = leases.iter().map(|lease| lease.ttl).min().unwrap_or_default();
        self.context.runtime.spawn(async move {
            let _ = asker.send(tally::collect(answers, start, shortest).await);
        });
    }

    /// The node that another one has named, although it need not have any slot yet.
    pub(crate) fn find_node(&self, asked: &Endpoint, place: &str) -> Option<Arc<Store>> {
        let endpoint = read_place(asked, place)?;
        Some(self.meet(&mut lock(&self.map), &endpoint))
    }

    /// The store of a node, with a link to it.
    fn meet(&self, map: &mut Map, endpoint: &Endpoint) -> Arc<Store> {
        if let Some(node) = map.nodes.iter().find(|node| node.endpoint == *endpoint) {
            return Arc::clone(&node.store);
        }
        let dialer = Arc::new(self.dialer.for_node(endpoint.clone()));
        let store = self.store(Arc::clone(&dialer));
        let link = Link::start_later(&self.context.runtime, Arc::clone(&store), dialer);
        store.open(link.pump());
        let endpoint = endpoint.clone();
        map.nodes.push(Node { endpoint, store: Arc::clone(&store), _link: link });
        store
    }

    /// Another node has it: repeats the request when the map is up to date.
    pub(crate) fn follow(&self, op: Op) {
        lock(&self.moved).push(op);
        self.redraw();
    }

    /// Draws the map anew in the background, unless that is being done.
    pub(crate) fn redraw(&self) {
        if self.is_drawing.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        self.context.runtime.spawn(async move { me.draw().await });
    }

    async fn draw(self: Arc<Self>) {
        let (drawn, mut known) = {
            let map = lock(&self.map);
            let known: Vec<_> = map.nodes.iter().map(|node| node.endpoint.clone()).collect();
            (map.drawn, known)
        };
        if let Some(drawn) = drawn {
            tokio::time::sleep((drawn + PAUSE).remaining(Moment::now())).await;
        }
        // Not always the same first: it may be the one that is down, or cut off from the others.
        let first = (jitter() * known.len() as f64) as usize;
        known.rotate_left(first);
        if let Endpoint::Cluster(nodes) = &self.dialer.config().endpoint {
            known.extend(nodes.seeds.iter().cloned());
        }
        let outcome = draw_map(&self.dialer, &known).await;
        self.is_drawing.store(false, Ordering::Release);
        let moved = std::mem::take(&mut *lock(&self.moved));
        match outcome {
            Ok(ranges) => {
                self.adopt(ranges);
                moved.into_iter().for_each(|op| self.route(op));
            }
            Err(failure) => {
                lock(&self.map).drawn = Some(Moment::now());
                moved.into_iter().for_each(|op| self.fail(op, &failure));
            }
        }
    }

    /// Takes over a new map: links are made to new masters, and those to former ones closed.
    fn adopt(&self, ranges: Vec<Range>) {
        let gone = {
            let mut map = lock(&self.map);
            for range in &ranges {
                self.meet(&mut map, &range.master);
            }
            let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut map.nodes)
                .into_iter()
                .partition(|node| ranges.iter().any(|range| range.master == node.endpoint));
            map.nodes = stay;
            if map.ranges != ranges {
                map.ranges = ranges;
            }
            map.drawn = Some(Moment::now());
            gone
        };
        for node in gone {
            let failure = failure::of_end(&node.endpoint);
            node.store.fail_waiting(&failure);
        }
    }

    /// Writes our label from time to time, for ever.
    pub(crate) async fn keep_label(store: Arc<Store>, mut is_written: bool) {
        loop {
            let pause = if is_written { LABEL_REFRESH } else { Duration::from_secs(1) };
            tokio::time::sleep(pause).await;
            is_written = Self::write_label(&store).await;
        }
    }

    /// Writes our label. Without it locks work, but nobody sees whose they are.
    pub(crate) async fn write_label(store: &Store) -> bool {
        let (asker, answer) = oneshot::channel();
        let key = format!("{}{}", record::CLIENT_KEY, record::write_client(store.client));
        let label = format!("00000000{}", record::write_label(&store.label));
        let slot = Some(slot::of_key(&key));
        let write = move |pipeline: &mut Pipeline| {
            pipeline.all(&["SET", &key, &label, "PX", LABEL_MS]);
        };
        store.submit(Op::Plain(Plain { write: Box::new(write), asker, slot, tries: 0 }));
        matches!(answer.await, Ok(Ok(_)))
    }
}
