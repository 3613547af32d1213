//! Watching: every change is told once, and only while somebody watches. A lease that runs out
//! makes no noise in a database, so whoever watches lets the server look for such.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lockfast_core::watch::EventFeeds;
use lockfast_core::{EventStream, LockName, Moment, Result, WatchEvent, WatchKind};
use tokio::sync::{Notify, oneshot};

use crate::batch::Value;
use crate::claim::read_fence;
use crate::inspect::read_label;
use crate::store::{Store, closed, lock};

/// How long events are told after the last watcher was heard of, and how often it is.
const WATCH_US: i64 = 30_000_000;
const WATCH_REFRESH: Duration = Duration::from_secs(10);
/// How often leases that have run out are looked for; less often where that takes long.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_SHARE: u32 = 20;

/// All streams of this process.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<EventFeeds>,
    wanted: Mutex<VecDeque<oneshot::Sender<()>>>,
    asked: Notify,
}

impl Feeds {
    /// Whether nobody watches.
    pub(crate) fn is_empty(&self) -> bool {
        let mut feeds = lock(&self.feeds);
        feeds.prune();
        feeds.is_empty()
    }

    /// Tells all who watch what the server has said.
    pub(crate) fn tell(&self, message: &str) {
        let Some(event) = read_event(message) else { return };
        lock(&self.feeds).tell(&event);
    }

    /// Events may have been lost.
    pub(crate) fn miss(&self) {
        lock(&self.feeds).miss();
    }

    /// Somebody who wants to hear of events by the connection that listens.
    pub(crate) async fn wanted(&self) -> oneshot::Sender<()> {
        loop {
            if let Some(ready) = lock(&self.wanted).pop_front() {
                return ready;
            }
            self.asked.notified().await;
        }
    }

    async fn listen(&self) {
        let (ready, listening) = oneshot::channel();
        lock(&self.wanted).push_back(ready);
        self.asked.notify_one();
        // A connection that breaks meanwhile listens to events when it is made anew.
        let _ = listening.await;
    }
}

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let is_first = store.feeds.is_empty();
    let stream = lock(&store.feeds.feeds).open();
    if !store.is_by_mail() {
        store.feeds.listen().await;
    }
    keep_telling(&store).await.map_err(|failure| failure.to_error())?;
    store.expects_mail.notify_one();
    if is_first {
        let runtime = store.runtime.clone();
        runtime.spawn(tend(Arc::downgrade(&store)));
    }
    Ok(stream)
}

/// Keeps events coming and looks for leases that have run out, while somebody watches.
async fn tend(store: std::sync::Weak<Store>) {
    let mut refreshed = Moment::now();
    let mut pause = LOOK_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let Some(store) = store.upgrade() else { return };
        if store.feeds.is_empty() {
            return;
        }
        let start = Moment::now();
        if (refreshed + WATCH_REFRESH).has_passed(start) && keep_telling(&store).await.is_ok() {
            refreshed = start;
        }
        // What fails now is tried again.
        let _ = store.ask("SELECT {schema}.expire()", Vec::new()).await;
        pause = LOOK_EVERY.max(Moment::now().since(start) * LOOK_SHARE);
    }
}

/// Asks the server to tell of events for a while.
async fn keep_telling(store: &Store) -> std::result::Result<(), crate::failure::Failure> {
    let values = vec![store.client_value(), Value::Number(store.link()), Value::Number(WATCH_US)];
    match store.ask("SELECT {schema}.watch($1, $2, $3)", values).await {
        Ok(_) => Ok(()),
        // The link was made anew in between.
        Err(failure) if failure.handling.remedy == crate::failure::Remedy::Enrol => Err(closed()),
        Err(failure) => Err(failure),
    }
}

fn read_event(message: &str) -> Option<WatchEvent> {
    let fields: Vec<&str> = message.split('\t').collect();
    let [kind, at_us, fence, name, label @ .., _number] = fields.as_slice() else { return None };
    Some(
        WatchEvent::new(
            SystemTime::UNIX_EPOCH + Duration::from_micros(at_us.parse().ok()?),
            LockName::new(name).ok()?,
            WatchKind::from_letter(kind)?,
        )
        .with_fence(read_fence(fence.parse().ok()).ok())
        .with_label(read_label(label)),
    )
}
