//! A server as its clients share it: what is asked is gathered into batches, and what is answered
//! or pushed finds the one who waits for it.

mod command;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use lockfast_core::batch::Inbox;
use lockfast_core::lobby::Lobby;
use lockfast_core::{
    BoxFuture, ClientId, ConnectContext, ErrorKind, Fence, HolderId, Label, LossReporter, Mode,
    Moment,
};
use tokio::runtime::Handle;

use crate::batch::{Batch, LOCKS_MAX, Op};
use crate::channels::Channels;
use crate::claim::Claim;
use crate::cluster::Cluster;
use crate::config::{Config, Endpoint, OnDataLoss};
use crate::record::{self, Keys};
use crate::simple::Simplicity;
use crate::unsettled::Unsettled;
use crate::wire::connection::Connection;
use crate::wire::dial::Dialer;
use crate::wire::link::{Pump, Traffic};
use crate::wire::{Failure, Pipeline, Reply, UNSUBSCRIBED};

/// What is known of who others are.
pub(crate) type Labels = Arc<Mutex<HashMap<ClientId, Label>>>;

/// So many requests at once are worth two batches.
const HALVED_MIN: usize = 8;
/// How long the server remembers a client that is never heard of again, and how often it is reminded
/// of one that asks.
const CLIENT_MS: &str = "86400000";
const CLIENT_REFRESH: Duration = Duration::from_secs(3600);
/// How long replicas may take to confirm a grant: so long, and at most this part of the ttl, so
/// that whoever asks is told before it stops listening.
const REPLICAS_MS_MAX: u64 = 1000;
const REPLICAS_PART_OF_TTL: u64 = 12;

/// A server and who we are to it.
pub(crate) struct Store {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) client: ClientId,
    pub(crate) label: Label,
    pub(crate) losses: LossReporter,
    pub(crate) runtime: Handle,
    pub(crate) lobby: Arc<Lobby<Claim>>,
    pub(crate) labels: Labels,
    /// The cluster of which it is a part.
    pub(crate) cluster: Option<Weak<Cluster>>,
    channels: Channels,
    me: Weak<Self>,
    client_key: String,
    inbox: Inbox<Op>,
    pump: Arc<OnceLock<Pump<Store>>>,
    /// How many requests are in the inbox and in the backlog.
    waiting: AtomicUsize,
    backlog: Mutex<Backlog>,
    enrolment: Mutex<Enrolment>,
    needs_scripts: AtomicBool,
    needs_enrolment: AtomicBool,
    /// By which link the server knew us when it said that it did not know this one.
    rival: Mutex<String>,
    /// When the server is reminded of us.
    refresh_ns: AtomicU64,
    /// How many requests wait for their answers.
    flying: AtomicUsize,
    /// Whether what was given back last went on to somebody who waited for it.
    has_heirs: AtomicBool,
    pub(crate) simplicity: Simplicity,
    pub(crate) unsettled: Unsettled,
    /// What we hold, for a server that has forgotten it; kept only with the quarantine.
    pub(crate) held: Option<Mutex<HashMap<HolderId, (Mode, Fence)>>>,
}

#[derive(Default)]
struct Backlog {
    ops: VecDeque<Op>,
    fresh: Vec<Op>,
}

/// How the server knows this connection.
#[derive(Clone, Default)]
struct Enrolment {
    /// Made anew for each connection.
    link: String,
    /// Which server it is, if the quarantine needs to know.
    identity: String,
    /// Whether there was a connection before this one.
    is_rebuilt: bool,
}

impl Store {
    pub(crate) fn new(dialer: Arc<Dialer>, context: ConnectContext) -> Arc<Self> {
        Self::build(dialer, context, Default::default(), None)
    }

