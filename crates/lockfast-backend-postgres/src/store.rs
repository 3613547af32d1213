//! A database as its clients share it: what is asked is gathered into batches, and what is
//! answered or pushed finds the one who waits for it.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockfast_core::batch::Inbox;
use lockfast_core::lobby::Lobby;
use lockfast_core::{ClientId, ConnectContext, Label, LossReporter, Moment};
use lockfast_net::drive::{Drive, Gather};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Row;

use crate::batch::{Batch, LOCKS_MAX, Op, Plain, Told, Value};
use crate::claim::Claim;
use crate::config::Config;
use crate::failure::{self, Failure};
use crate::watcher::Feeds;
use crate::wire::Dialer;

/// From how many askers on it is worth a while to wait for them to ask again, and how long.
const CROWD_MIN: usize = 4;
const GATHER_MAX: Duration = Duration::from_micros(200);

/// How many locks are remembered as sought.
const SOUGHT_MAX: usize = 1024;

/// A database and who we are to it.
pub(crate) struct Store {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) client: ClientId,
    pub(crate) label: Label,
    pub(crate) losses: LossReporter,
    pub(crate) runtime: Handle,
    pub(crate) lobby: Lobby<Claim>,
    pub(crate) feeds: Feeds,
    pub(crate) drive: Arc<Drive>,
    /// Wakes the link when something is asked.
    pub(crate) asked: Arc<Notify>,
    /// Wakes whoever reads the mail when there may be some.
    pub(crate) expects_mail: Notify,
    /// Whether pushes cannot reach us, so that messages are read from a table.
    by_mail: AtomicBool,
    me: Weak<Self>,
    calls: AtomicI64,
    /// Made anew for each connection: what arrives through an earlier one is refused.
    link: AtomicI64,
    needs_enrolment: AtomicBool,
    is_closed: AtomicBool,
    /// How we are reached, while we listen.
    presence: Mutex<Option<Presence>>,
    /// Where events are told.
    events: Mutex<String>,
    /// The locks of which somebody has yet to be told.
    owed: Mutex<Vec<String>>,
    /// The locks that somebody waited for when they were last given back.
    sought: Mutex<HashSet<String>>,
    /// How many requests are likely to come at once, and until when that is waited for.
    expected: AtomicUsize,
    expected_until_ns: AtomicU64,
    inbox: Inbox<Op>,
    backlog: Mutex<Backlog>,
}

/// How a process that listens is reached, known to the server and nobody else.
#[derive(Clone)]
pub(crate) struct Presence {
    pub(crate) channel: String,
    /// The key of the advisory lock that shows that it listens.
    pub(crate) key: i64,
}

#[derive(Default)]
struct Backlog {
    ops: VecDeque<Op>,
    /// Requests of a batch that failed: each is asked alone, so that one does not fail the rest.
    alone: VecDeque<Op>,
    fresh: Vec<Op>,
}

/// What the link has to do next.
pub(crate) enum Work {
    Batch(Batch, Duration),
    Plain(Plain),
}

