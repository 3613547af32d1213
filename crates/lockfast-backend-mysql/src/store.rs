//! A database as its clients share it: what is asked is gathered into batches by the one task that
//! owns the connection, and what is answered or pushed finds the one who waits for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockfast_core::batch::Inbox;
use lockfast_core::lobby::Lobby;
use lockfast_core::time::ClockPair;
use lockfast_core::{ClientId, ConnectContext, ErrorKind, Label, LossReporter, Moment, jitter};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::batch::{Ask, Batch, LEASES_MAX, LOCKS_MAX, Op, Reply, Take};
use crate::claim::{Claim, write_secret};
use crate::failure::{Failure, Remedy};
use crate::migration::{self, Extent};
use crate::watcher::Feeds;
use crate::wire::{Argument, Dialer, Wire};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_URGENT: Duration = Duration::from_millis(200);
/// How often what is of no use any more is looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// A database and who we are to it.
pub(crate) struct Store {
    pub(crate) dialer: Dialer,
    /// Our client id with a secret, by which the server knows us.
    pub(crate) who: String,
    label: Label,
    pub(crate) losses: LossReporter,
    pub(crate) runtime: Handle,
    pub(crate) lobby: Lobby<Claim>,
    pub(crate) feeds: Feeds,
    pub(crate) labels: Mutex<HashMap<ClientId, Label>>,
    me: Weak<Self>,
    inbox: Inbox<Op>,
    backlog: Mutex<Backlog>,
    bell: Arc<Notify>,
    clock: Mutex<Option<ClockPair>>,
}

#[derive(Default)]
struct Backlog {
    ops: VecDeque<Op>,
    fresh: Vec<Op>,
}

/// What is done next.
pub(crate) enum Work {
    Batch(Batch, Duration),
    Ask(Ask, Duration),
    Nothing,
}

impl Store {
    pub(crate) fn new(dialer: Dialer, context: ConnectContext) -> Result<Arc<Self>, Failure> {
        let who = write_secret(context.client)?;
        let bell = Arc::new(Notify::new());
        let waker = Arc::clone(&bell);
        Ok(Arc::new_cyclic(|me| Self {
            dialer,
            who,
            label: context.label,
            losses: context.losses,
            runtime: context.runtime,
            lobby: Lobby::default(),
            feeds: Feeds::default(),
            labels: Mutex::default(),
            me: me.clone(),
            inbox: Inbox::new(move || waker.notify_one()),
            backlog: Mutex::default(),
            bell,
            clock: Mutex::default(),
        }))
    }

    /// This store, for work in the background; not while it is being dropped.
    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Asks the server, together with whoever else does.
    pub(crate) fn submit(&self, op: Op) {
        self.inbox.push(op);
    }

    /// Asks again, before what was asked since. Calls of their own go behind all others: one that has
    /// to wait for a row must not keep leases from being renewed.
    pub(crate) fn requeue(&self, ops: Vec<Op>) {
        let mut backlog = self.gather();
        let (asks, locks): (Vec<Op>, Vec<Op>) =
            ops.into_iter().partition(|op| matches!(op, Op::Ask(_)));
        locks.into_iter().rev().for_each(|op| backlog.ops.push_front(op));
        backlog.ops.extend(asks);
    }

    /// Takes note of what the server's clock says.
    pub(crate) fn note_clock(&self, clock: ClockPair) {
        *lock(&self.clock) = Some(clock);
    }

    /// What the server's clock said last.
    pub(crate) fn clock(&self) -> Option<ClockPair> {
        *lock(&self.clock)
    }

    /// Connects and makes the server know us; makes the schema if there is none.
    pub(crate) async fn connect(&self) -> Result<Wire, Failure> {
        match self.enrol().await {
            Err(failure) if failure.kind() == ErrorKind::InvalidConfig => {
                match migration::migrate(&self.dialer, Extent::Create).await {
                    Ok(_) => self.enrol().await,
                    Err(cause) if cause.kind() == ErrorKind::Permission => Err(Failure::new(
                        ErrorKind::InvalidConfig,
                        format!(
                            "{}; this user may not create it: {}",
                            failure.message(),
                            cause.message()
                        ),
                    )),
                    Err(cause) => Err(cause),
                }
            }
            enrolled => enrolled,
        }
    }

