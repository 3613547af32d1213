//! Those who wait at a store that tells by a push whose turn it is, so that nobody polls; but each
//! looks by itself when what is in its way ends by itself, and once in a while in case a push was
//! lost. What a push looks like, and what is asked when somebody looks, is the store's.

mod take;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

pub use self::take::{Purpose, Take};
use crate::holder::HolderId;
use crate::jitter::jitter;
use crate::name::LockName;
use crate::request::Wait;
use crate::time::{ClockPair, Moment};

/// A lock is free one tick of the server's clock after its time is up.
pub const TICK: Duration = Duration::from_millis(1);
/// For how long a wait goes on while the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many offers may wait for their claims, and for how long: their questions are answered then.
const EARLY_MAX: usize = 4096;
const EARLY_AGE_MAX: Duration = Duration::from_secs(5);
/// How often whoever tends an empty lobby looks into it.
const IDLE: Duration = Duration::from_secs(3600);
/// All who are not the first of their lock in this process look once in so long, taken together:
/// a long line must not cost more than a short one.
const LOOK_GAP: Duration = Duration::from_millis(20);
/// When whoever has become the first of its lock in this process looks: it has to learn how long
/// what is in its way lasts. In a line that moves fast its turn comes before that.
const PROMOTED: Duration = Duration::from_secs(1);

/// A claim that can wait.
pub trait Claim {
    /// What those who ask for it are told.
    type Told;
    /// How a push calls it: by its holder, unless somebody could read that.
    type Call: Copy + Eq + Hash;
    /// What a push brings it.
    type Offer;
    /// How often it looks although nobody told it to.
    const POLL: Duration;

    /// Whose it is.
    fn holder(&self) -> HolderId;

    /// Which lock it wants.
    fn name(&self) -> &LockName;

    /// How it is called.
    fn call(&self) -> Self::Call;

    /// For how long it may wait.
    fn wait(&self) -> Wait;
}

/// What the server said of a claim that waits.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// How long what is in its way lasts if nobody does anything, if the server told. Of those who
    /// wait for one lock in this process only the first looks then: it is the first that can be
    /// served, and whoever is ahead of it elsewhere may be dead.
    pub blocked: Option<Duration>,
    /// The server's clock, if it told.
    pub now_us: Option<u64>,
}

/// A claim that waits, and whoever asked for it.
pub struct Waiter<C: Claim> {
    /// What it waits for.
    pub claim: Arc<C>,
    /// Who is to be told.
    pub askers: Vec<oneshot::Sender<C::Told>>,
    /// The clocks when it was last heard of, if the server told.
    pub clock: Option<ClockPair>,
    /// Its place among those who wait here for the same lock.
    number: u64,
    until: Option<Moment>,
    /// Whether its time is up, so that it must not join the queue again: the next answer ends the
    /// wait, whatever it is.
    is_leaving: bool,
    due_ns: u64,
    /// When it was told to look, unless it has looked since.
    told_to_look_at: Option<Moment>,
    failing_since: Option<Moment>,
}

/// What came, on another connection, before the answer that a claim waits.
struct Early<O> {
    offer: Option<O>,
    look_at: Option<Moment>,
    came: Moment,
}

/// All who wait.
pub struct Lobby<C: Claim> {
    room: Mutex<Room<C>>,
    changed: Notify,
}

struct Room<C: Claim> {
    poll: Duration,
    waiters: HashMap<HolderId, Waiter<C>>,
    calls: HashMap<C::Call, HolderId>,
    early: HashMap<C::Call, Early<C::Offer>>,
    due: BTreeSet<(u64, HolderId)>,
    /// Who waits for which lock, in the order in which they came.
    lines: HashMap<LockName, BTreeMap<u64, HolderId>>,
    next_number: u64,
    /// When whoever tends the lobby looks next.
    looks_at_ns: u64,
    /// When everybody was told to look.
    roused: Option<Moment>,
}

impl Place {
    fn clock(self, sent: Moment) -> Option<ClockPair> {
        self.now_us.map(|server_us| ClockPair { sent, server_us })
    }
}

impl<O> Early<O> {
    fn is_of_use(&self, now: Moment) -> bool {
        now.since(self.came) < EARLY_AGE_MAX
    }
}

