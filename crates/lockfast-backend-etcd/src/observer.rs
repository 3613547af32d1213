//! One stream of watches, by which this process hears of the locks that it waits for and of the
//! end of those that it has. It is opened anew when it breaks, and what was missed is looked at.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{ErrorKind, HolderId, LockName, LossCause, Mode, Moment};
use tokio::sync::mpsc;

use crate::batch::range;
use crate::claim::Claim;
use crate::failure::{self, Failure};
use crate::key::Span;
use crate::line::{Entry, Line, Place};
use crate::record::{Record, State};
use crate::store::Store;
use crate::watches::{Subject, View};
use crate::wire::{
    Event, EventType, KeyValue, RangeRequest, RangeResponse, Stream, WatchOp, WatchRequest,
    WatchResponse,
};

const PAUSE: Duration = Duration::from_millis(100);
/// How many keys that are gone are asked why; more than that were lost together.
const WHY_MAX: usize = 16;
/// How many of a process in one line are many.
const CROWD: usize = 16;
/// How often a line is looked at because many wait in it.
const CROWD_EVERY: Duration = Duration::from_secs(1);

impl Store {
    /// Listens, for ever.
    pub(crate) async fn observe(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<WatchOp>) {
        loop {
            let (number, connection) = self.link.wait().await;
            let stream = connection.watch();
            drop(connection);
            // What was to be sent over the last stream is sent anew below.
            while commands.try_recv().is_ok() {}
            self.watches.renew_all(&self);
            let ended = self.listen(number, stream, &mut commands).await;
            self.watches.forget_views();
            if let Err(failure) = ended {
                tracing::debug!(failure = failure.message(), "nothing is heard of locks");
                self.link.give_up(number);
                self.link.ended(number).await;
            }
        }
    }