    /// Introduces a new connection. What the one before it has sent is refused from now on.
    pub(crate) async fn enrol(&self) -> Result<Wire, Failure> {
        let mut wire = self.dialer.dial().await?;
        let limit = self.dialer.config().request_timeout;
        migration::check_server(&mut wire, limit).await?;
        wire.evict(&format!("lockfast:a:{}", self.who), limit).await?;
        let arguments = vec![
            Argument::from(&self.who),
            Argument::from(&self.label.program),
            Argument::from(&self.label.host),
            Argument::from(self.label.pid),
            Argument::from(self.label.text.as_deref().unwrap_or_default()),
        ];
        let rows = wire.call("CALL lockfast_enrol(?, ?, ?, ?, ?)", arguments, limit).await?;
        let said = rows.first();
        let version = said.and_then(|row| row.small(0));
        migration::check_version(version, said.and_then(|row| row.number(2)))?;
        Ok(wire)
    }

    /// The task: does what is asked, on connections that it makes anew when they break.
    pub(crate) async fn run(self: Arc<Self>, mut wire: Wire) {
        loop {
            let failure = self.drive(&mut wire).await;
            tracing::debug!(failure = failure.message(), "the connection to the database broke");
            drop(wire);
            wire = self.reconnect().await;
            self.lobby.rouse();
        }
    }

