//! The memory store's table: every lock's queue, who waits for it, and when it next changes by
//! itself. All of it is used under one mutex; what has to be told to others is collected and done
//! after that.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

use lockfast_core::time::wall_clock;
use lockfast_core::watch::EventFeeds;
use lockfast_core::{
    AcquireRequest, ClientId, ConnectContext, DowngradeOutcome, DowngradeRequest, EventStream,
    Grant, HolderId, Label, LockName, LockView, LossCause, LossReporter, Moment, Query,
    ReleaseOutcome, RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest,
    VersionedValue, WatchEvent, WatchKind, WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;

use crate::claim::{Clock, Effect, Happening, Hold, Stage};
use crate::counter::FenceCounter;
use crate::queue::{Admission, Queue, Revocation};
use crate::values::Values;

/// The store.
#[derive(Debug)]
pub(crate) struct Table {
    locks: BTreeMap<LockName, Entry>,
    values: Values,
    rest: Rest,
}

/// Everything but the queues, apart from them so that both can be borrowed.
#[derive(Debug)]
struct Rest {
    fences: FenceCounter,
    clients: HashMap<ClientId, Client>,
    feeds: EventFeeds,
    /// When the queues that somebody waits in or watches next change by themselves.
    due: BTreeSet<(u64, LockName)>,
    /// When the clock thread will look next.
    looks_at_ns: u64,
    closed: bool,
    effects: Vec<Effect>,
}

#[derive(Debug, Default)]
struct Entry {
    queue: Queue,
    waiters: VecDeque<(HolderId, oneshot::Sender<Grant>)>,
    due_ns: Option<u64>,
}

/// A connection that is open, or that has claims left.
#[derive(Debug)]
struct Client {
    label: Label,
    losses: LossReporter,
    /// A client id may be connected more than once.
    connections: usize,
}

/// What has to be told once the table is free.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) grants: Vec<Delivery>,
    pub(crate) losses: Vec<(LossReporter, HolderId, LossCause)>,
    /// Whether the clock thread sleeps too long.
    pub(crate) ring: bool,
}

/// A grant on its way to a task that waits.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) grant: Grant,
    pub(crate) waiter: oneshot::Sender<Grant>,
}

impl Told {
    pub(crate) fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.losses.is_empty() && !self.ring
    }
}

/// What became of an acquisition.
#[derive(Debug)]
pub(crate) enum Admitted {
    Granted(Grant),
    Taken(LockView),
    /// The grant will arrive here; when it cannot arrive any more, the lock is taken.
    Waiting(oneshot::Receiver<Grant>),
}

impl Default for Table {
    fn default() -> Self {
        Self {
            locks: BTreeMap::new(),
            values: Values::default(),
            rest: Rest {
                fences: FenceCounter::after(0),
                clients: HashMap::new(),
                feeds: EventFeeds::default(),
                due: BTreeSet::new(),
                looks_at_ns: 0,
                closed: false,
                effects: Vec::new(),
            },
        }
    }
}

impl Table {
    /// Notes a new connection.
    pub(crate) fn enter(&mut self, context: ConnectContext) {
        let client = self.rest.clients.entry(context.client);
        client.and_modify(|client| client.connections += 1).or_insert(Client {
            label: context.label,
            losses: context.losses,
            connections: 1,
        });
    }

    /// Forgets a connection, unless claims still need its label.
    pub(crate) fn leave(&mut self, client: ClientId) {
        let Some(known) = self.rest.clients.get_mut(&client) else {
            return;
        };
        known.connections -= 1;
        let claims = || self.locks.values().flat_map(|entry| entry.queue.claims());
        if known.connections == 0 && !claims().any(|claim| claim.client == client) {
            self.rest.clients.remove(&client);
        }
    }

    /// Ends the clock thread.
    pub(crate) fn close(&mut self) {
        self.rest.closed = true;
    }

    pub(crate) fn acquire(
        &mut self,
        client: ClientId,
        request: &AcquireRequest,
        sent: Moment,
        told: &mut Told,
    ) -> Result<Admitted> {
        self.change(&request.name, sent, told, |entry, clock, rest, told| {
            let (fences, effects) = (&mut rest.fences, &mut rest.effects);
            let admission = entry.queue.acquire(client, request, clock, fences, effects)?;
            Ok(match admission {
                Admission::Granted(fence) => {
                    // An earlier request of this holder may still be waiting for the same answer.
                    let grant = Grant::new(fence, sent);
                    let waiters = entry.take_waiters(request.holder);
                    waiters.into_iter().for_each(|waiter| {
                        told.grants.push(Delivery { grant: grant.clone(), waiter });
                    });
                    Admitted::Granted(grant)
                }
                Admission::Taken => Admitted::Taken(entry.view(&request.name, clock.now_ns, rest)),
                Admission::Waiting => {
                    let (sender, granted) = oneshot::channel();
                    entry.waiters.push_back((request.holder, sender));
                    Admitted::Waiting(granted)
                }
            })
        })
    }