impl Store {
    pub(crate) fn new(dialer: Arc<Dialer>, context: ConnectContext) -> Arc<Self> {
        let asked = Arc::new(Notify::new());
        let waker = Arc::clone(&asked);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            dialer,
            client: context.client,
            label: context.label,
            losses: context.losses,
            drive: Drive::new(context.runtime.clone()),
            runtime: context.runtime,
            lobby: Lobby::default(),
            feeds: Feeds::default(),
            asked,
            expects_mail: Notify::new(),
            by_mail: AtomicBool::new(false),
            calls: AtomicI64::new(0),
            link: AtomicI64::new(0),
            needs_enrolment: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            presence: Mutex::default(),
            events: Mutex::default(),
            owed: Mutex::default(),
            sought: Mutex::default(),
            expected: AtomicUsize::new(0),
            expected_until_ns: AtomicU64::new(0),
            inbox: Inbox::new(move || waker.notify_one()),
            backlog: Mutex::default(),
        })
    }

    /// This store, for work in the background; not while it is being dropped.
    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.dialer.config
    }

    /// A number for a new claim.
    pub(crate) fn next_call(&self) -> i64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn link(&self) -> i64 {
        self.link.load(Ordering::Acquire)
    }

    pub(crate) fn set_link(&self, link: i64) {
        self.link.store(link, Ordering::Release);
    }

    pub(crate) fn presence(&self) -> Option<Presence> {
        lock(&self.presence).clone()
    }

    pub(crate) fn set_presence(&self, presence: Presence) {
        *lock(&self.presence) = Some(presence);
    }

    pub(crate) fn events(&self) -> String {
        lock(&self.events).clone()
    }

    pub(crate) fn set_events(&self, channel: String) {
        *lock(&self.events) = channel;
    }

    /// Somebody has to be told of these locks.
    pub(crate) fn owe(&self, names: Vec<String>) {
        lock(&self.owed).extend(names);
    }

    /// The locks of a batch of which somebody will probably have to be told.
    pub(crate) fn guess_owed(&self, batch: &Batch) -> Vec<String> {
        let sought = lock(&self.sought);
        if sought.is_empty() {
            return Vec::new();
        }
        batch.given().filter(|name| sought.contains(*name)).map(ToOwned::to_owned).collect()
    }

    /// Learns from what had to be told.
    pub(crate) fn note_owed(&self, batch: &Batch, owed: &[String]) {
        let mut sought = lock(&self.sought);
        if sought.is_empty() && owed.is_empty() {
            return;
        }
        batch.given().for_each(|name| {
            sought.remove(name);
        });
        if sought.len() < SOUGHT_MAX {
            sought.extend(owed.iter().cloned());
        }
    }

    pub(crate) fn take_owed(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.owed))
    }

    pub(crate) fn client_value(&self) -> Value {
        Value::Bytes(self.client.as_bytes().to_vec())
    }

    pub(crate) fn is_by_mail(&self) -> bool {
        self.by_mail.load(Ordering::Acquire)
    }

    /// Changes how messages reach us; the server is told before anything else is asked.
    pub(crate) fn set_by_mail(&self, by_mail: bool) {
        if self.by_mail.swap(by_mail, Ordering::AcqRel) != by_mail {
            self.ask_for_enrolment();
            self.expects_mail.notify_one();
        }
    }

    pub(crate) fn ask_for_enrolment(&self) {
        self.needs_enrolment.store(true, Ordering::Release);
        self.asked.notify_one();
    }

    /// Whether the server must be told who we are.
    pub(crate) fn takes_enrolment(&self) -> bool {
        self.needs_enrolment.swap(false, Ordering::AcqRel)
    }

    /// Asks the server, together with whoever else does.
    pub(crate) fn submit(&self, op: Op) {
        if self.is_closed.load(Ordering::Acquire) {
            return self.fail_op(op, &closed());
        }
        let me: Weak<dyn Gather> = self.me.clone();
        self.drive.attend(&me);
        self.inbox.push(op);
        if self.is_closed.load(Ordering::Acquire) {
            // It was closed in between, and nobody will look again.
            self.take_waiting().into_iter().for_each(|op| self.fail_op(op, &closed()));
        }
    }

    /// Nobody will ask any more: what waits for an answer in the background must not keep us.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.drive.close();
        self.take_waiting().into_iter().for_each(|op| self.fail_op(op, &closed()));
    }

    /// So many are being answered, most of whom are likely to ask again at once: a commit for a
    /// few of them costs as much as one for all.
    pub(crate) fn expect(&self, askers: usize) {
        let expected = if askers < CROWD_MIN { 0 } else { askers - askers / 4 };
        let until = Moment::now() + GATHER_MAX;
        self.expected_until_ns.store(until.host_ns(), Ordering::Relaxed);
        self.expected.store(expected, Ordering::Relaxed);
    }

    /// Runs another statement, in which `{schema}` stands for the schema.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Failure> {
        self.ask_for(statement, values, true).await.map(|told| told.rows)
    }

    /// The same for a change, of which it matters whether an earlier try may have made it; a failure
    /// says so when nothing was done.
    pub(crate) async fn change(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<Told, Failure> {
        self.ask_for(statement, values, true).await.map_err(failure::of_change)
    }

    /// Runs a change that must not be made twice. When its answer is lost, that is told.
    pub(crate) async fn ask_once(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Failure> {
        let told = self.ask_for(statement, values, false).await;
        told.map(|told| told.rows).map_err(failure::of_single_change)
    }

    async fn ask_for(
        &self,
        statement: &str,
        values: Vec<Value>,
        is_repeatable: bool,
    ) -> Result<Told, Failure> {
        let (asker, answer) = oneshot::channel();
        let statement = statement.replace("{schema}", &self.config().schema);
        let is_doubtful = false;
        self.submit(Op::Plain(Plain {
            statement,
            values,
            asker,
            is_repeatable,
            is_doubtful,
            tries: 0,
        }));
        answer.await.unwrap_or_else(|_| Err(failure::without_proof(closed())))
    }

    /// Tends those who wait, for ever.
    pub(crate) async fn tend_lobby(self: Arc<Self>) {
        self.lobby.tend(|due| due.into_iter().for_each(|take| self.submit(Op::Take(take)))).await;
    }

    /// Puts requests back to where they came from. Statements of their own go behind all others: one
    /// that has to wait for a row must not keep leases from being renewed.
    pub(crate) fn requeue(&self, ops: Vec<Op>) {
        let mut backlog = lock(&self.backlog);
        let Backlog { ops: waiting, fresh, .. } = &mut *backlog;
        self.inbox.take_into(fresh);
        waiting.extend(fresh.drain(..));
        let (plain, locks): (Vec<Op>, Vec<Op>) =
            ops.into_iter().partition(|op| matches!(op, Op::Plain(_)));
        locks.into_iter().rev().for_each(|op| waiting.push_front(op));
        waiting.extend(plain);
        self.asked.notify_one();
    }

    /// Lets requests be asked again, each alone.
    pub(crate) fn separate(&self, ops: Vec<Op>) {
        lock(&self.backlog).alone.extend(ops);
        self.asked.notify_one();
    }

    /// Gathers what waits.
    pub(crate) fn gather(&self) -> Option<Work> {
        let request_timeout = self.config().request_timeout;
        let mut backlog = lock(&self.backlog);
        let Backlog { ops, alone, fresh } = &mut *backlog;
        if let Some(op) = alone.pop_front() {
            let limit = op.limit(request_timeout);
            return Some(Work::Batch(Batch::new(vec![op]), limit));
        }
        self.inbox.take_into(fresh);
        ops.extend(fresh.drain(..));
        let mut taken = Vec::with_capacity(ops.len().min(LOCKS_MAX));
        let mut limit = request_timeout;
        let mut locks = 0;
        while let Some(op) = ops.pop_front() {
            if op.is_moot(&self.lobby) {
                continue;
            }
            let is_plain = matches!(op, Op::Plain(_));
            if !taken.is_empty() && (is_plain || locks + op.locks() > LOCKS_MAX) {
                ops.push_front(op);
                break;
            }
            if let Op::Plain(plain) = op {
                return Some(Work::Plain(plain));
            }
            locks += op.locks();
            limit = limit.min(op.limit(request_timeout));
            taken.push(op);
        }
        (!taken.is_empty()).then(|| Work::Batch(Batch::new(taken), limit))
    }

    /// Everything that waits to be asked, because it cannot be.
    pub(crate) fn take_waiting(&self) -> Vec<Op> {
        let mut backlog = lock(&self.backlog);
        let Backlog { ops, alone, fresh } = &mut *backlog;
        self.inbox.take_into(fresh);
        alone.drain(..).chain(ops.drain(..)).chain(fresh.drain(..)).collect()
    }

    /// Whether something waits to be asked.
    pub(crate) fn has_waiting(&self) -> bool {
        let mut backlog = lock(&self.backlog);
        let Backlog { ops, alone, fresh } = &mut *backlog;
        self.inbox.take_into(fresh);
        ops.extend(fresh.drain(..));
        !ops.is_empty() || !alone.is_empty()
    }
}

pub(crate) fn closed() -> Failure {
    Failure::new(
        lockfast_core::ErrorKind::Unreachable,
        "the claim was given up, or the connection was closed",
    )
}

impl Gather for Store {
    fn is_gathering(&self) -> bool {
        let expected = self.expected.load(Ordering::Relaxed);
        expected > 0
            && self.inbox.len() < expected
            && Moment::now().host_ns() < self.expected_until_ns.load(Ordering::Relaxed)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