impl<C: Claim> Waiter<C> {
    /// Forgets those who do not ask any more. Returns whether somebody does.
    pub fn is_wanted(&mut self) -> bool {
        self.askers.retain(|asker| !asker.is_closed());
        !self.askers.is_empty()
    }
}

impl<C: Claim> Default for Lobby<C> {
    fn default() -> Self {
        let room = Room {
            poll: C::POLL,
            waiters: HashMap::new(),
            calls: HashMap::new(),
            early: HashMap::new(),
            due: BTreeSet::new(),
            lines: HashMap::new(),
            next_number: 0,
            looks_at_ns: 0,
            roused: None,
        };
        Self { room: Mutex::new(room), changed: Notify::new() }
    }
}

impl<C: Claim> Lobby<C> {
    /// Lets everybody look so often from now on, [`Claim::POLL`] or not.
    pub fn set_poll(&self, poll: Duration) {
        self.lock().poll = poll;
        self.rouse();
    }

    fn lock(&self) -> MutexGuard<'_, Room<C>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a claim wait, as the server answered to what was `sent` then. Whoever waits for the
    /// same holder already waits with it. Returns the offer that came already.
    pub fn enter(
        &self,
        claim: Arc<C>,
        asker: oneshot::Sender<C::Told>,
        place: Place,
        sent: Moment,
    ) -> Option<C::Offer> {
        let now = Moment::now();
        let (holder, call, until) = (claim.holder(), claim.call(), claim.wait().until());
        let mut room = self.lock();
        let early = room.early.remove(&call).filter(|early| early.is_of_use(now));
        let mut askers = self.remove_askers(&mut room, holder);
        askers.push(asker);
        let number = room.next_number;
        room.next_number += 1;
        room.lines.entry(claim.name().clone()).or_default().insert(number, holder);
        let waiter = Waiter {
            claim,
            askers,
            clock: place.clock(sent),
            number,
            until,
            is_leaving: false,
            due_ns: 0,
            told_to_look_at: room.owed(sent).or(early.as_ref().and_then(|early| early.look_at)),
            failing_since: None,
        };
        room.waiters.insert(holder, waiter);
        room.calls.insert(call, holder);
        let due = room.plan(holder, place.blocked, now);
        self.schedule(&mut room, holder, due);
        early.and_then(|early| early.offer)
    }

    /// A look has shown that the claim still waits.
    pub fn stay(&self, holder: HolderId, place: Place, sent: Moment) {
        let mut room = self.lock();
        let owed = room.owed(sent);
        let Some(waiter) = room.waiters.get_mut(&holder) else { return };
        waiter.clock = place.clock(sent);
        waiter.failing_since = None;
        waiter.told_to_look_at = owed.or(waiter.told_to_look_at);
        let due = room.plan(holder, place.blocked, Moment::now());
        self.schedule(&mut room, holder, due);
    }

    /// Lets a claim look after this time, if not before. One that is not there may come yet; and the
    /// answer to a look that is under way does not put it off.
    pub fn hasten(&self, call: C::Call, after: Duration) {
        let due = Moment::now() + after;
        let mut room = self.lock();
        let Some(holder) = room.calls.get(&call).copied() else {
            room.note_early(call, |early| early.look_at = Some(due));
            return;
        };
        let Some(waiter) = room.waiters.get_mut(&holder) else { return };
        waiter.told_to_look_at = Some(waiter.told_to_look_at.map_or(due, |at| at.earlier_of(due)));
        if due.host_ns() < waiter.due_ns {
            self.schedule(&mut room, holder, due);
        }
    }

    /// What was asked has its answer, and waits no longer. Returns whom to tell: nobody when a push
    /// was faster, or the caller gave up and releases it.
    pub fn settle(&self, holder: HolderId, purpose: Purpose<C>) -> Vec<oneshot::Sender<C::Told>> {
        match purpose {
            Purpose::First(asker) => vec![asker],
            Purpose::Look | Purpose::Last => self.remove_askers(&mut self.lock(), holder),
        }
    }

