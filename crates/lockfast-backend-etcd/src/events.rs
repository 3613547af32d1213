//! What happens to locks and values, for whoever watches.

use std::collections::HashMap;
use std::sync::Arc;

use lockfast_core::time::wall_clock;
use lockfast_core::watch::{EventFeed, EventStream, WatchEvent, WatchKind};
use lockfast_core::{ErrorKind, LockName, Moment};
use tokio::sync::oneshot;

use crate::acquire::fence_of;
use crate::batch::range;
use crate::failure::{self, Failure};
use crate::key::Maker;
use crate::line::{Entry, Line};
use crate::record::State;
use crate::store::Store;
use crate::values;
use crate::wire::{
    Event, EventType, KeyValue, Stream, WatchCreateRequest, WatchOp, WatchRequest, WatchResponse,
};

type Opened = oneshot::Sender<Result<(), Failure>>;

/// One who watches, and the lines of all locks as it sees them.
struct Spectator {
    store: Arc<Store>,
    feed: EventFeed,
    lines: HashMap<LockName, Line>,
}

impl Store {
    /// Events of all locks and values, from now on.
    pub(crate) async fn watch_all(self: &Arc<Self>) -> Result<EventStream, Failure> {
        let (feed, events) = EventStream::channel();
        let (opened, is_open) = oneshot::channel();
        let closing = feed.closing();
        let spectator = Spectator { store: Arc::clone(self), feed, lines: HashMap::new() };
        self.context.runtime.spawn(async move {
            tokio::select! {
                () = spectator.watch(opened) => {}
                () = closing => {}
            }
        });
        is_open.await.unwrap_or_else(|_| Err(failure::of_closing()))?;
        Ok(events)
    }
}

impl Spectator {
    /// Watches until nobody listens any more, or nothing may be seen.
    async fn watch(mut self, opened: Opened) {
        let mut opened = Some(opened);
        loop {
            let Err((number, failure)) = self.watch_once(&mut opened).await;
            if let Some(opened) = opened.take() {
                let _ = opened.send(Err(failure));
                return;
            }
            tracing::debug!(failure = failure.message(), "events may be missed");
            if failure.kind() == ErrorKind::Permission {
                return;
            }
            self.feed.miss();
            self.store.link.give_up(number);
        }
    }

    async fn watch_once(
        &mut self,
        opened: &mut Option<Opened>,
    ) -> Result<std::convert::Infallible, (u64, Failure)> {
        let (number, connection) = match opened {
            Some(_) => self.store.link.current().await.map_err(|failure| (0, failure))?,
            None => self.store.link.wait().await,
        };
        let failed = |failure| (number, failure);
        let span = self.store.space.span();
        // A token that is too old is found by a question, and not by a watch.
        self.store.link.range(range(&span, 1)).await.map_err(failed)?;
        let mut stream = connection.watch();
        let create = WatchOp::Create(WatchCreateRequest {
            key: span.from.clone(),
            range_end: span.to.clone(),
            prev_kv: true,
            ..WatchCreateRequest::default()
        });
        let _ = stream.questions.send(WatchRequest { request: Some(create) });
        let mut early = Vec::new();
        while !next(&mut stream).await.map_err(failed)?.created {}
        let store = Arc::clone(&self.store);
        let span = store.space.span_of_all("");
        let loading = store.read_all(&span);
        tokio::pin!(loading);
        let (kvs, revision) = loop {
            tokio::select! {
                loaded = &mut loading => break loaded.map_err(failed)?,
                answer = next(&mut stream) => early.extend(answer.map_err(failed)?.events),
            }
        };
        self.load(&kvs);
        if let Some(opened) = opened.take() {
            let _ = opened.send(Ok(()));
        }
        for event in early {
            if event.kv.as_ref().is_some_and(|kv| kv.mod_revision > revision) {
                self.tell(&event).await;
            }
        }
        loop {
            for event in next(&mut stream).await.map_err(failed)?.events {
                self.tell(&event).await;
            }
        }
    }

