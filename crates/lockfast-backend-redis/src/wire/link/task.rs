//! The keeper's part of a link: it makes the connection anew when it breaks, notices a server that
//! does not answer, and listens wherever the ear does not.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lockfast_core::{Moment, jitter};
use tokio::time::Sleep;

use super::super::connection::Connection;
use super::super::stream::{Readiness, Stream};
use super::{Failure, Shared, Traffic, connect, failure, lock};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_URGENT: Duration = Duration::from_millis(200);
/// A batch with a short limit may be sent while the timer runs for one with a long limit.
const TIMER_MAX: Duration = Duration::from_millis(500);
/// How long an ear that does not hear goes unnoticed.
const TICK: Duration = Duration::from_millis(100);
/// How long the keeper listens before it finds out whether the ear does; what takes longer to be
/// answered is listened for by both.
const TRIAL: Duration = Duration::from_millis(5);

/// What the task knows of its connection.
pub(super) struct Watch {
    stream: Arc<Stream>,
    /// Present while the keeper's runtime is told of what arrives.
    readiness: Option<Readiness>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The ear's beats when it was last looked at.
    beats: u64,
    /// Whether something arrived since then.
    is_stirred: bool,
    /// Whether the ear was not heard of although something arrived.
    is_doubtful: bool,
}

impl Watch {
    pub(super) fn new(stream: Arc<Stream>, readiness: Readiness) -> Self {
        Self {
            stream,
            readiness: Some(readiness),
            timer: None,
            beats: 0,
            is_stirred: false,
            is_doubtful: false,
        }
    }
}

impl<T: Traffic> Shared<T> {
    /// The task.
    pub(super) async fn run(self: Arc<Self>, mut watch: Watch) {
        loop {
            let failure = poll_fn(|context| self.poll_drive(&mut watch, context)).await;
            drop(watch);
            tracing::debug!(failure = failure.message(), "the connection to Redis broke");
            self.attention.close();
            lock(&self.writer).outgoing = None;
            *lock(&self.reader) = None;
            let lost = {
                let mut state = lock(&self.state);
                state.place = None;
                state.is_timed = false;
                state.broken = None;
                std::mem::take(&mut state.in_flight)
            };
            lost.into_iter().for_each(|flight| self.traffic.fail(flight.batch, &failure));
            watch = self.establish().await;
        }
    }