    pub(crate) fn renew(
        &mut self,
        batch: &[RenewRequest],
        now: Moment,
        told: &mut Told,
    ) -> Vec<RenewOutcome> {
        let renew_one = |request: &RenewRequest| {
            let renewal = self.change(&request.name, now, told, |entry, clock, _, _| {
                entry.queue.renew(request, clock.now_ns)
            });
            match renewal.loss(|client| self.rest.label(client)) {
                None => RenewOutcome::Renewed,
                Some(cause) => RenewOutcome::Lost(cause),
            }
        };
        batch.iter().map(renew_one).collect()
    }

    pub(crate) fn downgrade(
        &mut self,
        request: &DowngradeRequest,
        now: Moment,
        told: &mut Told,
    ) -> Result<DowngradeOutcome> {
        let downgrade = self.change(&request.name, now, told, |entry, clock, rest, _| {
            let (fences, effects) = (&mut rest.fences, &mut rest.effects);
            entry.queue.downgrade(request.holder, clock, fences, effects)
        })?;
        let loss = downgrade.loss(|client| self.rest.label(client));
        Ok(loss.map_or(DowngradeOutcome::Downgraded, DowngradeOutcome::Lost))
    }

    pub(crate) fn release(
        &mut self,
        name: &LockName,
        holder: HolderId,
        now: Moment,
        told: &mut Told,
    ) -> ReleaseOutcome {
        self.change(name, now, told, |entry, clock, rest, _| {
            let (fences, effects) = (&mut rest.fences, &mut rest.effects);
            entry.queue.release(holder, clock, fences, effects)
        })
    }

    pub(crate) fn revoke(
        &mut self,
        request: &RevokeRequest,
        now: Moment,
        told: &mut Told,
    ) -> RevokeOutcome {
        self.change(&request.name, now, told, |entry, clock, rest, _| {
            let holders = entry.queue.holders(clock.now_ns, |client| rest.label(client));
            let (fences, effects) = (&mut rest.fences, &mut rest.effects);
            match entry.queue.revoke(request, clock, fences, effects) {
                Revocation::Done => RevokeOutcome::Revoked(holders),
                Revocation::NotHeld => RevokeOutcome::NotHeld,
                Revocation::OtherFence => RevokeOutcome::OtherFence(holders),
            }
        })
    }

    pub(crate) fn inspect(&self, query: &Query, now_ns: u64) -> Vec<LockView> {
        let (prefix, after, limit) = match query {
            Query::Name(name) => return vec![self.view(name, now_ns)],
            Query::Prefix { prefix, after, limit } => (prefix.as_str(), after.as_ref(), *limit),
        };
        let start = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        self.locks
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, entry)| entry.view(name, now_ns, &self.rest))
            .filter(|view| view.waiting > 0 || !view.holders.is_empty())
            .take(limit)
            .collect()
    }

    /// One lock as it is, also when nobody wants it.
    pub(crate) fn view(&self, name: &LockName, now_ns: u64) -> LockView {
        match self.locks.get(name) {
            Some(entry) => entry.view(name, now_ns, &self.rest),
            None => Entry::default().view(name, now_ns, &self.rest),
        }
    }

    pub(crate) fn read(&self, name: &LockName, now_ns: u64) -> Option<VersionedValue> {
        self.values.read(name, now_ns)
    }

    pub(crate) fn write(
        &mut self,
        client: ClientId,
        request: WriteRequest,
        now: Moment,
    ) -> WriteOutcome {
        let name = request.name.clone();
        let (outcome, changed) = self.values.write(request, now.host_ns());
        if changed && !self.rest.feeds.is_empty() {
            let event = WatchEvent::new(wall_clock(), name, WatchKind::Changed);
            self.rest.feeds.tell(&event.with_label(self.rest.label(&client)));
        }
        outcome
    }

    /// Opens a stream of events. From now on every lease is looked after, so that its end is told
    /// although nobody waits.
    pub(crate) fn watch(&mut self, told: &mut Told) -> EventStream {
        self.rest.feeds.prune();
        let stream = self.rest.feeds.open();
        for (name, entry) in &mut self.locks {
            self.rest.rearm(name, entry, told);
        }
        stream
    }

    /// Ends what has ended by itself, and tells when to look again; `None` once it is closed.
    pub(crate) fn end_due(&mut self, now: Moment, told: &mut Told) -> Option<u64> {
        while let Some((at_ns, name)) = self.rest.due.first().cloned()
            && at_ns <= now.host_ns()
        {
            self.rest.due.pop_first();
            self.change(&name, now, told, |entry, _, _, _| entry.due_ns = None);
        }
        let next_ns = self.rest.due.first().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        self.rest.looks_at_ns = next_ns;
        (!self.rest.closed).then_some(next_ns)
    }

    /// Brings a queue up to date, changes it, and sees to everything that follows.
    fn change<R>(
        &mut self,
        name: &LockName,
        now: Moment,
        told: &mut Told,
        work: impl FnOnce(&mut Entry, Clock, &mut Rest, &mut Told) -> R,
    ) -> R {
        let clock = Clock::at(now);
        let rest = &mut self.rest;
        let mut place = self.locks.entry(name.clone());
        let mut fresh = Entry::default();
        let entry = match &mut place {
            Place::Occupied(known) => known.get_mut(),
            Place::Vacant(_) => &mut fresh,
        };
        entry.queue.expire(clock, &mut rest.fences, &mut rest.effects);
        let result = work(entry, clock, rest, told);
        if !rest.effects.is_empty() {
            rest.follow_up(name, entry, clock, told);
        }
        rest.rearm(name, entry, told);
        match place {
            Place::Occupied(known) if known.get().queue.is_empty() => {
                known.remove();
            }
            Place::Vacant(free) if !fresh.queue.is_empty() => {
                free.insert(fresh);
            }
            _ => {}
        }
        result
    }
}

