//! One node as its clients share it: what is asked is gathered into batches, and releases that it
//! could not be told are told when it is back, or takes them again.

mod command;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use lockfast_backend_redis::node::{write_client, write_label};
use lockfast_core::{BoxFuture, ClientId, ErrorKind, Label, Moment};

use crate::ballot::Said;
use crate::batch::{Batch, LOCKS_MAX, Op, Sent, Take, Tries};
use crate::claim::Ticket;
use crate::config::one_server_message;
use crate::giving::{Gave, Giving};
use crate::record;
use crate::renewal::Kept;
use crate::script;
use crate::store::{Store, lock};
use crate::wire::{Connection, Dialer, Endpoint, Failure, Pipeline, Pump, Reply, Traffic};

/// A connection on which nothing was answered for so long is of no use any more. It is longer
/// than the time that a node has, so that one that is slow is late and not cut off.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How many releases a node is owed at most that could not be told; the rest ends with its ttl.
const DEBTS_MAX: usize = 100_000;
/// When a node that did not take a release although it was there is told again, and of how many.
const DEBTS_PAUSE: Duration = Duration::from_secs(1);
const DEBTS_AT_ONCE: usize = 4 * LOCKS_MAX;
const CLIENT_MS: &str = "86400000";

/// One server.
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) store: Weak<Store>,
    dialer: Arc<Dialer>,
    queue: Mutex<VecDeque<Op>>,
    /// How many requests are in the queue.
    waiting: AtomicUsize,
    pump: OnceLock<Pump<Node>>,
    is_down: AtomicBool,
    /// Why it is out of reach.
    trouble: Mutex<Option<Failure>>,
    /// Whether somebody wanted it while it was out of reach.
    is_missed: AtomicBool,
    /// Since when a batch is unanswered, in [`Moment::host_ns`]; 0 for none.
    busy_since_ns: AtomicU64,
    /// When there last was a way to ask, likewise.
    looked_ns: AtomicU64,
    debts: Mutex<VecDeque<Arc<Giving>>>,
    /// Whether it will be told of them in a moment.
    is_reminded: AtomicBool,
    needs_scripts: AtomicBool,
    needs_enrolment: AtomicBool,
    /// By which link the node knew us when it is asked to know us by the present one.
    rival: Mutex<String>,
    /// The key by which the node knows this client, and its value without the link.
    client_key: String,
    label: String,
    /// Made anew for each connection.
    link: Mutex<String>,
    /// Whether it was told already that the node has lost data, since it last started.
    pub(crate) is_loss_told: AtomicBool,
}

impl Node {
    pub(crate) fn new(
        index: usize,
        dialer: Arc<Dialer>,
        (client, label): (&str, &Label),
        store: Weak<Store>,
    ) -> Self {
        Self {
            index,
            name: dialer.config().endpoint.to_string(),
            store,
            dialer,
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            pump: OnceLock::new(),
            is_down: AtomicBool::new(false),
            trouble: Mutex::default(),
            is_missed: AtomicBool::new(false),
            busy_since_ns: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            debts: Mutex::default(),
            is_reminded: AtomicBool::new(false),
            needs_scripts: AtomicBool::new(false),
            needs_enrolment: AtomicBool::new(false),
            rival: Mutex::default(),
            client_key: format!("{}{client}", record::CLIENT_KEY),
            label: write_label(label),
            link: Mutex::default(),
            is_loss_told: AtomicBool::new(false),
        }
    }

    pub(crate) fn dialer(&self) -> &Arc<Dialer> {
        &self.dialer
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.dialer.config().endpoint
    }

    /// From now on, what is submitted goes out through `pump`.
    pub(crate) fn open(&self, pump: Pump<Self>) {
        let _ = self.pump.set(pump);
    }

    fn pump(&self) {
        self.pump.get().into_iter().for_each(Pump::run);
    }