    /// What was asked brought no answer. Returns whom to tell: of a look, nobody unless that does
    /// not pass, or has not for long.
    pub fn miss(&self, take: Take<C>, is_passing: bool) -> Vec<oneshot::Sender<C::Told>> {
        let Take { claim, purpose, .. } = take;
        let holder = claim.holder();
        if !matches!(purpose, Purpose::Look) {
            return self.settle(holder, purpose);
        }
        let now = Moment::now();
        let mut room = self.lock();
        let Some(waiter) = room.waiters.get_mut(&holder) else { return Vec::new() };
        let since = *waiter.failing_since.get_or_insert(now);
        if !is_passing || now.since(since) > PATIENCE {
            return self.remove_askers(&mut room, holder);
        }
        let due = room.plan(holder, None, now);
        self.schedule(&mut room, holder, due);
        Vec::new()
    }

    /// Takes a claim out, because its turn has come or nobody wants it any more.
    pub fn take(&self, holder: HolderId) -> Option<Waiter<C>> {
        self.remove(&mut self.lock(), holder)
    }

    /// Takes out the claim that an offer is for. One that is not there may come yet, and will find
    /// the offer.
    pub fn take_called(&self, call: C::Call, offer: C::Offer) -> Option<Waiter<C>> {
        let mut room = self.lock();
        if let Some(holder) = room.calls.get(&call).copied() {
            return self.remove(&mut room, holder);
        }
        room.note_early(call, |early| early.offer = Some(offer));
        None
    }

    /// The claim of a holder that waits.
    pub fn find(&self, holder: HolderId) -> Option<Arc<C>> {
        self.lock().waiters.get(&holder).map(|waiter| Arc::clone(&waiter.claim))
    }

    /// Whether this very claim waits.
    pub fn has(&self, claim: &Arc<C>) -> bool {
        self.find(claim.holder()).is_some_and(|waiting| Arc::ptr_eq(&waiting, claim))
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.lock().waiters.is_empty()
    }

    /// Everybody looks now: pushes may have been lost. So does, as soon as it waits, whoever was asked
    /// for before this.
    pub fn rouse(&self) {
        let now = Moment::now();
        let now_ns = now.host_ns();
        let mut room = self.lock();
        room.roused = Some(now);
        let Room { waiters, due, looks_at_ns, .. } = &mut *room;
        due.clear();
        for (holder, waiter) in waiters.iter_mut() {
            waiter.due_ns = now_ns;
            due.insert((now_ns, *holder));
        }
        *looks_at_ns = now_ns;
        self.changed.notify_one();
    }

    /// Takes a claim out. Whoever is then the first of its lock has to look for all behind it.
    fn remove(&self, room: &mut Room<C>, holder: HolderId) -> Option<Waiter<C>> {
        let waiter = room.remove(holder)?;
        if let Some(first) = room.first_of(waiter.claim.name()) {
            let due = Moment::now() + PROMOTED;
            if room
                .waiters
                .get(&first)
                .is_some_and(|first| first.number > waiter.number && due.host_ns() < first.due_ns)
            {
                self.schedule(room, first, due);
            }
        }
        Some(waiter)
    }

    fn remove_askers(&self, room: &mut Room<C>, holder: HolderId) -> Vec<oneshot::Sender<C::Told>> {
        self.remove(room, holder).map_or_else(Vec::new, |waiter| waiter.askers)
    }

    fn schedule(&self, room: &mut Room<C>, holder: HolderId, due: Moment) {
        let due_ns = due.host_ns();
        let Some(waiter) = room.waiters.get_mut(&holder) else { return };
        room.due.remove(&(waiter.due_ns, holder));
        waiter.due_ns = due_ns;
        room.due.insert((due_ns, holder));
        if due_ns < room.looks_at_ns {
            room.looks_at_ns = due_ns;
            self.changed.notify_one();
        }
    }

