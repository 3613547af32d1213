//! Who sends what is asked: one task that owns the connection for commands. It runs on the runtime
//! on which the store was connected, where most who ask are, so that an answer wakes nobody on
//! another thread. Nothing depends on that runtime: the keeper watches, and takes over for good
//! when it does not run what it is given.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use lockfast_core::{ErrorKind, Moment};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};

use crate::batch::{Ask, Batch, Op, Reply};
use crate::failure::{Failure, Remedy};
use crate::migration;
use crate::store::{Store, Work, jitter, lock};
use crate::wire::{Answer, Argument, Wire};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_URGENT: Duration = Duration::from_millis(200);
/// How long nothing may be answered before the keeper asks whether the writer's runtime runs at
/// all, and how long that may take: short enough for the shortest lease.
const WATCH: Duration = Duration::from_millis(10);

/// How often the writer steps back while there are more and more who ask.
const YIELDS_MAX: usize = 8;

/// What the writer has under way, and how it is woken.
#[derive(Default)]
pub(crate) struct Desk {
    work: Mutex<UnderWay>,
    /// One bell each: a writer that was replaced may still listen to its own.
    home: Notify,
    keeper: Notify,
    /// Whether the keeper is the writer.
    is_kept: AtomicBool,
    /// Wakes the keeper, who watches the writer until there is nothing to do.
    alarm: Notify,
    is_watched: AtomicBool,
    /// How many calls were answered.
    answered: AtomicU64,
}

#[derive(Default)]
struct UnderWay {
    /// Counts writers: only the present one may send and be answered.
    turn: u64,
    call: Option<Call>,
}

/// A call whose answer has not come.
enum Call {
    Batch(Batch),
    Ask(Ask),
}

impl Call {
    fn into_ops(self) -> Vec<Op> {
        match self {
            Self::Batch(batch) => batch.into_ops().collect(),
            Self::Ask(ask) => vec![Op::Ask(ask)],
        }
    }
}

impl Desk {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        if self.is_kept.load(Ordering::Acquire) {
            return self.keeper.notify_one();
        }
        self.home.notify_one();
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            self.alarm.notify_one();
        }
    }

    async fn rung(&self, is_home: bool) {
        match is_home {
            true => self.home.notified().await,
            false => self.keeper.notified().await,
        }
    }

    fn turn(&self) -> u64 {
        lock(&self.work).turn
    }

    /// Puts down what is sent. None when another is the writer by now; then it is handed back.
    fn put(&self, turn: u64, call: Call) -> Option<Call> {
        let mut work = lock(&self.work);
        if work.turn != turn {
            return Some(call);
        }
        work.call = Some(call);
        None
    }

    /// Takes up what was answered; none when another has taken it over.
    fn take(&self, turn: u64) -> Option<Call> {
        let mut work = lock(&self.work);
        if work.turn != turn {
            return None;
        }
        self.answered.fetch_add(1, Ordering::AcqRel);
        work.call.take()
    }

    fn is_under_way(&self) -> bool {
        lock(&self.work).call.is_some()
    }
}

