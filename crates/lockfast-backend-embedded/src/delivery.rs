//! After the commit: answers to those who asked, grants to those who waited, in this process and
//! in others, and events to those who watch.

use std::time::{Duration, SystemTime};

use lockfast_core::{
    AcquireOutcome, Error, Grant, HolderId, LockName, LockView, LossCause, Moment, Refusal,
    WatchEvent, WatchKind,
};

use crate::backend::Op;
use crate::batch::{Answer, Chore, Done};
use crate::claim::{Clock, Effect, Happening, Hold, Stage};
use crate::client::{Pipe, Sent};
use crate::failure::{Failure, Scope};
use crate::message::Message;
use crate::queue::{Admission, Queue};
use crate::store::Store;

impl Store {
    /// Sees to everything that follows from a batch that is written.
    pub(crate) fn deliver(&mut self, ops: Vec<Op>, done: Done) {
        // Others wait for a lock; our own callers only for an answer.
        for (name, effect) in &done.effects {
            if effect.claim.client != self.me {
                self.tell_other(name, effect);
            }
        }
        let mut done = done;
        let answers = std::mem::take(&mut done.answers);
        for (op, answer) in ops.into_iter().zip(answers) {
            self.answer(op, answer, done.clock);
        }
        for (name, effect) in &done.effects {
            if effect.claim.client == self.me {
                self.tell_own(name, effect, &done);
            }
        }
        self.chores.extend(done.dead.into_iter().map(Chore::Reap));
        if !self.waiting.is_empty() {
            for (name, queue) in &done.queues {
                self.observe(name, queue);
            }
        }
        self.cache.keep(done.queues, done.meta);
    }

    /// Learns what our waiters of a lock have to look after.
    fn observe(&mut self, name: &LockName, queue: &Queue) {
        self.waiting.observe(name, queue, self.me);
        for client in self.waiting.blockers_of(name) {
            if self.peers.is_dead(&self.clients, *client) {
                self.chores.push(Chore::Reap(*client));
            }
        }
    }

    fn answer(&mut self, op: Op, answer: Answer, clock: Clock) {
        match (op, answer) {
            (Op::Acquire { request, sent, reply }, answer) => {
                let result = match answer {
                    Answer::Admitted(Admission::Waiting) => {
                        self.waiting.add(&request, clock.now_ns, (sent, reply));
                        return;
                    }
                    Answer::Admitted(Admission::Granted(fence)) => {
                        // An earlier request of this holder may wait for the same answer.
                        let earlier = self.waiting.take(&request.name, request.holder);
                        let replies = earlier.into_iter().flat_map(|waiter| waiter.replies);
                        for (sent, reply) in replies {
                            let grant = Grant::new(fence, sent);
                            let _ = reply.send(Ok(AcquireOutcome::Granted(grant)));
                        }
                        Ok(AcquireOutcome::Granted(Grant::new(fence, sent)))
                    }
                    Answer::Taken(lock) => Ok(taken(lock, sent)),
                    Answer::Refused(error) => Err(error),
                    _ => return,
                };
                // Whoever is gone is followed by a release.
                let _ = reply.send(result);
            }
            (Op::Renew { reply, .. }, Answer::Renewed(outcomes)) => {
                let _ = reply.send(Ok(outcomes));
            }
            (Op::Downgrade { reply, .. }, Answer::Downgraded(outcome)) => {
                let _ = reply.send(Ok(outcome));
            }
            (Op::Release { reply, .. }, Answer::Released(outcome)) => {
                let _ = reply.send(Ok(outcome));
            }
            (Op::Inspect { reply, .. }, Answer::Seen(views)) => {
                let _ = reply.send(Ok(views));
            }
            (Op::Revoke { reply, .. }, Answer::Revoked(outcome)) => {
                let _ = reply.send(Ok(outcome));
            }
            (Op::Read { reply, .. }, Answer::Read(value)) => {
                let _ = reply.send(Ok(value));
            }
            (Op::Write { reply, .. }, Answer::Written(outcome)) => {
                let _ = reply.send(Ok(outcome));
            }
            (Op::Watch { reply }, Answer::Watching) => {
                let _ = reply.send(Ok(self.feeds.open()));
            }
            (Op::Close, Answer::Closing) => self.closing = true,
            (op, Answer::Refused(error)) => op.fail(&error.into()),
            (_, answer) => debug_assert!(false, "not an answer to that: {answer:?}"),
        }
    }

