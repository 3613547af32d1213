//! The link to one server: a connection, what is in flight on it, and who reads it.
//!
//! A batch is written by the thread that asks, and the answers are read by an *ear* (`ear.rs`) on
//! the runtime that asks, so that a request costs no switch to another thread. The keeper's task
//! (`task.rs`) makes the connection anew when it breaks, and reads wherever the ear does not. While
//! [`IN_FLIGHT_MAX`] batches are in flight, what is asked forms the next one.

mod ear;
mod task;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use lockfast_core::{BoxFuture, Moment};
use tokio::runtime::{self, Handle};
use tokio::task::AbortHandle;

use self::ear::Attention;
use self::task::Watch;
use super::connection::{Arrival, Connection, Incoming, Outgoing};
use super::dial::Dialer;
use super::{Failure, Pipeline, Reply, failure};
use crate::config::Endpoint;

/// How many batches may be unanswered: the server works at one while we work at the other.
const IN_FLIGHT_MAX: usize = 2;
/// When a batch carried so many, it is worth waiting until all who are answered have asked again,
/// so that one batch carries them all.
const GATHERED_MIN: usize = 4;

/// What goes over a link. It must not block. It is called by whichever thread reads or writes,
/// [`Traffic::load`] and what hands something out with a part of the link locked: it may ask the
/// server, but not wait for it.
pub trait Traffic: Send + Sync + 'static {
    /// What waits for an answer.
    type Batch: Send + 'static;

    /// Whether something waits to be sent. It is asked before anything is locked.
    fn has_waiting(&self) -> bool;

    /// Writes down what is to be asked next, and for how long an answer is worth waiting for.
    fn load(&self, pipeline: &mut Pipeline) -> Option<(Self::Batch, Duration)>;

    /// How many requests a batch carries.
    fn size(&self, batch: &Self::Batch) -> usize;

    /// The answers to a batch. Returns why the connection is of no use any more, if it is not.
    fn answer(&self, batch: Self::Batch, sent: Moment, replies: Vec<Reply>) -> Option<Failure>;

    /// A batch was lost on the way; whether the server has seen it is not known.
    fn fail(&self, batch: Self::Batch, failure: &Failure);

    /// The server cannot be reached: what waits to be sent is told.
    fn fail_waiting(&self, failure: &Failure);

    /// A message arrived.
    fn push(&self, payload: &[u8]);

    /// Prepares a new connection.
    fn greet<'a>(&'a self, connection: &'a mut Connection) -> BoxFuture<'a, Result<(), Failure>>;

    /// A new connection is in use.
    fn connected(&self);
}

/// A link; it is closed when this is dropped.
pub struct Link<T: Traffic> {
    shared: Arc<Shared<T>>,
    task: AbortHandle,
}

struct Shared<T: Traffic> {
    traffic: Arc<T>,
    dialer: Arc<Dialer>,
    keeper: runtime::Id,
    attention: Attention,
    /// Locked while something is read and handed out, so that all is heard in its order; before
    /// `writer`. Absent while the connection is made anew.
    reader: Mutex<Option<Incoming>>,
    /// Locked while something is written, and before `state`, so that batches are in flight in
    /// the order in which they were written.
    writer: Mutex<Writer>,
    /// Never locked during a system call: whoever reads must not wait for whoever writes.
    state: Mutex<State<T::Batch>>,
    /// Whether the operating system did not take all that was to be written.
    is_clogged: AtomicBool,
    /// Whether the ear is about to send what is asked at its home, as soon as all have asked.
    is_gathering: AtomicBool,
    /// Whether the last batch that was answered carried many.
    is_busy: AtomicBool,
}

#[derive(Default)]
struct Writer {
    /// Absent while the connection is made anew.
    outgoing: Option<Outgoing>,
    spare: Pipeline,
}

struct State<B> {
    /// Where the connection leads; absent while it is made anew.
    place: Option<Endpoint>,
    /// Where the right server was said to be while there was no connection.
    moved_to: Option<Endpoint>,
    in_flight: VecDeque<Flight<B>>,
    /// Why the connection is of no use any more, for the task to see.
    broken: Option<Failure>,
    /// How to wake the task.
    task: Waker,
    /// Whether the task's timer will go off by itself.
    is_timed: bool,
}

struct Flight<B> {
    batch: B,
    sent: Moment,
    limit: Duration,
    expected: usize,
    replies: Vec<Reply>,
}

impl<B> Default for State<B> {
    fn default() -> Self {
        Self {
            place: None,
            moved_to: None,
            in_flight: VecDeque::new(),
            broken: None,
            task: Waker::noop().clone(),
            is_timed: false,
        }
    }
}

