//! Drives a future by hand, one poll at a time, and counts who wakes it: to drop it at every
//! await point, and to see whom a release disturbs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lockfast_core::{BoxFuture, Moment};

/// No operation of a store needs this many polls; a future that is woken for ever is a fault.
const POLLS_MAX: usize = 64;

/// A future that moves only when told to.
pub(crate) struct Stepper<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    wakes: Arc<Wakes>,
    seen: usize,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'a, T> Stepper<'a, T> {
    pub(crate) fn new(future: BoxFuture<'a, T>) -> Self {
        Self { future, wakes: Arc::default(), seen: 0 }
    }

    /// Polls once.
    pub(crate) fn step(&mut self) -> Poll<T> {
        self.seen = self.wakes.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Whether the future was woken since it was last polled.
    pub(crate) fn is_woken(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > self.seen
    }

    /// Waits until the future is woken; says whether it was, within `bound`.
    pub(crate) async fn woken_within(&mut self, bound: Duration) -> bool {
        let start = Moment::now();
        while !self.is_woken() {
            if Moment::now().since(start) > bound {
                return false;
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        true
    }

    /// Polls whenever woken, until the future is ready.
    pub(crate) async fn finish_within(&mut self, bound: Duration) -> Option<T> {
        let start = Moment::now();
        loop {
            if let Poll::Ready(value) = self.step() {
                return Some(value);
            }
            let left = (start + bound).remaining(Moment::now());
            if left.is_zero() || !self.woken_within(left).await {
                return None;
            }
        }
    }
}

/// How a future was left.
pub(crate) enum Left<T> {
    /// It was dropped after so many polls.
    Pending { polls: usize },
    /// It had ended with the last poll.
    Ready(T),
}

/// Lets futures of one kind be dropped after 0, 1, 2… polls, each time at once and again when
/// there is something to hear that was not heard. The sweep is over when a future ended, or was
/// not woken within `quiet`.
pub(crate) struct Sweep {
    polls: usize,
    at_once: bool,
    quiet: Duration,
    over: bool,
}

impl Sweep {
    pub(crate) fn new(quiet: Duration) -> Self {
        Self { polls: 0, at_once: true, quiet, over: false }
    }

    /// Polls the future as often as it is its turn and drops it; `None` when the sweep is over.
    pub(crate) async fn advance<'a, T>(
        &mut self,
        make: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Option<Left<T>> {
        if self.over {
            return None;
        }
        assert!(self.polls < POLLS_MAX, "woken {POLLS_MAX} times for nothing");
        let mut stepper = Stepper::new(make());
        for poll in 1..=self.polls {
            if let Poll::Ready(value) = stepper.step() {
                self.over = true;
                return Some(Left::Ready(value));
            }
            let stop_here = poll == self.polls && self.at_once;
            if !stop_here && !stepper.woken_within(self.quiet).await {
                self.over = true;
            }
        }
        let polls = self.polls;
        // A future that was never polled waits for nothing.
        if polls == 0 || !self.at_once {
            self.polls += 1;
        }
        self.at_once = polls == 0 || !self.at_once;
        Some(Left::Pending { polls })
    }
}