    /// A store that shares who waits and what is known of others.
    pub(crate) fn build(
        dialer: Arc<Dialer>,
        context: ConnectContext,
        (lobby, labels): (Arc<Lobby<Claim>>, Labels),
        cluster: Option<Weak<Cluster>>,
    ) -> Arc<Self> {
        let pump: Arc<OnceLock<Pump<Self>>> = Arc::default();
        let waker = Arc::clone(&pump);
        let quarantine = matches!(dialer.config().on_data_loss, OnDataLoss::Quarantine { .. });
        let is_simple = cluster.is_none() && !quarantine && dialer.config().min_replicas == 0;
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            client_key: format!("{}{}", record::CLIENT_KEY, record::write_client(context.client)),
            dialer,
            client: context.client,
            label: context.label,
            losses: context.losses,
            runtime: context.runtime,
            lobby,
            cluster,
            channels: Channels::default(),
            labels,
            inbox: Inbox::new(move || waker.get().into_iter().for_each(Pump::run)),
            pump,
            waiting: AtomicUsize::new(0),
            backlog: Mutex::default(),
            enrolment: Mutex::default(),
            needs_scripts: AtomicBool::new(false),
            needs_enrolment: AtomicBool::new(false),
            rival: Mutex::default(),
            refresh_ns: AtomicU64::new((Moment::now() + CLIENT_REFRESH).host_ns()),
            held: quarantine.then(Mutex::default),
            simplicity: Simplicity::new(is_simple),
            unsettled: Unsettled::default(),
            flying: AtomicUsize::new(0),
            has_heirs: AtomicBool::new(false),
        })
    }

    /// This store, for work in the background; not while it is being dropped.
    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// From now on, what is submitted goes out through `pump`.
    pub(crate) fn open(&self, pump: Pump<Self>) {
        let _ = self.pump.set(pump);
    }

    /// Whether this server is not (any more) the one that keeps the locks.
    pub(crate) fn has_left(&self, endpoint: &Endpoint) -> bool {
        if let Some(cluster) = &self.cluster {
            return cluster.upgrade().is_some_and(|cluster| cluster.has_left(endpoint));
        }
        self.pump.get().is_some_and(|pump| pump.is_elsewhere(endpoint))
    }

    pub(crate) fn config(&self) -> &Config {
        self.dialer.config()
    }

    /// Asks the server, together with whoever else does.
    pub(crate) fn submit(&self, op: Op) {
        match &self.cluster {
            None => self.submit_here(op),
            Some(cluster) => {
                if let Some(cluster) = cluster.upgrade() {
                    cluster.route(op);
                }
            }
        }
    }

    /// Asks this very server.
    pub(crate) fn submit_here(&self, op: Op) {
        let pump = self.pump.get();
        let is_heard = pump.is_some_and(Pump::attend);
        self.waiting.fetch_add(1, Ordering::Release);
        self.inbox.push(op);
        if !is_heard {
            // It does not wait for those who gather what is asked elsewhere.
            pump.into_iter().for_each(Pump::run);
        }
    }

    /// The servers that keep the locks.
    pub(crate) fn servers(&self) -> Vec<Arc<Self>> {
        match &self.cluster {
            None => self.me().into_iter().collect(),
            Some(cluster) => cluster.upgrade().map(|it| it.masters()).unwrap_or_default(),
        }
    }

    /// Requests by the calls that carry them: keys of different slots do not go together, nor does
    /// what is set apart go with anything.
    pub(crate) fn runs<'a, T>(
        &self,
        requests: &'a [T],
        is_apart: impl Fn(&T) -> bool,
    ) -> impl Iterator<Item = &'a [T]> {
        let goes_along = self.cluster.is_none();
        requests.chunk_by(move |one, next| goes_along && !is_apart(one) && !is_apart(next))
    }

    /// Tends those who wait, for ever.
    pub(crate) async fn tend_lobby(self: Arc<Self>) {
        self.lobby.tend(|due| due.into_iter().for_each(|take| self.submit(Op::Take(take)))).await;
    }

    /// Puts requests back to where they came from.
    pub(crate) fn requeue(&self, ops: Vec<Op>) {
        let mut backlog = lock(&self.backlog);
        self.waiting.fetch_add(ops.len(), Ordering::Release);
        ops.into_iter().rev().for_each(|op| backlog.ops.push_front(op));
    }

    /// Takes note of whether others had waited for what was given back.
    pub(crate) fn note_heirs<'a>(&self, mut given: impl Iterator<Item = &'a Reply>) {
        let has_heirs = given.any(|entry| entry.as_int() == Some(2));
        self.has_heirs.store(has_heirs, Ordering::Relaxed);
    }

    pub(crate) fn ask_for_scripts(&self) {
        self.needs_scripts.store(true, Ordering::Release);
    }

    /// The server knows us by another link, or by none.
    pub(crate) fn ask_for_enrolment(&self, rival: &str) {
        // The nodes of a cluster know no clients.
        if self.cluster.is_some() {
            return;
        }
        rival.clone_into(&mut lock(&self.rival));
        self.needs_enrolment.store(true, Ordering::Release);
    }

    pub(crate) fn keys<'a>(&'a self, name: &'a lockfast_core::LockName) -> Keys<'a> {
        Keys { prefix: &self.config().prefix, name: name.as_str() }
    }

    /// Gathers what waits into one batch.
    fn gather(&self) -> Option<(Batch, Duration)> {
        let mut backlog = lock(&self.backlog);
        let Backlog { ops, fresh } = &mut *backlog;
        self.inbox.take_into(fresh);
        ops.extend(fresh.drain(..));
        let mut batch = Batch::default();
        let request_timeout = self.config().request_timeout;
        let mut limit = request_timeout;
        let mut is_empty = true;
        let before = ops.len();
        let most = share_out(before + self.flying.load(Ordering::Relaxed));
        while let Some(op) = ops.pop_front() {
            if op.is_moot(&self.lobby) {
                continue;
            }
            if batch.len() >= most {
                ops.push_front(op);
                break;
            }
            is_empty = false;
            limit = limit.min(op.limit(request_timeout));
            self.sort_into(&mut batch, op);
        }
        self.waiting.fetch_sub(before - ops.len(), Ordering::Release);
        self.flying.fetch_add(batch.len(), Ordering::Relaxed);
        (!is_empty).then_some((batch, limit))
    }

    /// A subscription failed or ended; to subscribe again does no harm.
    pub(crate) fn forget_channels(&self) {
        self.channels.forget();
    }

    /// Whether another node has taken over is to be found out.
    fn redraw(&self) {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        cluster.into_iter().for_each(|cluster| cluster.redraw());
    }

    /// Learns which server this is.
    async fn identify(&self, connection: &mut Connection) -> Result<String, Failure> {
        if self.held.is_none() {
            return Ok(String::new());
        }
        let mut pipeline = Pipeline::default();
        pipeline.all(&["INFO", "server"]);
        pipeline.all(&["INFO", "replication"]);
        let replies = connection.ask(pipeline).await?;
        let field = |name: &str| {
            let lines = replies.iter().filter_map(Reply::as_text).flat_map(str::lines);
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next().map(|value| value.trim().to_owned())
        };
        match (field("run_id"), field("master_replid")) {
            (Some(run), Some(replication)) => Ok(format!("{run}.{replication}")),
            _ => Err(Failure::new(
                ErrorKind::Unsupported,
                "the server does not tell its run_id and master_replid, which \
                 on_data_loss=quarantine needs",
            )),
        }
    }

    /// Prepares a connection to a node of a cluster.
    async fn greet_node(
        &self,
        cluster: &Cluster,
        connection: &mut Connection,
    ) -> Result<(), Failure> {
        let mut pipeline = Pipeline::default();
        // Its answer is no reply, so it must be sure that it is not refused later.
        pipeline.unanswered(&["SUNSUBSCRIBE"]);
        pipeline.all(&["TIME"]);
        self.scripts().load_all(&mut pipeline);
        let client = record::write_client(self.client);
        pipeline.all(&["SUBSCRIBE", &format!("{}{client}", record::PUSH_CHANNEL)]);
        if cluster.is_watching.load(Ordering::Acquire) {
            pipeline.all(&["SUBSCRIBE", record::WATCH_CHANNEL]);
        }
        connection.ask(pipeline).await?;
        self.channels.forget();
        let (number, is_rebuilt) = cluster.number_link(connection.incoming.endpoint());
        let link = format!("{number:08}");
        *lock(&self.enrolment) = Enrolment { link, identity: String::new(), is_rebuilt };
        Ok(())
    }

    async fn greet_connection(&self, connection: &mut Connection) -> Result<(), Failure> {
        if let Some(cluster) = self.cluster.as_ref().and_then(Weak::upgrade) {
            return self.greet_node(&cluster, connection).await;
        }
        let mut pipeline = Pipeline::default();
        let client = record::write_client(self.client);
        pipeline.all(&["SUBSCRIBE", &format!("{}{client}", record::PUSH_CHANNEL)]);
        self.scripts().load_all(&mut pipeline);
        connection.ask(pipeline).await?;
        let enrolment = Enrolment {
            link: random_link()?,
            identity: self.identify(connection).await?,
            is_rebuilt: false,
        };
        let mut pipeline = Pipeline::default();
        self.write_enrolment(&mut pipeline, &enrolment, None);
        *lock(&self.enrolment) = enrolment;
        self.simplicity.meet_server();
        let replies = connection.ask(pipeline).await?;
        if let Some(ms @ 1..) = replies.first().and_then(Reply::as_int) {
            tracing::warn!(ms, "the server may have lost data; it grants nothing for a while");
        }
        Ok(())
    }
}

