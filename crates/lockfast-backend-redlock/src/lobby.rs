//! Those who wait. Nodes call whoever is next when a lock is released, so nobody polls; but each
//! looks by itself when what is in its way should be over, and once in a while in case a call was
//! lost. All of it is spread at random, because nobody orders those who try.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{HolderId, Moment, jitter};
use tokio::sync::Notify;

use crate::claim::Claim;
use crate::store::lock;

/// All who wait.
#[derive(Default)]
pub(crate) struct Lobby {
    room: Mutex<Room>,
    changed: Notify,
}

#[derive(Default)]
struct Room {
    waiters: HashMap<HolderId, (u64, Arc<Claim>)>,
    due: BTreeSet<(u64, HolderId)>,
    /// When whoever tends the lobby looks next.
    looks_at_ns: u64,
}

impl Lobby {
    /// Lets a claim wait until it is due.
    pub(crate) fn enter(&self, claim: &Arc<Claim>, due: Moment) {
        let mut room = lock(&self.room);
        room.remove(claim.holder);
        self.insert(&mut room, Arc::clone(claim), due);
    }

    /// Lets a claim that waits be due sooner.
    pub(crate) fn hasten(&self, holder: HolderId, due: Moment) {
        let mut room = lock(&self.room);
        let is_sooner = room.waiters.get(&holder).is_some_and(|(at, _)| due.host_ns() < *at);
        if is_sooner && let Some(claim) = room.remove(holder) {
            self.insert(&mut room, claim, due);
        }
    }

    /// Takes a claim out.
    pub(crate) fn take(&self, holder: HolderId) -> Option<Arc<Claim>> {
        lock(&self.room).remove(holder)
    }

    /// Everybody looks soon: calls may have been lost.
    pub(crate) fn rouse(&self) {
        let holders: Vec<HolderId> = lock(&self.room).waiters.keys().copied().collect();
        let now = Moment::now();
        for holder in holders {
            self.hasten(holder, now + Duration::from_millis(200).mul_f64(jitter()));
        }
    }

    fn insert(&self, room: &mut Room, claim: Arc<Claim>, due: Moment) {
        let (holder, due_ns) = (claim.holder, due.host_ns());
        room.waiters.insert(holder, (due_ns, claim));
        room.due.insert((due_ns, holder));
        if due_ns < room.looks_at_ns {
            room.looks_at_ns = due_ns;
            self.changed.notify_one();
        }
    }

    /// Tends the lobby for ever: hands whoever is due to `submit`.
    pub(crate) async fn tend(&self, submit: impl Fn(&Arc<Claim>)) {
        loop {
            let (due, next_ns) = lock(&self.room).take_due(Moment::now());
            due.iter().for_each(&submit);
            if !due.is_empty() {
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
    fn remove(&mut self, holder: HolderId) -> Option<Arc<Claim>> {
        let (due_ns, claim) = self.waiters.remove(&holder)?;
        self.due.remove(&(due_ns, holder));
        Some(claim)
    }

    fn take_due(&mut self, now: Moment) -> (Vec<Arc<Claim>>, Option<u64>) {
        let mut found = Vec::new();
        while let Some((due_ns, holder)) = self.due.first().copied()
            && due_ns <= now.host_ns()
        {
            found.extend(self.remove(holder));
        }
        let next_ns = self.due.first().map(|(due_ns, _)| *due_ns);
        self.looks_at_ns = next_ns.unwrap_or(u64::MAX);
        (found, next_ns)
    }
}