    /// Serves one stream, until it breaks or has to be opened anew on the same connection.
    async fn listen(
        self: &Arc<Self>,
        number: u64,
        mut stream: Stream<WatchRequest, WatchResponse>,
        commands: &mut mpsc::UnboundedReceiver<WatchOp>,
    ) -> Result<(), Failure> {
        let ended = self.link.ended(number);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                answer = stream.next() => self.hear(answer?),
                command = commands.recv() => {
                    let request = Some(command.ok_or_else(failure::of_closing)?);
                    let _ = stream.questions.send(WatchRequest { request });
                },
                () = self.watches.stale.notified() => return Ok(()),
                () = self.watches.silent.notified() => {
                    let config = self.link.dialer.config();
                    return Err(failure::of_silence(&config.shown(), config.request_timeout));
                },
                () = &mut ended => return Err(failure::of_closing()),
            }
        }
    }

    /// Takes note of what the stream brought.
    fn hear(self: &Arc<Self>, answer: WatchResponse) {
        let number = match answer.created {
            true => self.watches.answered(answer.watch_id),
            false => answer.watch_id,
        };
        let Some(subject) = self.watches.subject(number) else { return };
        if answer.canceled {
            return self.watch_ended(subject, number, answer.cancel_reason);
        }
        if answer.created {
            match &subject {
                Subject::Line(name) => self.load(name.clone(), number),
                Subject::Key(key) => self.watches.look_soon(key.clone(), number),
            }
        }
        match &subject {
            Subject::Line(name) => self.take_in(name, number, answer.events),
            Subject::Key(_) => answer.events.iter().for_each(|event| self.take_in_end(event)),
        }
    }

    /// A watch was ended by the server: it was too slow, or is not allowed.
    fn watch_ended(self: &Arc<Self>, subject: Subject, number: i64, reason: String) {
        let store = Arc::clone(self);
        tokio::spawn(async move {
            if reason.contains("permission denied") || reason.contains("auth") {
                // Of a token that is too old, some servers say the one and some the other.
                match store.may_watch(&subject).await {
                    Ok(()) if store.watches.subject(number).is_some() => {
                        return store.watches.stale.notify_one();
                    }
                    Err(failure) if failure.kind() == ErrorKind::Permission => {
                        return store.watch_refused(&subject, failure);
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            tracing::debug!(reason, "a watch has ended");
            tokio::time::sleep(PAUSE).await;
            store.watches.renew(&store, number);
        });
    }

    /// Whether we have the right to watch something, which is that to read it.
    async fn may_watch(&self, subject: &Subject) -> Result<(), Failure> {
        let span = match subject {
            Subject::Line(name) => self.space.span_of(name),
            Subject::Key(key) => Span { from: key.clone(), to: Vec::new() },
        };
        self.link.range(range(&span, 1)).await.map(|_| ())
    }

    fn watch_refused(self: &Arc<Self>, subject: &Subject, failure: Failure) {
        match subject {
            Subject::Line(name) => {
                self.watches.refuse(name, failure);
                self.claims.of_lock(name).iter().for_each(|(_, claim)| claim.signal.notify_one());
            }
            // Renewals look at it.
            Subject::Key(key) => self.watches.close_key(key),
        }
    }

    /// Looks at the keys whose watches are there now: one that is gone by then is not heard of.
    pub(crate) fn look_at_watched_keys(self: &Arc<Self>) {
        let unsure = self.watches.take_unsure();
        if unsure.is_empty() {
            return;
        }
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let keys: Vec<_> =
                unsure.iter().map(|(key, _, revision)| (key.clone(), *revision)).collect();
            let Ok(seen) = store.look_at_keys(&keys).await else {
                // Until then renewals look at them.
                tokio::time::sleep(PAUSE).await;
                unsure
                    .into_iter()
                    .for_each(|(key, number, _)| store.watches.look_soon(key, number));
                return;
            };
            let looked = unsure.into_iter().zip(seen).filter(|(_, is_there)| !is_there);
            let gone: Vec<_> = looked.map(|((key, _, revision), _)| (key, revision)).collect();
            let asks_why = gone.len() <= WHY_MAX;
            for (key, revision) in gone {
                let cause = match asks_why {
                    true => store.why_gone(&key, revision).await,
                    false => LossCause::Forgotten,
                };
                store.lose(&key, revision, cause);
            }
        });
    }

    /// Closes the lines that nobody waits in, and looks at those of which nothing was heard for long.
    pub(crate) fn check_lines(self: &Arc<Self>, now: Moment) {
        for (name, number) in self.watches.sort_lines(self, now) {
            self.load(name, number);
        }
    }

    /// Looks at a line in which many of this process wait, so that it need not be asked for each of them
    /// who is ahead.
    pub(crate) fn look_if_crowded(self: &Arc<Self>, name: &LockName) {
        if self.claims.count_of_lock(name) > CROWD {
            self.look_now(name, CROWD_EVERY);
        }
    }

    /// Looks at a line unless that was done just before.
    pub(crate) fn look_now(self: &Arc<Self>, name: &LockName, gap: Duration) {
        if let Some(number) = self.watches.look_now(name, Moment::now(), gap) {
            self.load(name.clone(), number);
        }
    }

    /// Looks at a line whose watch is there.
    fn load(self: &Arc<Self>, name: LockName, number: i64) {
        let store = Arc::clone(self);
        self.context.runtime.spawn(async move {
            while store.watches.subject(number).is_some() && !store.crew().is_closed() {
                let sent = Moment::now();
                match store.read_line(&name).await {
                    Ok(found) => {
                        let revision = found.header.as_ref().map_or(0, |header| header.revision);
                        store.pulses.note(sent, revision);
                        return store.loaded(&name, number, &found, revision);
                    }
                    Err(failure) => {
                        let failure = failure.message();
                        tracing::debug!(failure, "a line could not be looked at");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        });
    }

    /// All keys of a lock.
    pub(crate) async fn read_line(&self, name: &LockName) -> Result<RangeResponse, Failure> {
        let span = self.space.span_of(name);
        self.link.range(range(&span, 0)).await
    }

    /// All keys of a lock as they were at a revision.
    pub(crate) async fn read_line_at(
        &self,
        name: &LockName,
        revision: i64,
    ) -> Result<RangeResponse, Failure> {
        let span = self.space.span_of(name);
        self.link.range(RangeRequest { revision, ..range(&span, 0) }).await
    }

    /// What a line was like at a revision; what came since is in its events.
    fn loaded(self: &Arc<Self>, name: &LockName, number: i64, found: &RangeResponse, at: i64) {
        let entries = found.kvs.iter().filter_map(|kv| Entry::read(&self.space, name, kv));
        let mut line = Line::of(entries);
        line.prove(at, Moment::now());
        // Whoever was here before that and is not in it, is gone.
        for (_, claim) in self.claims.of_lock(name) {
            let is_there = line.find(&claim.key).is_some_and(|it| it.revision == claim.revision);
            if claim.revision <= at && !is_there {
                self.lose(&claim.key, at, LossCause::Forgotten);
            }
        }
        let is_misplaced = |(_, claim): &(HolderId, Claim)| {
            claim.mode != Mode::Exclusive && line.check_use(claim.mode, claim.revision).is_err()
        };
        let misplaced: Vec<(HolderId, Claim)> =
            self.claims.of_lock(name).into_iter().filter(is_misplaced).collect();
        let present: Vec<Place> = line.granted().map(Entry::place).collect();
        self.claims.call(&present, None);
        let early = self.watches.change_line(name, number, |view| match view {
            // More is known already, but the end of a claim may not have been told.
            View::Open { known, line: known_line, .. } if *known > at => {
                let granted = known_line.remove_missing(&line, at, Moment::now());
                if known_line.misses_nobody_of(&line) {
                    known_line.prove(at, Moment::now());
                }
                self.claims.call(&granted, None);
                Vec::new()
            }
            // It is as it is known, or something was not told.
            View::Open { line: known_line, .. } if known_line.is_like(&line) => {
                known_line.prove(at, Moment::now());
                Vec::new()
            }
            View::Open { .. } | View::Opening(_) => {
                let open = View::Open { line, read: at, known: at };
                match std::mem::replace(view, open) {
                    View::Opening(early) => early,
                    View::Open { .. } => Vec::new(),
                }
            }
        });
        self.take_in(name, number, early.unwrap_or_default());
        // Now that the line is known, they go by themselves.
        misplaced.iter().for_each(|(_, claim)| claim.signal.notify_one());
    }

    /// Takes in what happened to a line.
    fn take_in(&self, name: &LockName, number: i64, events: Vec<Event>) {
        self.watches.change_line(name, number, |view| match view {
            View::Opening(early) => early.extend(events),
            View::Open { line, read, known } => {
                for event in events {
                    let revision = revision_of(&event);
                    if revision > *read {
                        *known = revision.max(*known);
                        self.take_in_event(name, line, &event);
                    }
                }
            }
        });
    }

    fn take_in_event(&self, name: &LockName, line: &mut Line, event: &Event) {
        let Some(kv) = &event.kv else { return };
        let now = Moment::now();
        let granted = if event.kind == i32::from(EventType::Delete) {
            self.take_in_end(event);
            line.remove(&kv.key, now).map(|(_, _, granted)| granted).unwrap_or_default()
        } else {
            match Entry::read(&self.space, name, kv) {
                Some(entry) => line.put(entry, now),
                None => return,
            }
        };
        self.claims.call(&granted, Some(kv.mod_revision));
    }

    /// If a key of ours was deleted, and not by us, its holder is told.
    fn take_in_end(&self, event: &Event) {
        let Some(kv) = event.kv.as_ref().filter(|_| event.kind == i32::from(EventType::Delete))
        else {
            return;
        };
        self.lose(&kv.key, kv.mod_revision, cause_of_end(event.prev_kv.as_ref()));
    }

    /// A key is gone. What else hung on its lease may be gone too.
    fn lose(&self, key: &[u8], revision: i64, cause: LossCause) {
        if let Some(session) = self.claims.lose(key, revision, cause)
            && session.is_suspected(Moment::now())
        {
            // The answer is taken note of where it is heard.
            self.ask_about(&session);
        }
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

/// Why a key was deleted, as the last that was written there tells.
pub(crate) fn cause_of_end(last: Option<&KeyValue>) -> LossCause {
    match last.and_then(|kv| Record::read(&kv.value)).map(|record| record.state) {
        Some(State::Revoked { reason }) => LossCause::Revoked { reason },
        _ => LossCause::Forgotten,
    }
}
