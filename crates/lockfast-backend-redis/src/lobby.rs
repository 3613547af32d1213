//! Those who wait. A push tells whose turn it is, so nobody polls; but each waiter looks by
//! itself when what is in its way ends by itself, and once in a while in case a push was lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_core::time::ClockPair;
use lockfast_core::{HolderId, Moment};
use tokio::sync::Notify;

use crate::batch::Asker;
use crate::claim::{Answer, Claim, Place};
use crate::wire::Failure;
use crate::wire::link::jitter;

/// How often a waiter looks although nobody told it to.
const POLL: Duration = Duration::from_millis(5500);
/// A lock is free one tick of the server's clock after its time is up.
const TICK: Duration = Duration::from_millis(1);
/// For how long a wait goes on while the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(30);

/// All who wait.
#[derive(Default)]
pub(crate) struct Lobby {
    room: Mutex<Room>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Room {
    waiters: HashMap<HolderId, Waiter>,
    due: BTreeSet<(u64, HolderId)>,
    /// When whoever tends the lobby looks next.
    looks_at_ns: u64,
}

/// A claim that waits, and whoever asked for it.
pub(crate) struct Waiter {
    pub(crate) claim: Arc<Claim>,
    pub(crate) askers: Vec<Asker<Answer>>,
    pub(crate) clock: Option<ClockPair>,
    until: Option<Moment>,
    /// Whether its time is up, so that it must not join the queue again: the next answer ends the
    /// wait, whatever it is.
    is_leaving: bool,
    due_ns: u64,
    failing_since: Option<Moment>,
}

/// What has to be done about a waiter whose time has come.
pub(crate) enum Due {
    Look(Arc<Claim>),
    Last(Arc<Claim>),
    /// Nobody asks any more.
    Gone(Arc<Claim>),
}

impl Waiter {
    /// Forgets those who do not ask any more. Returns whether somebody does.
    pub(crate) fn is_wanted(&mut self) -> bool {
        self.askers.retain(|asker| !asker.is_closed());
        !self.askers.is_empty()
    }

    /// When to look next, knowing its place in the queue.
    fn plan(&self, place: Option<Place>, now: Moment) -> Moment {
        let mut due = now + POLL.mul_f64(1.0 + 0.2 * jitter());
        if let Some(Place { is_head: true, blocked: Some(blocked), .. }) = place {
            due = due.earlier_of(now + blocked + TICK);
        }
        match self.until {
            Some(until) if !self.is_leaving => due.earlier_of(until),
            _ => due,
        }
    }
}

impl Lobby {
    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a claim wait, or joins it if it waits already.
    pub(crate) fn enter(
        &self,
        claim: Arc<Claim>,
        asker: Asker<Answer>,
        place: Option<(Place, Moment)>,
        after: Option<Duration>,
    ) {
        let now = Moment::now();
        let mut room = self.lock();
        let holder = claim.holder;
        let until = claim.wait.until();
        let mut waiter = room.waiters.remove(&holder).unwrap_or(Waiter {
            claim,
            askers: Vec::new(),
            clock: None,
            until,
            is_leaving: false,
            due_ns: 0,
            failing_since: None,
        });
        waiter.until = until;
        waiter.is_leaving = false;
        waiter.askers.push(asker);
        waiter.clock = place.map(|(place, sent)| ClockPair { sent, server_us: place.now_us });
        let mut due = waiter.plan(place.map(|(place, _)| place), now);
        if let Some(after) = after {
            due = due.earlier_of(now + after);
        }
        room.waiters.insert(holder, waiter);
        self.schedule(&mut room, holder, due);
    }

    /// A look has shown that the claim still waits.
    pub(crate) fn stay(&self, holder: HolderId, place: Place, sent: Moment) {
        let mut room = self.lock();
        let Some(waiter) = room.waiters.get_mut(&holder) else { return };
        waiter.clock = Some(ClockPair { sent, server_us: place.now_us });
        waiter.failing_since = None;
        let due = waiter.plan(Some(place), Moment::now());
        self.schedule(&mut room, holder, due);
    }

    /// The claim is the next, and what is in its way lasts so long.
    pub(crate) fn lead(&self, holder: HolderId, blocked: Option<Duration>) {
        let (Some(blocked), mut room) = (blocked, self.lock()) else { return };
        let due = Moment::now() + blocked + TICK;
        if room.waiters.get(&holder).is_some_and(|waiter| due.host_ns() < waiter.due_ns) {
            self.schedule(&mut room, holder, due);
        }
    }

