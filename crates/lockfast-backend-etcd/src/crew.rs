//! The store's work: the connection, the writer, and everybody whom a caller waits for. All of it is
//! one future, which is polled by the runtime that asks or by the keeper's, so that neither a
//! request nor its answer has to cross from one thread to another.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lockfast_core::BoxFuture;
use lockfast_net::drive::{Drive, Gather, Plug};
use tokio::runtime::Handle;

use crate::store::lock;

type Job = BoxFuture<'static, ()>;

/// Everything that is worked on, and who does it.
#[derive(Clone)]
pub(crate) struct Crew {
    drive: Arc<Drive>,
    arrivals: Arc<Mutex<Arrivals>>,
}

/// What is to be worked on, and was not yet.
#[derive(Default)]
struct Arrivals {
    jobs: Vec<Job>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Crew {
    /// Nothing is done yet; the keeper's part of it is on that runtime.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { drive: Drive::new(runtime), arrivals: Arc::default() }
    }

    /// Works until it is closed or this is dropped.
    pub(crate) async fn run(self) {
        let _closing = CloseOnDrop(self.clone());
        let arrivals = Arc::clone(&self.arrivals);
        self.drive.run(Box::pin(work(arrivals))).await;
    }

    /// Adds something; it is dropped if the crew is closed.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        let mut arrivals = lock(&self.arrivals);
        if arrivals.is_closed {
            return;
        }
        arrivals.jobs.push(Box::pin(job));
        let waker = arrivals.waker.clone();
        drop(arrivals);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Somebody is about to ask for something on the present thread.
    pub(crate) fn attend(&self, store: &Weak<dyn Gather>) {
        self.drive.attend(store);
    }

    /// The connection over which everything goes.
    pub(crate) fn set_plug(&self, plug: Option<Arc<Plug>>) {
        self.drive.set_plug(plug);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.arrivals).is_closed
    }

    /// Whatever is under way is dropped.
    pub(crate) fn close(&self) {
        let mut arrivals = lock(&self.arrivals);
        arrivals.is_closed = true;
        let dropped = std::mem::take(&mut arrivals.jobs);
        drop(arrivals);
        drop(dropped);
        self.drive.close();
    }
}

struct CloseOnDrop(Crew);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// All jobs, for ever.
async fn work(arrivals: Arc<Mutex<Arrivals>>) {
    let mut jobs = FuturesUnordered::new();
    poll_fn(|context| poll_jobs(&mut jobs, &arrivals, context)).await;
}

fn poll_jobs(
    jobs: &mut FuturesUnordered<Job>,
    arrivals: &Mutex<Arrivals>,
    context: &mut Context<'_>,
) -> Poll<()> {
    loop {
        {
            let mut arrivals = lock(arrivals);
            if !arrivals.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                arrivals.waker = Some(context.waker().clone());
            }
            jobs.extend(arrivals.jobs.drain(..));
        }
        // One that was added meanwhile has woken us.
        if !matches!(jobs.poll_next_unpin(context), Poll::Ready(Some(()))) {
            return Poll::Pending;
        }
    }
}
