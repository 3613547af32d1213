//! The tasks of this process that wait for a lock, and what has to be looked after for them: when
//! their queue next changes by itself, and which other clients may die.

use std::collections::{BTreeSet, HashMap, HashSet};

use lockfast_core::{AcquireOutcome, AcquireRequest, ClientId, HolderId, LockName, Moment, Result};
use tokio::sync::oneshot;

use crate::claim::{Claim, wait_ns};
use crate::queue::Queue;

/// Where the answer to an acquisition goes.
pub(crate) type Reply = oneshot::Sender<Result<AcquireOutcome>>;

/// Everybody who waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    rooms: HashMap<LockName, Room>,
    due: BTreeSet<(u64, LockName)>,
}

/// Those who wait for one lock.
#[derive(Debug, Default)]
struct Room {
    waiters: Vec<Waiter>,
    due_ns: Option<u64>,
    /// The clients whose death would let one of them in.
    blockers: Vec<ClientId>,
}

/// Who waits for the grant of one claim.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) holder: HolderId,
    /// When the claim was entered: a grant from before is of an earlier claim.
    pub(crate) since_ns: u64,
    /// When the wait ends.
    pub(crate) until_ns: u64,
    /// With the moment at which each request was made; more than one when it was repeated.
    pub(crate) replies: Vec<(Moment, Reply)>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.rooms.is_empty()
    }

    /// Somebody waits for a claim that was entered at `since_ns`.
    pub(crate) fn add(
        &mut self,
        request: &AcquireRequest,
        since_ns: u64,
        (sent, reply): (Moment, Reply),
    ) {
        let holder = request.holder;
        let until_ns = wait_ns(request.wait);
        let room = self.rooms.entry(request.name.clone()).or_default();
        match room.waiters.iter_mut().find(|waiter| waiter.holder == holder) {
            Some(waiter) => {
                waiter.until_ns = until_ns;
                waiter.replies.retain(|(_, reply)| !reply.is_closed());
                waiter.replies.push((sent, reply));
            }
            None => {
                let replies = vec![(sent, reply)];
                room.waiters.push(Waiter { holder, since_ns, until_ns, replies });
            }
        }
    }

    /// Takes out whoever waits for a claim.
    pub(crate) fn take(&mut self, name: &LockName, holder: HolderId) -> Option<Waiter> {
        let room = self.rooms.get_mut(name)?;
        let at = room.waiters.iter().position(|w| w.holder == holder)?;
        let waiter = room.waiters.remove(at);
        if room.waiters.is_empty()
            && let Some(room) = self.rooms.remove(name)
            && let Some(due_ns) = room.due_ns
        {
            self.due.remove(&(due_ns, name.clone()));
        }
        Some(waiter)
    }

    /// Since when a claim is waited for.
    pub(crate) fn since_ns(&self, name: &LockName, holder: HolderId) -> Option<u64> {
        let waiters = &self.rooms.get(name)?.waiters;
        let waiter = waiters.iter().find(|waiter| waiter.holder == holder)?;
        Some(waiter.since_ns)
    }

    /// The locks that are waited for.
    pub(crate) fn names(&self) -> Vec<LockName> {
        self.rooms.keys().cloned().collect()
    }

    /// The claims of a lock that are waited for.
    pub(crate) fn holders(&self, name: &LockName) -> Vec<HolderId> {
        let waiters = self.rooms.get(name).map(|room| &room.waiters);
        waiters
            .map_or_else(Vec::new, |waiters| waiters.iter().map(|waiter| waiter.holder).collect())
    }

    /// The claims of a lock whose wait is over.
    pub(crate) fn ended(&self, name: &LockName, now_ns: u64) -> Vec<HolderId> {
        let waiters = self.rooms.get(name).map_or(&[][..], |room| &room.waiters);
        let ended = waiters.iter().filter(|waiter| waiter.until_ns <= now_ns);
        ended.map(|waiter| waiter.holder).collect()
    }

    /// Learns from a queue what to look after.
    pub(crate) fn observe(&mut self, name: &LockName, queue: &Queue, me: ClientId) {
        let Some(room) = self.rooms.get_mut(name) else {
            return;
        };
        room.blockers = blockers(queue, me);
        // A wait ends when its caller said, also when its claim is no longer in the queue.
        let waits = room.waiters.iter().map(|waiter| waiter.until_ns);
        let due_ns = queue.next_end_ns().into_iter().chain(waits).min();
        if due_ns != room.due_ns {
            if let Some(planned_ns) = room.due_ns {
                self.due.remove(&(planned_ns, name.clone()));
            }
            room.due_ns = due_ns;
            self.due.extend(due_ns.map(|due_ns| (due_ns, name.clone())));
        }
    }

    /// When the next queue changes by itself.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// The locks whose queue has changed by itself.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<LockName> {
        let mut names = Vec::new();
        while let Some((due_ns, name)) = self.due.first()
            && *due_ns <= now_ns
        {
            if let Some(room) = self.rooms.get_mut(name) {
                room.due_ns = None;
            }
            names.push(name.clone());
            self.due.pop_first();
        }
        names
    }

    /// The clients whose death would let somebody in.
    pub(crate) fn blockers(&self) -> HashSet<ClientId> {
        let rooms = self.rooms.values();
        rooms.flat_map(|room| room.blockers.iter().copied()).collect()
    }

    /// The same for one lock.
    pub(crate) fn blockers_of(&self, name: &LockName) -> &[ClientId] {
        self.rooms.get(name).map_or(&[], |room| &room.blockers)
    }
}

/// The clients whose death would let in one of our waiting claims.
///
/// A claim looks only at the one just ahead of it if that waits too, so that the death of a
/// holder wakes the first in the line and not all of it.
fn blockers(queue: &Queue, me: ClientId) -> Vec<ClientId> {
    let mut found = Vec::new();
    let live = || queue.claims().iter().filter(|claim| claim.is_live());
    let mut add = |claim: &Claim| {
        let is_bound = claim.is_waiting() || !claim.detached;
        if claim.client != me && is_bound && !found.contains(&claim.client) {
            found.push(claim.client);
        }
    };
    let mut holders_added = false;
    for (ahead, claim) in live().zip(live().skip(1)) {
        if claim.client != me || !claim.is_waiting() {
            continue;
        }
        if ahead.is_waiting() {
            add(ahead);
        } else if !holders_added {
            live().filter(|claim| claim.hold().is_some()).for_each(&mut add);
            holders_added = true;
        }
    }
    found
}