    /// Makes a connection and puts it to use.
    pub(super) async fn establish(&self) -> Watch {
        let connection = self.reconnect().await;
        let watch = self.put_to_use(connection);
        self.traffic.connected();
        watch
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

    /// Listens, if need be, until the connection is of no use any more.
    fn poll_drive(&self, watch: &mut Watch, context: &mut Context<'_>) -> Poll<Failure> {
        {
            let mut state = lock(&self.state);
            if !state.task.will_wake(context.waker()) {
                state.task = context.waker().clone();
            }
        }
        loop {
            if (self.attention.is_called() || self.is_clogged.load(Ordering::Acquire))
                && let Err(failure) = self.listen(watch)
            {
                return Poll::Ready(failure);
            }
            if let Some(failure) = self.poll_socket(watch, context) {
                return Poll::Ready(failure);
            }
            if self.traffic.has_waiting() {
                self.send();
            }
            if let Some(failure) = lock(&self.state).broken.take() {
                return Poll::Ready(failure);
            }
            match ready!(self.poll_timer(watch, context)) {
                Err(failure) => return Poll::Ready(failure),
                Ok(()) => {
                    if let Err(failure) = self.share_attention(watch) {
                        return Poll::Ready(failure);
                    }
                }
            }
        }
    }

    /// Reads and writes what can be, if the keeper listens.
    fn poll_socket(&self, watch: &mut Watch, context: &mut Context<'_>) -> Option<Failure> {
        let readiness = watch.readiness.as_ref()?;
        let failed = |error| self.failure_of(&error);
        // The ear may have stopped half-way.
        self.read_rest();
        while let Poll::Ready(ready) = readiness.poll_read(context) {
            if let Err(error) = ready {
                return Some(failed(error));
            }
            watch.is_stirred = true;
            self.rouse();
            self.read_rest();
            if let Some(failure) = lock(&self.state).broken.take() {
                return Some(failure);
            }
        }
        while self.is_clogged.load(Ordering::Acquire)
            && let Poll::Ready(ready) = readiness.poll_write(context)
        {
            if let Err(error) = ready {
                return Some(failed(error));
            }
            self.send();
        }
        None
    }

    fn failure_of(&self, error: &std::io::Error) -> Failure {
        let state = lock(&self.state);
        failure::of_io(state.place.as_ref().unwrap_or(&self.dialer.config().endpoint), error)
    }

    /// Lets the keeper's runtime be told of what arrives, and of what has arrived.
    fn listen(&self, watch: &mut Watch) -> Result<(), Failure> {
        if watch.readiness.is_none() {
            let readiness = Readiness::new(&watch.stream);
            watch.readiness = Some(readiness.map_err(|error| self.failure_of(&error))?);
            self.attention.set_keeper_listening(true);
            // It is soon to be seen whether that is needed.
            watch.timer = None;
        }
        Ok(())
    }

    /// Leaves the connection to the ear if that hears, and listens otherwise.
    fn share_attention(&self, watch: &mut Watch) -> Result<(), Failure> {
        let beats = self.attention.beats();
        let is_heard = self.attention.has_ear() && beats != watch.beats;
        let (is_slow, is_flying) = {
            let state = lock(&self.state);
            let oldest = state.in_flight.front();
            let is_slow = oldest.is_some_and(|it| (it.sent + TRIAL).has_passed(Moment::now()));
            (is_slow, oldest.is_some())
        };
        watch.is_doubtful = !is_heard && (is_flying || watch.is_stirred);
        self.attention.set_deaf(watch.is_doubtful);
        watch.beats = beats;
        watch.is_stirred = false;
        let is_called = self.attention.take_call();
        let is_clogged = self.is_clogged.load(Ordering::Acquire);
        if !is_heard || is_slow || is_called || is_clogged {
            return self.listen(watch);
        }
        watch.readiness = None;
        self.attention.set_keeper_listening(false);
        // Whoever called before that counted on the keeper.
        if self.attention.is_called() { self.listen(watch) } else { Ok(()) }
    }

    /// Sees to it that a server that does not answer is noticed, and an ear that does not hear.
    /// The timer goes off once in a while as long as the link is in use, and not at all when it
    /// is not.
    fn poll_timer(
        &self,
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            if let Some(sleep) = &mut watch.timer {
                ready!(sleep.as_mut().poll(context));
                watch.timer = None;
                return Poll::Ready(Ok(()));
            }
            let has_ear = self.attention.has_ear();
            let is_listening = watch.readiness.is_some();
            let is_gathering = self.is_gathering.load(Ordering::Acquire);
            let mut state = lock(&self.state);
            let mut pause = match (has_ear, is_listening) {
                (false, _) => TIMER_MAX,
                (true, true) if !watch.is_doubtful => TRIAL,
                (true, _) => TICK,
            };
            match state.in_flight.front() {
                Some(oldest) => {
                    let left = (oldest.sent + oldest.limit).remaining(Moment::now());
                    if left.is_zero() {
                        let endpoint =
                            state.place.as_ref().unwrap_or(&self.dialer.config().endpoint);
                        return Poll::Ready(Err(failure::of_silence(endpoint, oldest.limit)));
                    }
                    pause = pause.min(left);
                }
                None if is_listening && !is_gathering && !(has_ear && watch.is_stirred) => {
                    state.is_timed = false;
                    return Poll::Pending;
                }
                None => {}
            }
            state.is_timed = true;
            watch.timer = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }
}
