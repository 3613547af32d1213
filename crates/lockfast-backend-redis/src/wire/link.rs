//! The link to one server: a connection, what is in flight on it, and the task that reads it and
//! makes it anew when it breaks.
//!
//! A batch is written by the thread that asks, so that a request costs no switch to another
//! thread on its way out; the answers are read on the keeper's runtime. While
//! [`IN_FLIGHT_MAX`] batches are in flight, what is asked forms the next one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use lockfast_core::{BoxFuture, Moment};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

use super::connection::{Arrival, Connection, Incoming, Outgoing};
use super::dial::Dialer;
use super::{Failure, Pipeline, Reply};
use crate::config::Endpoint;

/// How many batches may be unanswered. A second one would keep the server busy while we read,
/// but the batches would be smaller, and those cost the server more than it gains.
const IN_FLIGHT_MAX: usize = 1;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_URGENT: Duration = Duration::from_millis(200);
/// A batch with a short limit may be sent while the timer runs for one with a long limit.
const TIMER_MAX: Duration = Duration::from_millis(500);

/// What goes over a link. It must not block, and none of it is called with the link locked, but
/// for [`Traffic::load`].
pub(crate) trait Traffic: Send + Sync + 'static {
    /// What waits for an answer.
    type Batch: Send + 'static;

    /// Whether something waits to be sent. It is asked before anything is locked.
    fn has_waiting(&self) -> bool;

    /// Writes down what is to be asked next, and for how long an answer is worth waiting for.
    fn load(&self, pipeline: &mut Pipeline) -> Option<(Self::Batch, Duration)>;

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
pub(crate) struct Link<T: Traffic> {
    shared: Arc<Shared<T>>,
    task: AbortHandle,
}

struct Shared<T: Traffic> {
    traffic: Arc<T>,
    dialer: Arc<Dialer>,
    /// Locked while something is written, and before `state`, so that batches are in flight in
    /// the order in which they were written.
    writer: Mutex<Writer>,
    /// Never locked during a system call: whoever reads must not wait for whoever writes.
    state: Mutex<State<T::Batch>>,
    /// Whether the operating system did not take all that was to be written.
    is_clogged: AtomicBool,
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

impl<B> State<B> {
    /// A new connection was made.
    fn arrive(&mut self, place: &Endpoint) {
        let moved_to = self.moved_to.take().filter(|right| right != place);
        self.broken = moved_to.map(|right| Failure::of_move(&right));
        self.place = Some(place.clone());
        self.is_timed = false;
    }
}

enum Event<B> {
    Answer(Flight<B>),
    Push(Vec<u8>),
}

impl<T: Traffic> Link<T> {
    /// Starts a link on a connection that was dialled and greeted.
    pub(crate) fn start(
        runtime: &Handle,
        traffic: Arc<T>,
        dialer: Arc<Dialer>,
        connection: Connection,
    ) -> Self {
        let Connection { incoming, outgoing } = connection;
        let shared = Arc::new(Shared {
            traffic,
            dialer,
            writer: Mutex::new(Writer { outgoing: Some(outgoing), spare: Pipeline::default() }),
            state: Mutex::new(State {
                place: Some(incoming.endpoint().clone()),
                moved_to: None,
                in_flight: VecDeque::new(),
                broken: None,
                task: Waker::noop().clone(),
                is_timed: false,
            }),
            is_clogged: AtomicBool::new(false),
        });
        let task = runtime.spawn(Arc::clone(&shared).run(incoming)).abort_handle();
        Self { shared, task }
    }

    /// Starts a link that connects by itself.
    pub(crate) fn start_later(runtime: &Handle, traffic: Arc<T>, dialer: Arc<Dialer>) -> Self {
        let shared = Arc::new(Shared {
            traffic,
            dialer,
            writer: Mutex::default(),
            state: Mutex::new(State {
                place: None,
                moved_to: None,
                in_flight: VecDeque::new(),
                broken: None,
                task: Waker::noop().clone(),
                is_timed: false,
            }),
            is_clogged: AtomicBool::new(false),
        });
        let starting = Arc::clone(&shared);
        let task = runtime.spawn(async move {
            let incoming = starting.establish().await;
            starting.run(incoming).await;
        });
        Self { shared, task: task.abort_handle() }
    }

    /// The way for those who ask.
    pub(crate) fn pump(&self) -> Pump<T> {
        Pump(Arc::downgrade(&self.shared))
    }
}

/// Starts the next batch.
pub(crate) struct Pump<T: Traffic>(Weak<Shared<T>>);

impl<T: Traffic> Pump<T> {
    /// Sends what waits, if there is room.
    pub(crate) fn run(&self) {
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
                state.broken.get_or_insert_with(|| Failure::of_move(endpoint));
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
    }
}

impl<T: Traffic> Shared<T> {
    /// Sends what waits, as far as there is room, and wakes the task if it must know.
    fn pump(&self) {
        let task = lock(&self.state).task.clone();
        self.send(&mut Context::from_waker(&task));
        let state = lock(&self.state);
        if state.broken.is_some() || !state.is_timed {
            drop(state);
            task.wake();
        }
    }

    fn send(&self, context: &mut Context<'_>) {
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
        let written = outgoing.poll_write(context);
        self.is_clogged.store(written.is_pending(), Ordering::Release);
        if let Poll::Ready(Err(failure)) = written {
            lock(&self.state).broken.get_or_insert(failure);
        }
    }