    /// A look brought no answer. After a while its askers are told.
    pub(crate) fn miss(&self, holder: HolderId, failure: &Failure, pause: Option<Duration>) {
        let now = Moment::now();
        let mut room = self.lock();
        let Some(waiter) = room.waiters.get_mut(&holder) else { return };
        let since = *waiter.failing_since.get_or_insert(now);
        let is_passing = failure.retry == lockfast_core::Retry::Later;
        if !is_passing || (pause.is_none() && now.since(since) > PATIENCE) {
            let lost = room.remove(holder);
            drop(room);
            for asker in lost.into_iter().flat_map(|waiter| waiter.askers) {
                let _ = asker.send(Err(failure.clone()));
            }
            return;
        }
        let due = match pause {
            Some(pause) => waiter.plan(None, now).earlier_of(now + pause),
            None => waiter.plan(None, now),
        };
        self.schedule(&mut room, holder, due);
    }

    /// Takes a claim out, because its turn has come or nobody wants it any more.
    pub(crate) fn take(&self, holder: HolderId) -> Option<Waiter> {
        self.lock().remove(holder)
    }

    /// The claim of a holder that waits.
    pub(crate) fn find(&self, holder: HolderId) -> Option<Arc<Claim>> {
        self.lock().waiters.get(&holder).map(|waiter| Arc::clone(&waiter.claim))
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiters.is_empty()
    }

    /// Everybody looks now: pushes may have been lost.
    pub(crate) fn rouse(&self) {
        let now_ns = Moment::now().host_ns();
        let mut room = self.lock();
        let Room { waiters, due, looks_at_ns } = &mut *room;
        due.clear();
        for (holder, waiter) in waiters.iter_mut() {
            waiter.due_ns = now_ns;
            due.insert((now_ns, *holder));
        }
        *looks_at_ns = now_ns;
        self.changed.notify_one();
    }

    fn schedule(&self, room: &mut Room, holder: HolderId, due: Moment) {
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

    /// Tends the lobby for ever: hands whatever is due to `submit`.
    pub(crate) async fn tend(&self, submit: impl Fn(Vec<Due>)) {
        loop {
            let (due, next_ns) = self.lock().take_due(Moment::now());
            if !due.is_empty() {
                submit(due);
                continue;
            }
            let wait = match next_ns {
                Some(next_ns) => Moment::from_host_ns(next_ns).remaining(Moment::now()),
                None => Duration::from_secs(3600),
            };
            // Either way it is time to look again.
            let _ = tokio::time::timeout(wait, self.changed.notified()).await;
        }
    }
}

impl Room {
    fn remove(&mut self, holder: HolderId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&holder)?;
        self.due.remove(&(waiter.due_ns, holder));
        Some(waiter)
    }

    /// What is due, each planned again in case no answer comes, and when the next will be.
    fn take_due(&mut self, now: Moment) -> (Vec<Due>, Option<u64>) {
        let mut found = Vec::new();
        while let Some((due_ns, holder)) = self.due.first().copied()
            && due_ns <= now.host_ns()
        {
            self.due.pop_first();
            let Some(waiter) = self.waiters.get_mut(&holder) else { continue };
            let claim = Arc::clone(&waiter.claim);
            if !waiter.is_wanted() {
                self.waiters.remove(&holder);
                found.push(Due::Gone(claim));
                continue;
            }
            waiter.is_leaving |= waiter.until.is_some_and(|until| until.has_passed(now));
            let is_last = waiter.is_leaving;
            waiter.due_ns = waiter.plan(None, now).host_ns();
            self.due.insert((waiter.due_ns, holder));
            found.push(if is_last { Due::Last(claim) } else { Due::Look(claim) });
        }
        let next_ns = self.due.first().map(|(due_ns, _)| *due_ns);
        self.looks_at_ns = next_ns.unwrap_or(u64::MAX);
        (found, next_ns)
    }
}

#[cfg(test)]
mod tests {
    use lockfast_core::{AcquireRequest, ClientId, LockName, Mode, Wait};

    use super::*;

    /// P10: whose time is up does not join the queue again, also when everybody is to look.
    #[test]
    fn who_leaves_does_not_come_back() {
        let lobby = Lobby::default();
        let (asker, _told) = tokio::sync::oneshot::channel();
        let claim = Claim::new(AcquireRequest {
            name: LockName::new("nightly").unwrap(),
            mode: Mode::Exclusive,
            holder: HolderId::random(ClientId::random().unwrap()).unwrap(),
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            wait: Wait::Until(Moment::now()),
            detached: false,
            floor: None,
        });
        lobby.enter(Arc::new(claim), asker, None, None);
        for _ in 0..2 {
            let (due, _) = lobby.lock().take_due(Moment::now());
            assert!(matches!(due[..], [Due::Last(_)]));
            lobby.rouse();
        }
    }
}