    fn load(&mut self, kvs: &[KeyValue]) {
        let mut entries: HashMap<LockName, Vec<Entry>> = HashMap::new();
        for (name, entry) in kvs.iter().filter_map(|kv| self.store.read_claim(kv)) {
            entries.entry(name).or_default().push(entry);
        }
        self.lines = entries.into_iter().map(|(name, it)| (name, Line::of(it))).collect();
    }

    async fn tell(&mut self, event: &Event) {
        let Some(kv) = &event.kv else { return };
        if let Some(name) = self.store.space.read_value(&kv.key) {
            // What the server deletes has ended.
            if values::is_change(kv) {
                let (at, kind) = (wall_clock(), WatchKind::Changed);
                self.feed.offer(WatchEvent::new(at, name, kind));
            }
            return;
        }
        if event.kind == i32::from(EventType::Delete) {
            return self.tell_end(kv, event.prev_kv.as_ref()).await;
        }
        let Some((name, entry)) = self.store.read_claim(kv) else { return };
        let is_new = kv.create_revision == kv.mod_revision;
        let is_quiet = entry.is_trying();
        let queued = entry.clone();
        let line = self.lines.entry(name.clone()).or_default();
        let granted: Vec<Entry> = line
            .put(entry, Moment::now())
            .into_iter()
            .filter_map(|(_, key)| line.find(&key).cloned())
            .collect();
        if is_new && granted.is_empty() && !is_quiet {
            self.offer(&name, WatchKind::Queued, &queued, false);
        }
        granted.iter().for_each(|entry| self.offer(&name, WatchKind::Granted, entry, true));
    }

    async fn tell_end(&mut self, kv: &KeyValue, last: Option<&KeyValue>) {
        let Some((name, maker)) = self.store.space.read(&kv.key) else { return };
        if maker == Maker::Nobody {
            return;
        }
        let Some(line) = self.lines.get_mut(&name) else { return };
        let Some((entry, was_granted, granted)) = line.remove(&kv.key, Moment::now()) else {
            return;
        };
        let granted: Vec<Entry> =
            granted.into_iter().filter_map(|(_, key)| line.find(&key).cloned()).collect();
        if line.is_empty() {
            self.lines.remove(&name);
        }
        if was_granted {
            let last = last.and_then(|kv| Entry::read(&self.store.space, &name, kv));
            let kind = self.kind_of_end(&last.unwrap_or(entry.clone())).await;
            self.offer(&name, kind, &entry, true);
        } else if !entry.is_trying() {
            self.offer(&name, WatchKind::Abandoned, &entry, false);
        }
        granted.iter().for_each(|entry| self.offer(&name, WatchKind::Granted, entry, true));
    }

    /// Whether a holder gave it back: then the lease that it hung on is still there.
    async fn kind_of_end(&self, entry: &Entry) -> WatchKind {
        match entry.record.as_ref().map(|record| &record.state) {
            Some(State::Revoked { .. }) => return WatchKind::Revoked,
            Some(State::Expired) => return WatchKind::Expired,
            _ => {}
        }
        let lease = entry.lease;
        let left = self.store.link.time_to_live(lease).await;
        match left {
            Ok(left) if left.ttl < 0 => WatchKind::Expired,
            _ => WatchKind::Released,
        }
    }

    fn offer(&mut self, name: &LockName, kind: WatchKind, entry: &Entry, with_fence: bool) {
        let is_ours = entry.holder.is_some() && with_fence;
        self.feed.offer(
            WatchEvent::new(wall_clock(), name.clone(), kind)
                .with_fence(is_ours.then(|| fence_of(entry.revision).ok()).flatten())
                .with_label(entry.record.as_ref().and_then(|record| record.label.clone())),
        );
    }
}

/// The next message of the stream, unless the server has ended it.
async fn next(stream: &mut Stream<WatchRequest, WatchResponse>) -> Result<WatchResponse, Failure> {
    let answer = stream.next().await?;
    if !answer.canceled {
        return Ok(answer);
    }
    let message = format!("the server says: {}", answer.cancel_reason);
    Err(match answer.cancel_reason.contains("permission denied") {
        true => Failure::new(
            ErrorKind::Permission,
            format!("{message}; the right to read every key under the option prefix is needed"),
        ),
        false => Failure::new(ErrorKind::Unreachable, message),
    })
}