    /// Asks the node, together with whoever else does. One that is out of reach is not waited
    /// for.
    pub(crate) fn submit(&self, op: Op) {
        if self.is_down.load(Ordering::Acquire) {
            if !self.is_missed.swap(true, Ordering::AcqRel) {
                self.pump();
            }
            let failure = self.trouble();
            return self.fail_op(op, &failure);
        }
        let is_heard = self.pump.get().is_some_and(Pump::attend);
        self.waiting.fetch_add(1, Ordering::Release);
        let was_empty = {
            let mut queue = lock(&self.queue);
            queue.push_back(op);
            queue.len() == 1
        };
        // Who is not by the ear does not wait for those who are.
        if was_empty || !is_heard {
            self.pump();
        }
    }

    /// Puts requests back to where they came from.
    pub(crate) fn requeue(&self, ops: Vec<Op>) {
        self.waiting.fetch_add(ops.len(), Ordering::Release);
        let mut queue = lock(&self.queue);
        ops.into_iter().rev().for_each(|op| queue.push_front(op));
    }

    pub(crate) fn ask_for_scripts(&self) {
        self.needs_scripts.store(true, Ordering::Release);
    }

    /// The node knows us by another link, or by none.
    pub(crate) fn ask_for_enrolment(&self, rival: &str) {
        rival.clone_into(&mut lock(&self.rival));
        self.needs_enrolment.store(true, Ordering::Release);
    }

    /// Keeps us known to the node for longer, with whatever is asked next.
    pub(crate) fn refresh_enrolment(&self) {
        let link = lock(&self.link).clone();
        self.ask_for_enrolment(&link);
    }

    fn trouble(&self) -> Failure {
        lock(&self.trouble)
            .clone()
            .unwrap_or_else(|| Failure::new(ErrorKind::Unreachable, "it is being connected to"))
    }

    /// It cannot be asked until there is a new connection.
    pub(crate) fn go_down(&self, failure: &Failure) {
        *lock(&self.trouble) = Some(failure.clone());
        self.store.upgrade().into_iter().for_each(|store| store.part_from(self));
        if !self.is_down.swap(true, Ordering::AcqRel) {
            tracing::warn!(node = self.name, failure = failure.message(), "a node is out of reach");
        }
    }

    /// Whether it has not answered for so long, or could not be asked because there is no
    /// connection.
    pub(crate) fn is_stuck(&self, limit: Duration) -> bool {
        let since = match self.busy_since_ns.load(Ordering::Acquire) {
            0 if self.waiting.load(Ordering::Acquire) == 0 => return false,
            0 => self.looked_ns.load(Ordering::Acquire),
            since => since,
        };
        Moment::now().host_ns().saturating_sub(since) >= duration_ns(limit)
    }