/// How many locks the next batch may carry when so many are waiting or on their way: the server
/// works at one half while we work at the other.
fn share_out(all: usize) -> usize {
    if all > HALVED_MIN { all.div_ceil(2).min(LOCKS_MAX) } else { LOCKS_MAX }
}

/// Eight characters that no other connection has.
fn random_link() -> Result<String, Failure> {
    let client = ClientId::random();
    client
        .map(record::write_client)
        .map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))
}

impl Traffic for Store {
    type Batch = Batch;

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    fn load(&self, pipeline: &mut Pipeline) -> Option<(Batch, Duration)> {
        let (mut batch, limit) = self.gather()?;
        self.write_preamble(pipeline);
        if self.cluster.is_some() {
            let channels: Vec<String> = self.push_channels(&batch.takes).collect();
            batch.waits = channels.len();
            self.channels.write(pipeline, channels, self.lobby.is_empty());
        }
        if pipeline.commands() == 0 && batch.only_gives() && self.has_heirs.load(Ordering::Relaxed)
        {
            // A server writes last to whom it began to answer first, so that who waits is told
            // before we are. Any answer will do.
            pipeline.all(&["TIME"]);
        }
        self.write_batch(pipeline, &mut batch);
        Some((batch, limit))
    }

    fn size(&self, batch: &Batch) -> usize {
        batch.len()
    }