    /// The task.
    async fn run(self: Arc<Self>, mut incoming: Incoming) {
        loop {
            let mut timer = None;
            let failure =
                poll_fn(|context| self.poll_drive(&mut incoming, &mut timer, context)).await;
            tracing::debug!(failure = failure.message, "the connection to Redis broke");
            lock(&self.writer).outgoing = None;
            let lost = {
                let mut state = lock(&self.state);
                state.place = None;
                state.is_timed = false;
                state.broken = None;
                std::mem::take(&mut state.in_flight)
            };
            lost.into_iter().for_each(|flight| self.traffic.fail(flight.batch, &failure));
            incoming = self.establish().await;
        }
    }

    /// Makes a connection and puts it to use.
    async fn establish(&self) -> Incoming {
        let Connection { incoming, outgoing } = self.reconnect().await;
        lock(&self.state).arrive(incoming.endpoint());
        lock(&self.writer).outgoing = Some(outgoing);
        self.traffic.connected();
        incoming
    }

    async fn reconnect(&self) -> Connection {
        let mut pause = PAUSE_MIN;
        loop {
            self.pause(pause.mul_f64(0.5 + jitter())).await;
            match connect(&self.dialer, self.traffic.as_ref()).await {
                Ok(connection) => return connection,
                Err(failure) => self.traffic.fail_waiting(&failure),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits before the next try, but not for long when somebody waits for it: a lease must not
    /// run out because we are slow to see that the server is back.
    async fn pause(&self, pause: Duration) {
        let mut all = pin!(tokio::time::sleep(pause));
        let mut least = pin!(tokio::time::sleep(pause.min(PAUSE_URGENT)));
        let mut is_urgent = false;
        poll_fn(|context| {
            is_urgent = is_urgent || least.as_mut().poll(context).is_ready();
            match is_urgent && self.traffic.has_waiting() {
                true => Poll::Ready(()),
                // Whoever begins to wait wakes the task.
                false => all.as_mut().poll(context),
            }
        })
        .await;
    }

    /// Reads and writes until the connection is of no use any more.
    fn poll_drive(
        &self,
        incoming: &mut Incoming,
        timer: &mut Option<Pin<Box<Sleep>>>,
        context: &mut Context<'_>,
    ) -> Poll<Failure> {
        {
            let mut state = lock(&self.state);
            if !state.task.will_wake(context.waker()) {
                state.task = context.waker().clone();
            }
        }
        loop {
            let mut events = Vec::new();
            let mut broken = match self.poll_events(incoming, &mut events, context) {
                Poll::Ready(failure) => Some(failure),
                Poll::Pending => None,
            };
            if self.is_clogged.load(Ordering::Acquire) || self.traffic.has_waiting() {
                // The server is kept busy while the answers are handed out.
                self.send(context);
            }
            broken = broken.or_else(|| lock(&self.state).broken.take());
            let is_quiet = events.is_empty();
            for event in events {
                match event {
                    Event::Push(payload) => self.traffic.push(&payload),
                    Event::Answer(flight) => {
                        let Flight { batch, sent, replies, .. } = flight;
                        if let Some(failure) = self.traffic.answer(batch, sent, replies) {
                            broken.get_or_insert(failure);
                        }
                    }
                }
            }
            match broken {
                Some(failure) => return Poll::Ready(failure),
                None if is_quiet => return self.poll_timer(timer, context),
                None => {}
            }
        }
    }

    /// Collects what arrived, in order.
    fn poll_events(
        &self,
        incoming: &mut Incoming,
        events: &mut Vec<Event<T::Batch>>,
        context: &mut Context<'_>,
    ) -> Poll<Failure> {
        loop {
            match ready!(incoming.poll_arrival(context)) {
                Err(failure) => return Poll::Ready(failure),
                Ok(Arrival::Push(payload)) => events.push(Event::Push(payload)),
                Ok(Arrival::Reply(reply)) => {
                    let mut state = lock(&self.state);
                    let Some(flight) = state.in_flight.front_mut() else {
                        return Poll::Ready(Failure::of_nonsense("a reply to nothing"));
                    };
                    flight.replies.push(reply);
                    if flight.replies.len() == flight.expected {
                        events.extend(state.in_flight.pop_front().map(Event::Answer));
                    }
                }
            }
        }
    }

    /// Sees to it that a server that does not answer is noticed. The timer goes off once in a
    /// while as long as the link is in use, and not at all when it is not.
    fn poll_timer(
        &self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        context: &mut Context<'_>,
    ) -> Poll<Failure> {
        loop {
            if let Some(sleep) = timer {
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                *timer = None;
            }
            let mut state = lock(&self.state);
            let now = Moment::now();
            let Some(oldest) = state.in_flight.front() else {
                state.is_timed = false;
                return Poll::Pending;
            };
            let left = (oldest.sent + oldest.limit).remaining(now);
            if left.is_zero() {
                let endpoint = state.place.as_ref().unwrap_or(&self.dialer.config().endpoint);
                return Poll::Ready(Failure::of_silence(endpoint, oldest.limit));
            }
            state.is_timed = true;
            *timer = Some(Box::pin(tokio::time::sleep(left.min(TIMER_MAX))));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dials and greets.
pub(crate) async fn connect<T: Traffic>(
    dialer: &Dialer,
    traffic: &T,
) -> Result<Connection, Failure> {
    let mut connection = dialer.dial().await?;
    let limit = dialer.config().request_timeout;
    match tokio::time::timeout(limit, traffic.greet(&mut connection)).await {
        Ok(greeted) => match greeted {
            Ok(()) => Ok(connection),
            Err(failure) => Err(failure.at(connection.incoming.endpoint())),
        },
        Err(_) => Err(Failure::of_silence(&dialer.config().endpoint, limit)),
    }
}

/// A number from 0 to below 1 that spreads what would otherwise happen at one moment.
pub(crate) fn jitter() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / (f64::from(u32::MAX) + 1.0)
}