impl Entry {
    fn view(&self, name: &LockName, now_ns: u64, rest: &Rest) -> LockView {
        self.queue.view(name, now_ns, |client| rest.label(client))
    }

    /// Takes out whoever waits for this holder's claim: nobody or one, but for a request that was
    /// repeated while it waited.
    fn take_waiters(&mut self, holder: HolderId) -> Vec<oneshot::Sender<Grant>> {
        let mut taken = Vec::new();
        while let Some(at) = self.waiters.iter().position(|(id, _)| *id == holder) {
            taken.extend(self.waiters.remove(at).map(|(_, waiter)| waiter));
        }
        taken
    }

    /// Gives a grant to whoever waits for it. One that stopped waiting keeps what it was granted: it
    /// asks again, perhaps at this moment, or releases it.
    fn pass_on(&mut self, holder: HolderId, hold: Hold, told: &mut Told) {
        let from = Moment::from_host_ns(hold.from_ns);
        for waiter in self.take_waiters(holder) {
            told.grants.push(Delivery { grant: Grant::new(hold.fence, from), waiter });
        }
    }
}

impl Rest {
    fn label(&self, client: &ClientId) -> Option<Label> {
        self.clients.get(client).map(|client| client.label.clone())
    }

    /// Sees to what a change has led to.
    fn follow_up(&mut self, name: &LockName, entry: &mut Entry, clock: Clock, told: &mut Told) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            let holder = effect.claim.holder;
            if !self.feeds.is_empty() {
                let event = effect.event(name, clock.wall_us, self.label(&effect.claim.client));
                event.iter().for_each(|event| self.feeds.tell(event));
            }
            match (effect.what, &effect.claim.stage) {
                (Happening::Granted, Stage::Granted(hold)) => entry.pass_on(holder, *hold, told),
                (Happening::Revoked, Stage::Revoked { reason, .. }) => {
                    if let Some(client) = self.clients.get(&effect.claim.client) {
                        let reason = reason.to_string();
                        let loss = LossCause::Revoked { reason };
                        told.losses.push((client.losses.clone(), holder, loss));
                    }
                }
                (what, _) if what.is_end() => drop(entry.take_waiters(holder)),
                _ => {}
            }
        }
        effects.clear();
        self.effects = effects;
    }

    /// Plans when to look at a queue that somebody waits in or watches.
    fn rearm(&mut self, name: &LockName, entry: &mut Entry, told: &mut Told) {
        let nobody_cares = entry.waiters.is_empty() && self.feeds.is_empty();
        let due_ns = match nobody_cares {
            true => None,
            false => entry.queue.next_end_ns(),
        };
        if due_ns == entry.due_ns {
            return;
        }
        if let Some(planned_ns) = entry.due_ns {
            self.due.remove(&(planned_ns, name.clone()));
        }
        entry.due_ns = due_ns;
        if let Some(due_ns) = due_ns {
            self.due.insert((due_ns, name.clone()));
            if due_ns < self.looks_at_ns {
                self.looks_at_ns = due_ns;
                told.ring = true;
            }
        }
    }
}