impl<B> State<B> {
    /// A new connection was made.
    fn arrive(&mut self, place: &Endpoint) {
        let moved_to = self.moved_to.take().filter(|right| right != place);
        self.broken = moved_to.map(|right| failure::of_move(&right));
        self.place = Some(place.clone());
        self.is_timed = false;
    }
}

/// How far a reader has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Whether a batch was answered; then there may be more to read.
    is_answered: bool,
    /// Whether what is asked next is being gathered; then it must be sent.
    gathers: bool,
}

impl<T: Traffic> Link<T> {
    /// Starts a link on a connection that was dialled and greeted.
    pub fn start(
        runtime: &Handle,
        traffic: Arc<T>,
        dialer: Arc<Dialer>,
        connection: Connection,
    ) -> Self {
        let shared = Shared::new(runtime, traffic, dialer);
        let watch = shared.put_to_use(connection);
        let task = runtime.spawn(Arc::clone(&shared).run(watch)).abort_handle();
        Self { shared, task }
    }

    /// Starts a link that connects by itself.
    pub fn start_later(runtime: &Handle, traffic: Arc<T>, dialer: Arc<Dialer>) -> Self {
        let shared = Shared::new(runtime, traffic, dialer);
        let starting = Arc::clone(&shared);
        let task = runtime.spawn(async move {
            let watch = starting.establish().await;
            starting.run(watch).await;
        });
        Self { shared, task: task.abort_handle() }
    }

    /// The way for those who ask.
    pub fn pump(&self) -> Pump<T> {
        Pump(Arc::downgrade(&self.shared))
    }
}

/// Starts the next batch.
pub struct Pump<T: Traffic>(Weak<Shared<T>>);

impl<T: Traffic> Pump<T> {
    /// Sees to it that whoever asks from here is answered. To be called for each request; when
    /// it returns false, [`Pump::run`] must follow.
    pub fn attend(&self) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.attend())
    }

    /// Sends what waits, if there is room.
    pub fn run(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.pump();
        }
    }

    /// Gives the connection up unless it is to this server, which is the right one now.
    pub(crate) fn move_to(&self, endpoint: &Endpoint) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut state = lock(&shared.state);
        match &state.place {
            // The connection that is being made may be to the wrong one.
            None => state.moved_to = Some(endpoint.clone()),
            Some(place) if place == endpoint => {}
            Some(_) => {
                state.broken.get_or_insert_with(|| failure::of_move(endpoint));
                state.task.wake_by_ref();
            }
        }
    }

    /// Whether the link is to another server than this one.
    pub(crate) fn is_elsewhere(&self, endpoint: &Endpoint) -> bool {
        let shared = self.0.upgrade();
        shared.is_some_and(|it| lock(&it.state).place.as_ref().is_some_and(|it| it != endpoint))
    }
}

impl<T: Traffic> Drop for Link<T> {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.shared.writer).outgoing = None;
        self.shared.attention.close();
    }
}

impl<T: Traffic> Shared<T> {
    fn new(runtime: &Handle, traffic: Arc<T>, dialer: Arc<Dialer>) -> Arc<Self> {
        Arc::new(Self {
            traffic,
            dialer,
            keeper: runtime.id(),
            attention: Attention::default(),
            reader: Mutex::default(),
            writer: Mutex::default(),
            state: Mutex::default(),
            is_clogged: AtomicBool::new(false),
            is_gathering: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
        })
    }

    /// Makes a new connection the one that is used.
    fn put_to_use(&self, connection: Connection) -> Watch {
        let Connection { incoming, outgoing, readiness } = connection;
        lock(&self.state).arrive(incoming.endpoint());
        let stream = Arc::clone(incoming.stream());
        self.attention.open(&stream);
        self.is_clogged.store(false, Ordering::Release);
        *lock(&self.reader) = Some(incoming);
        lock(&self.writer).outgoing = Some(outgoing);
        Watch::new(stream, readiness)
    }

    /// Sends what waits, unless that is the ear's to do.
    fn pump(&self) {
        if !self.is_left_to_the_ear() {
            self.send();
        }
        self.see_to_the_timer();
    }

    /// Wakes the task if it does not look after what is in flight.
    fn see_to_the_timer(&self) {
        let state = lock(&self.state);
        if !state.is_timed {
            state.task.wake_by_ref();
        }
    }

    /// Whether what is asked here goes with what others ask, when the ear sends it: because it
    /// is about to do so, or will when the next batch is answered.
    fn is_left_to_the_ear(&self) -> bool {
        let is_next =
            || self.is_busy.load(Ordering::Acquire) && !lock(&self.state).in_flight.is_empty();
        (self.is_gathering.load(Ordering::Acquire) || is_next()) && self.is_home()
    }