    /// Who has to ask, because it looks or its wait is over, each planned again in case no answer
    /// comes; and when the next will be. Whoever dropped its request is forgotten and not released:
    /// it may have asked again, and been granted what a release would take from it.
    pub fn take_due(&self, now: Moment) -> (Vec<Take<C>>, Option<Moment>) {
        let mut found = Vec::new();
        let mut room = self.lock();
        while let Some((due_ns, holder)) = room.due.first().copied()
            && due_ns <= now.host_ns()
        {
            room.due.pop_first();
            let Some(waiter) = room.waiters.get_mut(&holder) else { continue };
            if !waiter.is_wanted() {
                self.remove(&mut room, holder);
                continue;
            }
            waiter.is_leaving |= waiter.until.is_some_and(|until| until.has_passed(now));
            waiter.told_to_look_at = waiter.told_to_look_at.filter(|at| !at.has_passed(now));
            let purpose = if waiter.is_leaving { Purpose::Last } else { Purpose::Look };
            let claim = Arc::clone(&waiter.claim);
            found.push(Take { claim, purpose, tries: 0 });
            let next = room.plan(holder, None, now);
            self.schedule(&mut room, holder, next);
        }
        let next_ns = room.due.first().map(|(due_ns, _)| *due_ns);
        room.looks_at_ns = next_ns.unwrap_or(u64::MAX);
        (found, next_ns.map(Moment::from_host_ns))
    }

    /// Tends the lobby for ever, on a tokio runtime: hands whatever is due to `submit`.
    ///
    /// # Cancel safety
    /// Safe: those who wait are tended by whoever does it next.
    pub async fn tend(&self, submit: impl Fn(Vec<Take<C>>)) {
        loop {
            let (due, next) = self.take_due(Moment::now());
            if !due.is_empty() {
                submit(due);
                continue;
            }
            let wait = next.map_or(IDLE, |next| next.remaining(Moment::now()));
            // Either way it is time to look again.
            let _ = tokio::time::timeout(wait, self.changed.notified()).await;
        }
    }
}

impl<C: Claim> Room<C> {
    /// When a waiter looks next.
    fn plan(&self, holder: HolderId, blocked: Option<Duration>, now: Moment) -> Moment {
        let Some(waiter) = self.waiters.get(&holder) else { return now + self.poll };
        let is_first = self.first_of(waiter.claim.name()) == Some(holder);
        let rest = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let poll = if is_first { self.poll } else { self.poll.max(LOOK_GAP * rest) };
        let mut due = now + poll.mul_f64(1.0 + 0.2 * jitter());
        if let (true, Some(blocked)) = (is_first, blocked) {
            due = due.earlier_of(now + blocked + TICK);
        }
        if let Some(told) = waiter.told_to_look_at {
            due = due.earlier_of(told);
        }
        match waiter.until {
            Some(until) if !waiter.is_leaving => due.earlier_of(until),
            _ => due,
        }
    }

    /// When a claim should have looked whose answer tells of the time before everybody was told to: a
    /// push may have come after what was sent then, and be lost.
    fn owed(&self, sent: Moment) -> Option<Moment> {
        self.roused.filter(|roused| sent.has_passed(*roused))
    }

    /// Keeps what came for a claim that is not there.
    fn note_early(&mut self, call: C::Call, note: impl FnOnce(&mut Early<C::Offer>)) {
        let came = Moment::now();
        if self.early.len() >= EARLY_MAX {
            self.early.retain(|_, early| early.is_of_use(came));
        }
        if self.early.len() < EARLY_MAX || self.early.contains_key(&call) {
            let nothing = Early { offer: None, look_at: None, came };
            let early = self.early.entry(call).or_insert(nothing);
            early.came = came;
            note(early);
        }
    }

    /// Who has waited longest for a lock in this process.
    fn first_of(&self, name: &LockName) -> Option<HolderId> {
        let (_, holder) = self.lines.get(name)?.first_key_value()?;
        Some(*holder)
    }

    fn remove(&mut self, holder: HolderId) -> Option<Waiter<C>> {
        let waiter = self.waiters.remove(&holder)?;
        self.calls.remove(&waiter.claim.call());
        self.due.remove(&(waiter.due_ns, holder));
        if let Some(line) = self.lines.get_mut(waiter.claim.name()) {
            line.remove(&waiter.number);
            if line.is_empty() {
                self.lines.remove(waiter.claim.name());
            }
        }
        Some(waiter)
    }
}

impl<C: Claim> fmt::Debug for Lobby<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lobby").finish_non_exhaustive()
    }
}

impl<C: Claim> fmt::Debug for Waiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "lobby_test.rs"]
mod tests;