    fn answer(&self, batch: Batch, sent: Moment, replies: Vec<Reply>) -> Option<Failure> {
        let waits = batch.waits;
        self.flying.fetch_sub(batch.len(), Ordering::Relaxed);
        let broken = self.distribute(batch, sent, replies);
        self.channels.settle(waits);
        broken
    }

    fn fail(&self, batch: Batch, failure: &Failure) {
        self.flying.fetch_sub(batch.len(), Ordering::Relaxed);
        self.channels.settle(batch.waits);
        self.redraw();
        batch.into_ops().for_each(|op| self.fail_op(op, failure));
    }

    fn fail_waiting(&self, failure: &Failure) {
        let ops = {
            let mut backlog = lock(&self.backlog);
            let Backlog { ops, fresh } = &mut *backlog;
            self.inbox.take_into(fresh);
            ops.extend(fresh.drain(..));
            self.waiting.fetch_sub(ops.len(), Ordering::Release);
            std::mem::take(ops)
        };
        self.redraw();
        ops.into_iter().for_each(|op| self.fail_op(op, failure));
    }

    fn push(&self, payload: &[u8]) {
        if payload == UNSUBSCRIBED {
            // Whoever waits there looks where the slot is now.
            self.channels.forget();
            self.lobby.rouse();
            return;
        }
        self.hear(payload);
    }

    fn greet<'a>(&'a self, connection: &'a mut Connection) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.greet_connection(connection))
    }

    fn connected(&self) {
        self.lobby.rouse();
        self.pump.get().into_iter().for_each(Pump::run);
    }
}

/// Locks a mutex; nothing that holds one of these can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "store_test.rs"]
pub(crate) mod tests;