    /// Tells another client what happened to its claim.
    fn tell_other(&mut self, name: &LockName, effect: &Effect) {
        let claim = &effect.claim;
        let (name, holder) = (name.clone(), claim.holder);
        let message = match (effect.what, &claim.stage) {
            (Happening::Granted, Stage::Granted(hold)) => Message::Granted {
                name: name.clone(),
                holder,
                fence: hold.fence,
                from_ns: hold.from_ns,
            },
            (Happening::Revoked, Stage::Revoked { reason, .. }) => {
                Message::Revoked { name: name.clone(), holder, reason: reason.to_string() }
            }
            _ => return,
        };
        let sent = self.clients.send(claim.client, Pipe::Wake, &message.encode());
        if sent == Sent::NoReader {
            if effect.what == Happening::Granted {
                // It died while it waited, so the lock goes on to the next at once.
                self.chores.push(Chore::Discard(name, holder));
            }
            self.chores.push(Chore::Reap(claim.client));
        }
    }

    /// Tells this process what happened to its claim.
    fn tell_own(&mut self, name: &LockName, effect: &Effect, done: &Done) {
        let claim = &effect.claim;
        match (effect.what, &claim.stage) {
            (Happening::Granted, Stage::Granted(hold)) => self.grant(name, claim.holder, *hold),
            (Happening::Revoked, Stage::Revoked { reason, .. }) => {
                let reason = reason.to_string();
                self.losses.report(claim.holder, LossCause::Revoked { reason });
            }
            (what, _) if what.is_end() => {
                if let Some(waiter) = self.waiting.take(name, claim.holder) {
                    for (sent, reply) in waiter.replies {
                        let lock = done.view(name, &self.wire);
                        let _ = reply.send(Ok(taken(lock, sent)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Gives a lock to whoever waits for it here. One that stopped waiting keeps what it was granted: it
    /// asks again, perhaps at this moment, or releases it.
    fn grant(&mut self, name: &LockName, holder: HolderId, hold: Hold) {
        let Some(waiter) = self.waiting.take(name, holder) else {
            return;
        };
        let fence = hold.fence;
        let from = Moment::from_host_ns(hold.from_ns);
        for (_, reply) in waiter.replies {
            let _ = reply.send(Ok(AcquireOutcome::Granted(Grant::new(fence, from))));
        }
    }

    /// Understands what other clients wrote to us.
    pub(crate) fn hear(&mut self, received: &mut Vec<u8>) {
        Message::decode_all(received, |message| match message {
            Message::Granted { name, holder, fence, from_ns } => {
                // A grant from before the claim was entered is of an earlier claim.
                let since_ns = self.waiting.since_ns(&name, holder);
                if since_ns.is_some_and(|since_ns| from_ns >= since_ns) {
                    let since_us = 0;
                    self.grant(&name, holder, Hold { fence, from_ns, since_us });
                }
            }
            Message::Revoked { holder, reason, .. } => {
                self.losses.report(holder, LossCause::Revoked { reason });
            }
            Message::Event(event) => self.feeds.tell(&event),
            Message::Missed => self.feeds.miss(),
        });
    }

    /// Tells everybody who watches, here and elsewhere.
    pub(crate) fn tell_watchers(&mut self, done: &Done) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(done.clock.wall_us);
        let changes = done.changed.iter().map(|name| {
            let event = WatchEvent::new(at, name.clone(), WatchKind::Changed);
            event.with_label(Some(self.label.clone()))
        });
        let effects = done.effects.iter().filter_map(|(name, effect)| {
            let label = self.wire.label(&effect.claim.client);
            effect.event(name, done.clock.wall_us, label)
        });
        let events: Vec<WatchEvent> = effects.chain(changes).collect();
        for event in events {
            self.feeds.tell(&event);
            for client in &done.watchers {
                if *client != self.me {
                    self.tell_watcher(*client, event.clone());
                }
            }
        }
    }

    /// Passes an event on; one that did not get all of them is told so before the next.
    fn tell_watcher(&mut self, client: lockfast_core::ClientId, event: WatchEvent) {
        let mut sent = Sent::Done;
        if let Some(at) = self.missed.iter().position(|missed| *missed == client) {
            sent = (self.clients).send(client, Pipe::Watch, &Message::Missed.encode());
            if sent == Sent::Done {
                self.missed.swap_remove(at);
            }
        }
        if sent == Sent::Done {
            let message = Message::Event(event).encode();
            sent = self.clients.send(client, Pipe::Watch, &message);
        }
        match sent {
            Sent::Done => {}
            Sent::Later if self.missed.contains(&client) => {}
            Sent::Later => self.missed.push(client),
            Sent::NoReader => {
                self.missed.retain(|missed| *missed != client);
                self.chores.push(Chore::Reap(client));
            }
        }
    }

    /// Compares every waiter with its queue as it is in the database.
    pub(crate) fn compare_waiters(&mut self) -> Result<(), Failure> {
        let now_ns = Moment::now().host_ns();
        for name in self.waiting.names() {
            let queue = match self.wire.load_queue(&name) {
                Ok(claims) => Queue::of(claims),
                Err(failure) if failure.handling == Scope::Lock => {
                    let holders = self.waiting.holders(&name);
                    holders.into_iter().for_each(|it| self.fail_waiter(&name, it, &failure));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if queue.claims().iter().any(|claim| claim.ends_ns <= now_ns) {
                self.chores.push(Chore::Look(name.clone()));
            }
            let ended = self.waiting.ended(&name, now_ns);
            for holder in self.waiting.holders(&name) {
                self.compare_waiter(&name, holder, &queue, now_ns, ended.contains(&holder));
            }
            self.observe(&name, &queue);
        }
        Ok(())
    }

    /// Answers those whose wait for a lock is over. It is not for others to end a wait, and needs
    /// no turn to write.
    pub(crate) fn end_waits(&mut self, name: &LockName, now_ns: u64) {
        let ended = self.waiting.ended(name, now_ns);
        if ended.is_empty() {
            return;
        }
        match self.read_queue(name) {
            Ok(queue) => {
                for holder in ended {
                    self.compare_waiter(name, holder, &queue, now_ns, true);
                }
            }
            Err(failure) => {
                ended.into_iter().for_each(|holder| self.fail_waiter(name, holder, &failure));
            }
        }
    }

    fn compare_waiter(
        &mut self,
        name: &LockName,
        holder: HolderId,
        queue: &Queue,
        now_ns: u64,
        has_ended: bool,
    ) {
        let stage = queue.find(holder).map(|claim| &claim.stage);
        let result = match stage {
            Some(Stage::Waiting) if !has_ended => return,
            Some(Stage::Granted(hold)) => return self.grant(name, holder, *hold),
            Some(Stage::Revoked { reason, .. }) => Err(reason.to_string()),
            Some(Stage::Waiting) | None => {
                Ok(queue.view(name, now_ns, |client| self.wire.label(client)))
            }
        };
        if stage == Some(&Stage::Waiting) {
            // A batch that was begun before this moment may still grant it.
            self.chores.push(Chore::Discard(name.clone(), holder));
        }
        let Some(waiter) = self.waiting.take(name, holder) else {
            return;
        };
        for (sent, reply) in waiter.replies {
            let _ = reply.send(match &result {
                Ok(lock) => Ok(taken(lock.clone(), sent)),
                Err(reason) => {
                    let reason = reason.clone();
                    Err(Error::lost(name, LossCause::Revoked { reason }))
                }
            });
        }
    }

    /// Tells every waiter that the store cannot be read. Their claims end by release or ttl.
    pub(crate) fn fail_waiters(&mut self, failure: &Failure) {
        for name in self.waiting.names() {
            for holder in self.waiting.holders(&name) {
                self.fail_waiter(&name, holder, failure);
            }
        }
    }

    fn fail_waiter(&mut self, name: &LockName, holder: HolderId, failure: &Failure) {
        let waiter = self.waiting.take(name, holder);
        for (_, reply) in waiter.into_iter().flat_map(|waiter| waiter.replies) {
            let _ = reply.send(Err(failure.to_error().with_lock(name)));
        }
    }
}

fn taken(lock: LockView, sent: Moment) -> AcquireOutcome {
    AcquireOutcome::Taken(Refusal::new(lock, Moment::now().since(sent)))
}
