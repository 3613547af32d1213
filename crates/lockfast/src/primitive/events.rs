//! What happens in a store, for a primitive that waits for a change of one name.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{EventStream, Feature, LockName, Result, WatchEvent, WatchKind};

use crate::store::Store;

/// How often the store is looked at when nothing is heard: events can be lost, and that they were is
/// told with the next.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The events of one name.
#[derive(Debug)]
pub(super) struct Events {
    store: Arc<Store>,
    name: LockName,
    stream: Option<EventStream>,
}

impl Events {
    /// Nothing is heard until they are [resumed](Self::resume).
    pub(super) fn new(store: Arc<Store>, name: LockName) -> Result<Self> {
        store.check_process().map_err(|error| error.with_lock(&name))?;
        let events = store.backend.profile().require(Feature::Events);
        events.map_err(|error| error.with_lock(&name))?;
        Ok(Self { store, name, stream: None })
    }

    /// Whatever happens from now on is heard.
    pub(super) async fn open(store: Arc<Store>, name: LockName) -> Result<Self> {
        let mut events = Self::new(store, name)?;
        events.resume().await?;
        Ok(events)
    }

    /// Listens, also again when the stream has ended. What happened in between has to be looked for.
    pub(super) async fn resume(&mut self) -> Result<()> {
        if self.stream.is_none() {
            let stream = self.store.backend.watch().await;
            self.stream = Some(stream.map_err(|error| error.with_lock(&self.name))?);
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
        loop {
            let heard = {
                let mut event = pin!(self.stream.as_mut()?.next());
                poll_fn(|context| {
                    if let Poll::Ready(event) = event.as_mut().poll(context) {
                        return Poll::Ready(Some(event));
                    }
                    alarm.as_mut().poll(context).map(|()| None)
                })
                .await
            };
            let Some(event) = heard? else {
                self.stream = None;
                return None;
            };
            match event.kind {
                WatchKind::Missed => return None,
                _ if event.name == self.name => return Some(event),
                _ => {}
            }
        }
    }
}
