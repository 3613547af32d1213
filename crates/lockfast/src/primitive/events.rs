//! What happens in a store, for a primitive that waits for a change of one name. All who wait share one
//! watch of the store: what each change costs does not grow with their number.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use lockfast_core::watch::EventFeed;
use lockfast_core::{EventStream, Feature, LockName, Result, WatchEvent, WatchKind};
use tokio::task::AbortHandle;

use crate::store::Store;

/// How often the store is looked at when nothing is heard: events can be lost, and that they were is
/// told with the next.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The events of one name.
#[derive(Debug)]
pub(super) struct Events {
    store: Arc<Store>,
    name: LockName,
    listener: Option<Listener>,
}

impl Events {
    /// Nothing is heard until they are [resumed](Self::resume).
    pub(super) fn new(store: Arc<Store>, name: LockName) -> Result<Self> {
        store.check_process().map_err(|error| error.with_lock(&name))?;
        let events = store.backend.profile().require(Feature::Events);
        events.map_err(|error| error.with_lock(&name))?;
        Ok(Self { store, name, listener: None })
    }

    /// Whatever happens from now on is heard.
    pub(super) async fn open(store: Arc<Store>, name: LockName) -> Result<Self> {
        let mut events = Self::new(store, name)?;
        events.resume().await?;
        Ok(events)
    }

    /// Listens, also again when the watch has ended. What happened in between has to be looked for.
    pub(super) async fn resume(&mut self) -> Result<()> {
        if self.listener.is_none() {
            let listener = listen(&self.store, &self.name).await;
            self.listener = Some(listener.map_err(|error| error.with_lock(&self.name))?);
        }
        Ok(())
    }

    /// The next event of the name; `None` when the store has to be looked at, because events were
    /// lost, or none came for a while.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        let mut alarm = pin!(self.store.sleep(LOOK_EVERY));
        let heard = {
            let mut event = pin!(self.listener.as_mut()?.stream.next());
            poll_fn(|context| {
                if let Poll::Ready(event) = event.as_mut().poll(context) {
                    return Poll::Ready(Some(event));
                }
                alarm.as_mut().poll(context).map(|()| None)
            })
            .await
        };
        let Some(event) = heard? else {
            self.listener = None;
            return None;
        };
        (event.kind != WatchKind::Missed).then_some(event)
    }
}

/// The watch of a store, for as long as somebody listens.
#[derive(Debug, Default)]
pub(crate) struct SharedWatch {
    /// Held by whoever opens the watch, so that it is opened once.
    opening: tokio::sync::Mutex<()>,
    listeners: Arc<Mutex<Listeners>>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_name: HashMap<LockName, HashMap<u64, EventFeed>>,
    /// What reads the watch, while it is open.
    reader: Option<(u64, AbortHandle)>,
    /// The next number of a listener or a reader.
    next_number: u64,
}

/// One who listens. The watch ends with the last.
#[derive(Debug)]
struct Listener {
    stream: EventStream,
    name: LockName,
    number: u64,
    listeners: Arc<Mutex<Listeners>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.listeners).remove(&self.name, self.number);
    }
}

/// Hears of everything that happens to a name from now on.
async fn listen(store: &Store, name: &LockName) -> Result<Listener> {
    let watch = &store.watch;
    let _opening = watch.opening.lock().await;
    if let Some(listener) = watch.join(name) {
        return Ok(listener);
    }
    let stream = store.backend.watch().await?;
    let mut listeners = lock(&watch.listeners);
    let number = listeners.number();
    let reading = read(stream, Arc::clone(&watch.listeners), number);
    let reader = store.keeper.runtime().spawn(reading);
    listeners.reader = Some((number, reader.abort_handle()));
    Ok(watch.add(&mut listeners, name))
}

impl SharedWatch {
    /// Another listener, if the watch is open.
    fn join(&self, name: &LockName) -> Option<Listener> {
        let mut listeners = lock(&self.listeners);
        listeners.reader.is_some().then(|| self.add(&mut listeners, name))
    }

    fn add(&self, listeners: &mut Listeners, name: &LockName) -> Listener {
        let (feed, stream) = EventStream::channel();
        let number = listeners.number();
        listeners.by_name.entry(name.clone()).or_default().insert(number, feed);
        Listener { stream, name: name.clone(), number, listeners: Arc::clone(&self.listeners) }
    }
}

/// Passes on what the watch tells until it ends.
async fn read(mut stream: EventStream, listeners: Arc<Mutex<Listeners>>, number: u64) {
    while let Some(event) = stream.next().await {
        lock(&listeners).tell(&event);
    }
    lock(&listeners).end(number);
}

impl Listeners {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn tell(&mut self, event: &WatchEvent) {
        if event.kind == WatchKind::Missed {
            // What was missed may have been anybody's.
            let all = self.by_name.values_mut().flat_map(HashMap::values_mut);
            return all.for_each(|feed| feed.offer(event.clone()));
        }
        let of_name = self.by_name.get_mut(&event.name).into_iter().flat_map(HashMap::values_mut);
        of_name.for_each(|feed| feed.offer(event.clone()));
    }

    /// The watch has ended, and so have the streams of all who listened to it.
    fn end(&mut self, number: u64) {
        if self.reader.take_if(|(reader, _)| *reader == number).is_some() {
            self.by_name.clear();
        }
    }

    fn remove(&mut self, name: &LockName, number: u64) {
        if let Some(of_name) = self.by_name.get_mut(name) {
            of_name.remove(&number);
            if of_name.is_empty() {
                self.by_name.remove(name);
            }
        }
        if self.by_name.is_empty()
            && let Some((_, reader)) = self.reader.take()
        {
            reader.abort();
        }
    }
}

fn lock(listeners: &Mutex<Listeners>) -> MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