    async fn reconnect(&self) -> Wire {
        let mut pause = PAUSE_MIN;
        loop {
            self.pause(pause.mul_f64(0.5 + jitter())).await;
            match self.enrol().await {
                Ok(wire) => return wire,
                Err(failure) => self.fail_waiting(&failure),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits before the next try, but not for long when somebody waits for it: a lease must not
    /// run out because we are slow to see that the server is back.
    async fn pause(&self, pause: Duration) {
        let least = pause.min(PAUSE_URGENT);
        tokio::time::sleep(least).await;
        if !self.has_waiting() {
            let _ = tokio::time::timeout(pause - least, self.bell.notified()).await;
        }
    }

    fn has_waiting(&self) -> bool {
        !self.gather().ops.is_empty()
    }

    fn fail_waiting(&self, failure: &Failure) {
        let ops = std::mem::take(&mut self.gather().ops);
        ops.into_iter().for_each(|op| self.fail_op(op, failure));
    }

    /// Everything that waits, in the backlog.
    fn gather(&self) -> MutexGuard<'_, Backlog> {
        let mut backlog = lock(&self.backlog);
        let Backlog { ops, fresh } = &mut *backlog;
        self.inbox.take_into(fresh);
        ops.extend(fresh.drain(..));
        backlog
    }

    /// Works until the connection is of no use any more.
    async fn drive(&self, wire: &mut Wire) -> Failure {
        loop {
            let failure = match self.next_work() {
                Work::Nothing => {
                    self.bell.notified().await;
                    continue;
                }
                Work::Batch(batch, limit) => {
                    let sent = Moment::now();
                    let (statement, arguments) = batch.call(&self.who);
                    match wire.call(statement, arguments, limit).await {
                        Ok(rows) => {
                            self.distribute(batch, sent, &rows);
                            continue;
                        }
                        Err(failure) => {
                            self.mend(batch.into_ops(), &failure);
                            failure
                        }
                    }
                }
                Work::Ask(ask, limit) => {
                    let sent = Moment::now();
                    let mut arguments = ask.arguments.clone();
                    if ask.is_change {
                        arguments.insert(0, Argument::from(&self.who));
                    }
                    match wire.call(ask.statement, arguments, limit).await {
                        Ok(rows) => {
                            if ask.is_change {
                                self.hear_pushes(&rows, sent);
                            }
                            let is_doubtful = ask.is_doubtful;
                            drop(ask.asker.send(Ok(Reply { rows, is_doubtful })));
                            continue;
                        }
                        Err(failure) => {
                            self.mend(std::iter::once(Op::Ask(ask)), &failure);
                            failure
                        }
                    }
                }
            };
            if matches!(failure.handling, Remedy::Reconnect | Remedy::ReconnectAndRepeat) {
                return failure;
            }
        }
    }

    /// Gathers what waits into one batch, or finds a call of another kind.
    pub(crate) fn next_work(&self) -> Work {
        let mut backlog = self.gather();
        let request_timeout = self.dialer.config().request_timeout;
        let mut limit = request_timeout;
        let mut batch = Batch::default();
        let mut leases = 0;
        while let Some(op) = backlog.ops.pop_front() {
            if op.is_moot(&self.lobby) {
                continue;
            }
            let is_full = match &op {
                Op::Take(_) => batch.takes.len() >= LOCKS_MAX,
                Op::Give(_) => batch.gives.len() >= LOCKS_MAX,
                Op::Renew(renew) => leases > 0 && leases + renew.leases.len() > LEASES_MAX,
                Op::Ask(_) => !batch.is_empty(),
            };
            if is_full {
                backlog.ops.push_front(op);
                break;
            }
            limit = limit.min(op.limit(request_timeout));
            match op {
                Op::Take(take) => batch.takes.push(take),
                Op::Give(give) => batch.gives.push(give),
                Op::Renew(renew) => {
                    leases += renew.leases.len();
                    batch.renews.push(renew);
                }
                Op::Ask(ask) => return Work::Ask(ask, limit),
            }
        }
        if batch.is_empty() {
            return Work::Nothing;
        }
        batch.sort();
        Work::Batch(batch, limit)
    }

    /// Tends those who wait, for ever.
    pub(crate) async fn tend_lobby(self: Arc<Self>) {
        self.lobby.tend(|due| self.look_again(due)).await;
    }

    /// Lets those look whose time has come.
    pub(crate) fn look_again(&self, due: Vec<Take>) {
        due.into_iter().for_each(|take| self.submit(Op::Take(take)));
    }

    /// Sweeps once in a while, for ever. Whatever keeps it from that, somebody else will.
    pub(crate) async fn keep_clean(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP.mul_f64(0.5 + jitter())).await;
            let swept = self.ask("CALL lockfast_sweep()", Vec::new()).await;
            let ended = self.change("CALL lockfast_finish(?)", Vec::new()).await;
            if let Some(failure) = swept.err().or(ended.err()) {
                tracing::debug!(failure = failure.message(), "the database was not swept");
            }
        }
    }

    /// Makes another call and waits for its answer.
    pub(crate) async fn ask(
        &self,
        statement: &'static str,
        arguments: Vec<Argument>,
    ) -> Result<Reply, Failure> {
        self.ask_for(statement, arguments, false, true).await
    }

    /// Makes a call that changes something, and that may be repeated.
    pub(crate) async fn change(
        &self,
        statement: &'static str,
        arguments: Vec<Argument>,
    ) -> Result<Reply, Failure> {
        self.ask_for(statement, arguments, true, true).await
    }

    /// Makes a call that must not be made twice. When its answer is lost, that is told.
    pub(crate) async fn change_once(
        &self,
        statement: &'static str,
        arguments: Vec<Argument>,
    ) -> Result<Reply, Failure> {
        self.ask_for(statement, arguments, true, false).await
    }

    async fn ask_for(
        &self,
        statement: &'static str,
        arguments: Vec<Argument>,
        is_change: bool,
        is_repeatable: bool,
    ) -> Result<Reply, Failure> {
        let (asker, answer) = tokio::sync::oneshot::channel();
        let (tries, is_doubtful) = (0, false);
        let ask = Ask { statement, arguments, is_change, is_repeatable, asker, tries, is_doubtful };
        self.submit(Op::Ask(ask));
        answer.await.unwrap_or_else(|_| {
            Err(Failure::new(ErrorKind::Unreachable, "the connection was closed"))
        })
    }
}

/// Locks a mutex; nothing that holds one of these can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