    /// Sends what waits, as far as there is room.
    fn send(&self) {
        let mut writer = lock(&self.writer);
        let Writer { outgoing: Some(outgoing), spare } = &mut *writer else { return };
        while lock(&self.state).in_flight.len() < IN_FLIGHT_MAX {
            let Some((batch, limit)) = self.traffic.load(spare) else { break };
            lock(&self.state).in_flight.push_back(Flight {
                batch,
                sent: Moment::now(),
                limit,
                expected: spare.commands(),
                replies: Vec::with_capacity(spare.commands()),
            });
            outgoing.enqueue(spare);
        }
        match outgoing.write() {
            Ok(is_all) => {
                self.is_clogged.store(!is_all, Ordering::Release);
                if !is_all {
                    lock(&self.state).task.wake_by_ref();
                }
            }
            Err(failure) => self.give_up(failure),
        }
    }

    /// Tells the task that the connection is of no use any more.
    fn give_up(&self, failure: Failure) {
        let mut state = lock(&self.state);
        state.broken.get_or_insert(failure);
        state.task.wake_by_ref();
    }

    /// The operating system says that something has arrived.
    fn rouse(&self) {
        lock(&self.reader).iter_mut().for_each(Incoming::rouse);
    }

    /// Reads what has arrived until a batch is answered, and hands it out. Only then is the next
    /// one looked at, so that what the first is followed by can be sent before: a server that is
    /// sent two batches at a time answers two at a time, and does nothing while we do something.
    fn read(&self, may_gather: bool) -> Progress {
        match lock(&self.reader).as_mut() {
            Some(incoming) => self.read_from(incoming, may_gather),
            None => Progress::default(),
        }
    }

    /// Reads all that is left.
    fn read_rest(&self) {
        while self.read(false).is_answered {}
    }

    fn read_from(&self, incoming: &mut Incoming, may_gather: bool) -> Progress {
        let mut pushes = Vec::new();
        let (answered, mut broken) = match self.collect(incoming, &mut pushes) {
            Ok(answered) => (answered, None),
            Err(failure) => (None, Some(failure)),
        };
        if let Some(flight) = &answered {
            let is_busy = self.traffic.size(&flight.batch) >= GATHERED_MIN;
            self.is_busy.store(is_busy, Ordering::Release);
        }
        let gathers = may_gather && answered.is_some() && self.is_busy.load(Ordering::Acquire);
        if gathers {
            self.is_gathering.store(true, Ordering::Release);
        } else if self.traffic.has_waiting() {
            // The server is kept busy while the answers are handed out.
            self.send();
        }
        pushes.iter().for_each(|payload| self.traffic.push(payload));
        let is_answered = answered.is_some();
        if let Some(Flight { batch, sent, replies, .. }) = answered {
            broken = self.traffic.answer(batch, sent, replies);
        }
        if let Some(failure) = broken {
            self.give_up(failure);
        } else if !gathers && self.traffic.has_waiting() {
            // Some of it has to be asked again.
            self.send();
            self.see_to_the_timer();
        }
        Progress { is_answered, gathers }
    }

    /// Sends what was gathered.
    fn send_gathered(&self) {
        self.is_gathering.store(false, Ordering::Release);
        self.send();
        self.see_to_the_timer();
    }

    /// Collects what has arrived, in order, until a batch is answered.
    fn collect(
        &self,
        incoming: &mut Incoming,
        pushes: &mut Vec<Vec<u8>>,
    ) -> Result<Option<Flight<T::Batch>>, Failure> {
        while let Some(arrival) = incoming.take()? {
            match arrival {
                Arrival::Push(payload) => pushes.push(payload),
                Arrival::Reply(reply) => {
                    let mut state = lock(&self.state);
                    let Some(flight) = state.in_flight.front_mut() else {
                        return Err(failure::of_nonsense("a reply to nothing"));
                    };
                    flight.replies.push(reply);
                    if flight.replies.len() == flight.expected {
                        return Ok(state.in_flight.pop_front());
                    }
                }
            }
        }
        Ok(None)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dials and greets.
pub async fn connect<T: Traffic>(dialer: &Dialer, traffic: &T) -> Result<Connection, Failure> {
    let mut connection = dialer.dial().await?;
    let limit = dialer.config().request_timeout;
    match tokio::time::timeout(limit, traffic.greet(&mut connection)).await {
        Ok(greeted) => match greeted {
            Ok(()) => Ok(connection),
            Err(failed) => Err(failure::at(connection.incoming.endpoint(), failed)),
        },
        Err(_) => Err(failure::of_silence(&dialer.config().endpoint, limit)),
    }
}