    /// A batch was answered or lost. The next one may be on its way already.
    fn settle(&self, batch: &Batch) {
        let none = |since| (since == batch.sent_ns).then_some(0);
        let _ = self.busy_since_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, none);
    }

    /// Tells whoever asked that there is no answer.
    pub(crate) fn fail_op(&self, op: Op, failure: &Failure) {
        match op {
            Op::Take(take) => self.fail_take(&take, failure),
            Op::Give(giving, _) => {
                if giving.concerns(self.index) {
                    self.owe(&giving);
                    giving.vote(self.index, Gave::Failed(failure.clone()));
                } else {
                    giving.vote(self.index, Gave::NotHeld);
                }
            }
            Op::Renew(renewal, _) => {
                renewal.vote_alike(self.index, &Kept::Failed(failure.clone()));
            }
            Op::Ask(inquiry, _) => inquiry.answer(self.index, Err(failure.clone())),
            Op::Relock(..) => {}
        }
    }

    /// Keeps a release that could not be told for when it can be. A node that is out of reach is told
    /// when it is back; one that is there, and only refuses for the moment, is asked again soon.
    fn owe(&self, giving: &Arc<Giving>) {
        {
            let mut debts = lock(&self.debts);
            if debts.len() < DEBTS_MAX {
                debts.push_back(Arc::clone(giving));
            }
        }
        if !self.is_down.load(Ordering::Acquire) {
            self.remind_later();
        }
    }

    fn remind_later(&self) {
        let Some(store) = self.store.upgrade() else { return };
        if self.is_reminded.swap(true, Ordering::AcqRel) {
            return;
        }
        let (later, at) = (Weak::clone(&self.store), self.index);
        store.runtime.spawn(async move {
            tokio::time::sleep(DEBTS_PAUSE).await;
            later.upgrade().into_iter().for_each(|store| store.nodes[at].remind());
        });
    }

    /// Tells the node some of what it could not be told.
    fn remind(&self) {
        self.is_reminded.store(false, Ordering::Release);
        if self.is_down.load(Ordering::Acquire) {
            return;
        }
        self.pay(DEBTS_AT_ONCE);
        self.pump();
        if !lock(&self.debts).is_empty() {
            self.remind_later();
        }
    }

    /// What is owed goes before anything else that waits; what has ended by itself is forgotten.
    fn pay(&self, most: usize) {
        let now = Moment::now();
        let owed: Vec<Op> = {
            let mut debts = lock(&self.debts);
            debts.retain(|giving| !giving.ends.has_passed(now));
            let most = most.min(debts.len());
            debts.drain(..most).map(|giving| Op::Give(giving, Tries::default())).collect()
        };
        self.requeue(owed);
    }

    fn fail_queue(&self, failure: &Failure) {
        let ops = std::mem::take(&mut *lock(&self.queue));
        self.waiting.fetch_sub(ops.len(), Ordering::Release);
        ops.into_iter().for_each(|op| self.fail_op(op, failure));
    }

    pub(crate) fn fail_take(&self, take: &Take, failure: &Failure) {
        if let Some(store) = self.store.upgrade() {
            store.vote(&take.claim, take.round, self.index, Said::Failed(failure.clone()));
        }
    }

    /// Gathers what waits into one batch. What was given up before it was ever sent is left out,
    /// so that a node that is slow does not do what nobody wants.
    fn gather(&self) -> Batch {
        let mut batch = Batch::default();
        let mut queue = lock(&self.queue);
        let before = queue.len();
        while let Some(op) = queue.pop_front() {
            if batch.takes.len() >= LOCKS_MAX || batch.gives.len() >= LOCKS_MAX {
                queue.push_front(op);
                break;
            }
            match op {
                Op::Take(take) => {
                    if let Some(ticket) = take.claim.stamp(self.index, take.round) {
                        let counts = ticket.is_vote();
                        batch.takes.push(Sent { take, ticket, counts });
                    }
                }
                Op::Relock(claim, fence, lease_ms) => {
                    let round = claim.state().round;
                    if claim.stamp(self.index, round).is_some_and(Ticket::is_vote) {
                        tracing::info!(node = self.name, lock = %claim.name, "locks it again");
                        let take = Take { claim, round, tries: Tries::default() };
                        let ticket = Ticket { proposal: fence.get(), how: 2, lease_ms };
                        batch.takes.push(Sent { take, ticket, counts: false });
                    }
                }
                Op::Give(giving, tries) => match giving.concerns(self.index) {
                    true => batch.gives.push((giving, tries)),
                    false => giving.vote(self.index, Gave::NotHeld),
                },
                Op::Renew(renewal, tries) => {
                    if !renewal.is_moot() {
                        batch.renewals.push((renewal, tries, 0));
                    }
                }
                Op::Ask(inquiry, tries) => {
                    if !inquiry.is_moot() {
                        batch.inquiries.push((inquiry, tries, 0));
                    }
                }
            }
        }
        self.waiting.fetch_sub(before - queue.len(), Ordering::Release);
        batch
    }

    /// Learns which server this is, and whether it will do.
    async fn identify(&self, store: &Store, connection: &mut Connection) -> Result<(), Failure> {
        let mut pipeline = Pipeline::default();
        for section in ["server", "replication", "cluster"] {
            pipeline.all(&["INFO", section]);
        }
        let replies = connection.ask(pipeline).await?;
        let field = |name: &str| {
            let lines = replies.iter().filter_map(Reply::as_text).flat_map(str::lines);
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next().map(str::trim)
        };
        if field("role").is_some_and(|role| role != "master") {
            return Err(Failure::new(
                ErrorKind::WrongNode,
                format!(
                    "{} is a replica, which votes for another; name its master instead",
                    self.name
                ),
            ));
        }
        if field("cluster_enabled") == Some("1") {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                format!(
                    "{} is a part of a Redis Cluster; nodes are servers of their own, or connect \
                     with redis+cluster:",
                    self.name
                ),
            ));
        }
        let Some(run_id) = field("run_id") else {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                format!("{} does not tell its run_id, by which nodes are told apart", self.name),
            ));
        };
        match store.meet(self, run_id) {
            None => Ok(()),
            Some(first) => Err(Failure::new(
                ErrorKind::InvalidConfig,
                one_server_message(first.min(self.index), first.max(self.index), self.endpoint()),
            )),
        }
    }

    async fn greet_connection(&self, connection: &mut Connection) -> Result<(), Failure> {
        let Some(store) = self.store.upgrade() else {
            return Err(Failure::new(ErrorKind::Internal, "the store is closed"));
        };
        self.identify(&store, connection).await?;
        let mut pipeline = Pipeline::default();
        script::load_all(&mut pipeline);
        pipeline.all(&["SUBSCRIBE", &format!("{}{}", record::PUSH_CHANNEL, store.client_text)]);
        if store.is_watching.load(Ordering::Acquire) {
            pipeline.all(&["SUBSCRIBE", &store.config.event_channel()]);
        }
        let link = random_link()?;
        // From now on only this connection speaks for us.
        let client = format!("{link}{}", self.label);
        pipeline.all(&["SET", &self.client_key, &client, "PX", CLIENT_MS]);
        connection.ask(pipeline).await?;
        *lock(&self.link) = link;
        Ok(())
    }
}