/// A task that ends when nobody waits for it any more.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Store {
    /// Connects and makes the server know us; makes the schema if there is none.
    pub(crate) async fn connect(&self) -> Result<Wire, Failure> {
        match self.enrol().await {
            Err(failure) if failure.kind == ErrorKind::InvalidConfig => {
                match migration::migrate(&self.dialer).await {
                    Ok(_) => self.enrol().await,
                    Err(cause) if cause.kind == ErrorKind::Permission => Err(Failure::new(
                        ErrorKind::InvalidConfig,
                        format!(
                            "{}; this user may not create it: {}",
                            failure.message, cause.message
                        ),
                    )),
                    Err(cause) => Err(cause),
                }
            }
            enrolled => enrolled,
        }
    }

    /// Introduces a new connection. What the one before it has sent is refused from now on.
    async fn enrol(&self) -> Result<Wire, Failure> {
        let mut wire = self.dialer.dial().await?;
        migration::check_server(&mut wire).await?;
        wire.evict(&format!("lockfast:a:{}", self.who)).await;
        let arguments = vec![
            Argument::from(&self.who),
            Argument::from(&self.label.program),
            Argument::from(&self.label.host),
            Argument::from(self.label.pid),
            Argument::from(self.label.text.as_deref().unwrap_or_default()),
        ];
        let limit = self.dialer.config().request_timeout;
        let rows = wire.call("CALL lockfast_enrol(?, ?, ?, ?, ?)", arguments, limit).await?;
        let version = rows.first().and_then(|row| row.number(0)).unwrap_or(0);
        match u32::try_from(version) {
            Ok(migration::VERSION) => Ok(wire),
            Ok(version) if version > migration::VERSION => Err(migration::of_newer(version)),
            _ => Err(Failure::new(
                ErrorKind::InvalidConfig,
                format!(
                    "the schema has version {version}, this Lockfast works with {}; run lockfast \
                     migrate",
                    migration::VERSION
                ),
            )),
        }
    }

    /// Sees to it that somebody writes, for ever: at `home`, where the connection was made, as
    /// long as that is of use, and then here.
    pub(crate) async fn run(self: Arc<Self>, wire: Wire, home: Option<Handle>) {
        let mut wire = Some(wire);
        if let Some(home) = home {
            let writing = Arc::clone(&self).write(wire.take(), true);
            let mut task = AbortOnDrop(home.spawn(writing));
            tokio::select! {
                _ = &mut task => {}
                () = self.watch(&home) => {}
            }
            tracing::debug!("the runtime of the connection does not run, so the keeper takes over");
            self.take_over();
            // At once, because leases may wait for it.
            wire = self.enrol().await.ok();
            self.lobby.rouse();
        }
        self.desk.is_kept.store(true, Ordering::Release);
        self.write(wire, false).await;
    }

    /// Ends the turn of a writer that does not answer. What it has sent is asked again on a new
    /// connection, before which the server undoes or finishes whatever arrives of it.
    fn take_over(&self) {
        let call = {
            let mut work = lock(&self.desk.work);
            work.turn += 1;
            work.call.take()
        };
        self.requeue(call.map(Call::into_ops).unwrap_or_default());
    }

    /// Returns when the runtime does not run what it is given although there is something to do.
    async fn watch(&self, home: &Handle) {
        let desk = &self.desk;
        let is_busy = || desk.is_under_way() || self.has_waiting();
        loop {
            desk.alarm.notified().await;
            while is_busy() || {
                desk.is_watched.store(false, Ordering::Release);
                // Whoever asked before that has not rung the alarm.
                is_busy() && !desk.is_watched.swap(true, Ordering::AcqRel)
            } {
                let before = desk.answered.load(Ordering::Acquire);
                tokio::time::sleep(WATCH).await;
                if desk.answered.load(Ordering::Acquire) != before || !is_busy() {
                    continue;
                }
                let proof = tokio::time::timeout(WATCH, home.spawn(async {})).await;
                if !matches!(proof, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }

    /// The writer: does what is asked, on connections that it makes anew when they break, until
    /// another takes over.
    async fn write(self: Arc<Self>, mut wire: Option<Wire>, is_home: bool) {
        let turn = self.desk.turn();
        loop {
            let mut present = match wire.take() {
                Some(wire) => wire,
                None => {
                    let wire = self.reconnect(is_home).await;
                    self.lobby.rouse();
                    wire
                }
            };
            let Some(failure) = self.drive(&mut present, turn, is_home).await else { return };
            tracing::debug!(failure = failure.message, "the connection to the database broke");
        }
    }

    async fn reconnect(&self, is_home: bool) -> Wire {
        let mut pause = PAUSE_MIN;
        loop {
            self.pause(pause.mul_f64(0.5 + jitter()), is_home).await;
            match self.enrol().await {
                Ok(wire) => return wire,
                Err(failure) => self.fail_waiting(&failure),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits before the next try, but not for long when somebody waits for it: a lease must not
    /// run out because we are slow to see that the server is back.
    async fn pause(&self, pause: Duration, is_home: bool) {
        let least = pause.min(PAUSE_URGENT);
        tokio::time::sleep(least).await;
        if !self.has_waiting() {
            let _ = tokio::time::timeout(pause - least, self.desk.rung(is_home)).await;
        }
    }

    /// Works until the connection is of no use any more; none when another has taken over.
    async fn drive(&self, wire: &mut Wire, turn: u64, is_home: bool) -> Option<Failure> {
        loop {
            let (call, statement, arguments, limit) = match self.next_work() {
                Work::Nothing => {
                    self.desk.rung(is_home).await;
                    continue;
                }
                Work::Batch(batch, limit) => {
                    let (statement, arguments) = batch.call(&self.who);
                    (Call::Batch(batch), statement, arguments, limit)
                }
                Work::Ask(ask, limit) => {
                    let who = ask.is_change.then(|| Argument::from(&self.who));
                    let arguments = who.into_iter().chain(ask.arguments.iter().cloned()).collect();
                    let statement = ask.statement;
                    (Call::Ask(ask), statement, arguments, limit)
                }
            };
            if let Some(call) = self.desk.put(turn, call) {
                self.requeue(call.into_ops());
                self.desk.ring();
                return None;
            }
            let sent = Moment::now();
            let answered = wire.call(statement, arguments, limit).await;
            let call = self.desk.take(turn)?;
            match answered {
                Ok(rows) => self.answer(call, sent, rows),
                Err(failure) => {
                    self.mend(call.into_ops().into_iter(), &failure);
                    if matches!(failure.remedy, Remedy::Reconnect | Remedy::ReconnectAndRepeat) {
                        return Some(failure);
                    }
                }
            }
            self.let_others_ask().await;
        }
    }

    /// Lets those who were answered here run first, so that what they ask next shares one call.
    async fn let_others_ask(&self) {
        for _ in 0..YIELDS_MAX {
            let before = self.asked();
            tokio::task::yield_now().await;
            if self.asked() == before {
                return;
            }
        }
    }

    fn answer(&self, call: Call, sent: Moment, rows: Vec<Answer>) {
        match call {
            Call::Batch(batch) => self.distribute(batch, sent, &rows),
            Call::Ask(ask) => {
                if ask.is_change {
                    self.hear_pushes(&rows, sent);
                }
                drop(ask.asker.send(Ok(Reply { rows })));
            }
        }
    }
}