/// Eight characters that no other connection has.
fn random_link() -> Result<String, Failure> {
    let client = ClientId::random();
    client.map(write_client).map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))
}

fn duration_ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Traffic for Node {
    type Batch = Batch;

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
            || (self.is_missed.load(Ordering::Acquire) && self.is_down.load(Ordering::Acquire))
    }

    fn load(&self, pipeline: &mut Pipeline) -> Option<(Batch, Duration)> {
        let now_ns = Moment::now().host_ns();
        self.looked_ns.store(now_ns, Ordering::Release);
        let mut batch = self.gather();
        if batch.is_empty() {
            return None;
        }
        self.write(&mut batch, &self.dialer.config().prefix, pipeline);
        batch.sent_ns = now_ns;
        self.busy_since_ns.store(batch.sent_ns, Ordering::Release);
        Some((batch, SILENCE_MAX))
    }

    fn size(&self, batch: &Batch) -> usize {
        batch.gives.len() + batch.takes.len()
    }

    fn answer(&self, batch: Batch, _: Moment, replies: Vec<Reply>) -> Option<Failure> {
        self.settle(&batch);
        self.distribute(batch, replies)
    }

    fn fail(&self, batch: Batch, failure: &Failure) {
        self.settle(&batch);
        self.go_down(failure);
        self.fail_batch(batch, failure);
        // Nor is whatever was to follow kept until there is a new connection.
        self.fail_queue(failure);
    }

    fn fail_waiting(&self, failure: &Failure) {
        self.is_missed.store(false, Ordering::Release);
        self.go_down(failure);
        self.fail_queue(failure);
    }

    fn push(&self, payload: &[u8]) {
        if let Some(store) = self.store.upgrade() {
            store.hear(self.index, payload);
        }
    }

    fn greet<'a>(&'a self, connection: &'a mut Connection) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.greet_connection(connection))
    }

    fn connected(&self) {
        self.pay(DEBTS_MAX);
        *lock(&self.trouble) = None;
        self.is_missed.store(false, Ordering::Release);
        if self.is_down.swap(false, Ordering::AcqRel) {
            tracing::info!(node = self.name, "a node is back");
        }
        if let Some(store) = self.store.upgrade() {
            store.lobby.rouse();
        }
        self.pump();
    }
}
