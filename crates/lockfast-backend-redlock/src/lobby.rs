//! Those who wait. Nodes call whoever is next when a lock is released, so nobody polls; but each
//! looks by itself when what is in its way should be over, and once in a while in case a call was
//! lost, or went to a process that does not heed it. Of all who wait for one lock here, one look
//! is enough. All of it is spread at random, because nobody orders those who try.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{HolderId, LockName, Moment, Wait, jitter};
use tokio::sync::Notify;

use crate::claim::Claim;
use crate::store::lock;

/// Of how many locks it is remembered when somebody last looked.
const LOOKS_MAX: usize = 4096;

/// All who wait.
#[derive(Default)]
pub(crate) struct Lobby {
    room: Mutex<Room>,
    changed: Notify,
}

/// Why somebody tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is its turn, or may be.
    Turn,
    /// Only to look, which has to be done so often.
    Look(Duration),
}

#[derive(Default)]
struct Room {
    waiters: HashMap<HolderId, Waiter>,
    due: BTreeSet<(u64, HolderId)>,
    /// Who looked last at a lock that was taken, and when.
    looks: HashMap<LockName, (HolderId, u64)>,
    /// When whoever tends the lobby looks next.
    looks_at_ns: u64,
    /// When everybody was told to look.
    roused: Option<Moment>,
}

struct Waiter {
    due_ns: u64,
    why: Why,
    claim: Arc<Claim>,
}

impl Lobby {
    /// Lets a claim that has just seen its lock taken, in a round that began at `asked`, wait until it is
    /// due. If calls may have been lost since then, it looks soon.
    pub(crate) fn enter(&self, claim: &Arc<Claim>, asked: Moment, due: Moment, why: Why) {
        let mut room = lock(&self.room);
        room.remove(claim.holder);
        room.note_look(claim, Moment::now());
        let owed = room.roused.filter(|roused| asked.has_passed(*roused)).map(soon_after);
        let (due, why) = match owed {
            Some(owed) => (due.earlier_of(owed), Why::Turn),
            None => (due, why),
        };
        self.insert(&mut room, Waiter { due_ns: due.host_ns(), why, claim: Arc::clone(claim) });
    }

    /// Lets a claim that waits try sooner.
    pub(crate) fn hasten(&self, holder: HolderId, due: Moment) {
        let mut room = lock(&self.room);
        let due_ns = due.host_ns();
        let is_sooner = room.waiters.get(&holder).is_some_and(|waiter| due_ns < waiter.due_ns);
        if is_sooner && let Some(claim) = room.remove(holder) {
            self.insert(&mut room, Waiter { due_ns, why: Why::Turn, claim });
        }
    }

    /// Takes a claim out.
    pub(crate) fn take(&self, holder: HolderId) -> Option<Arc<Claim>> {
        lock(&self.room).remove(holder)
    }

    /// Everybody looks soon: calls may have been lost. So does, as soon as it waits, whoever is asking.
    pub(crate) fn rouse(&self) {
        let now = Moment::now();
        let holders: Vec<HolderId> = {
            let mut room = lock(&self.room);
            room.roused = Some(now);
            room.waiters.keys().copied().collect()
        };
        for holder in holders {
            self.hasten(holder, soon_after(now));
        }
    }

    fn insert(&self, room: &mut Room, waiter: Waiter) {
        let due_ns = waiter.due_ns;
        room.insert(waiter);
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

/// When one of many looks who were all told to at this moment.
fn soon_after(roused: Moment) -> Moment {
    roused + Duration::from_millis(200).mul_f64(jitter())
}

impl Room {
    fn insert(&mut self, waiter: Waiter) {
        let (holder, due_ns) = (waiter.claim.holder, waiter.due_ns);
        self.waiters.insert(holder, waiter);
        self.due.insert((due_ns, holder));
    }

    fn remove(&mut self, holder: HolderId) -> Option<Arc<Claim>> {
        let Waiter { due_ns, claim, .. } = self.waiters.remove(&holder)?;
        self.due.remove(&(due_ns, holder));
        Some(claim)
    }

    fn note_look(&mut self, claim: &Claim, now: Moment) {
        let now_ns = now.host_ns();
        if self.looks.len() >= LOOKS_MAX {
            let recent_ns = now_ns.saturating_sub(10_000_000_000);
            self.looks.retain(|_, (_, looked_ns)| *looked_ns > recent_ns);
        }
        self.looks.insert(claim.name.clone(), (claim.holder, now_ns));
    }

    fn take_due(&mut self, now: Moment) -> (Vec<Arc<Claim>>, Option<u64>) {
        let mut found = Vec::new();
        while let Some((due_ns, holder)) = self.due.first().copied()
            && due_ns <= now.host_ns()
        {
            self.due.pop_first();
            let Some(waiter) = self.waiters.remove(&holder) else { continue };
            match self.spare_look(&waiter, now) {
                Some(later_ns) => self.insert(Waiter { due_ns: later_ns, ..waiter }),
                None => {
                    self.note_look(&waiter.claim, now);
                    found.push(waiter.claim);
                }
            }
        }
        let next_ns = self.due.first().map(|(due_ns, _)| *due_ns);
        self.looks_at_ns = next_ns.unwrap_or(u64::MAX);
        (found, next_ns)
    }

    /// When to look instead, if somebody else here has just done so for all.
    fn spare_look(&self, waiter: &Waiter, now: Moment) -> Option<u64> {
        let Why::Look(every) = waiter.why else { return None };
        let (looker, looked_ns) = self.looks.get(&waiter.claim.name)?;
        let next = Moment::from_host_ns(*looked_ns) + every.mul_f64(0.8 + 0.4 * jitter());
        let next = match waiter.claim.wait {
            Wait::Until(until) => next.earlier_of(until),
            _ => next,
        };
        (*looker != waiter.claim.holder && !next.has_passed(now)).then(|| next.host_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::{AcquireRequest, ClientId, Mode};
    use tokio::sync::oneshot;

    const EVERY: Duration = Duration::from_secs(1);

    fn claim(lock: &str, wait: Wait) -> Arc<Claim> {
        let request = AcquireRequest {
            name: LockName::new(lock).unwrap(),
            mode: Mode::Exclusive,
            holder: HolderId::random(ClientId::random().unwrap()).unwrap(),
            ttl: EVERY,
            lock_delay: Duration::ZERO,
            wait,
            detached: false,
            floor: None,
        };
        Arc::new(Claim::new(request, 3, oneshot::channel().0))
    }

    fn due(lobby: &Lobby, now: Moment) -> Vec<HolderId> {
        let (due, _) = lock(&lobby.room).take_due(now);
        due.iter().map(|claim| claim.holder).collect()
    }

    /// Of a thousand who wait for one lock, one looks; and whoever is called tries all the same.
    #[test]
    fn one_looks_for_all_who_wait_here() {
        let lobby = Lobby::default();
        let start = Moment::now();
        let all: Vec<_> = (0..1000).map(|_| claim("a", Wait::Forever)).collect();
        all.iter().for_each(|claim| lobby.enter(claim, start, start + EVERY, Why::Look(EVERY)));
        let other = claim("b", Wait::Forever);
        lobby.enter(&other, start, start + EVERY, Why::Look(EVERY));
        let called = all[7].holder;
        lobby.hasten(called, start + EVERY / 2);
        assert_eq!(due(&lobby, start + EVERY / 2), [called]);
        let mut looked = Vec::new();
        let mut now = start + EVERY / 2;
        while now.since(start) < EVERY * 12 {
            now = now + EVERY / 100;
            for holder in due(&lobby, now) {
                looked.push(holder);
                let claim = all.iter().find(|claim| claim.holder == holder).unwrap_or(&other);
                let (due_ns, claim) = ((now + EVERY).host_ns(), Arc::clone(claim));
                lock(&lobby.room).insert(Waiter { due_ns, why: Why::Look(EVERY), claim });
            }
        }
        let others = looked.iter().filter(|holder| **holder == other.holder).count();
        let ours = looked.len() - others;
        assert!((10..=12).contains(&others), "{others} looks by one who is alone");
        assert!((9..=16).contains(&ours), "{ours} looks by a thousand");
    }

    /// B247, P10: a round that was under way when calls were lost is answered with what was before, and
    /// whoever waits after it looks soon, whoever else has looked.
    #[test]
    fn who_was_on_the_way_looks_too() {
        let lobby = Lobby::default();
        let (before, later) = (Moment::now(), Moment::now() + 3600 * EVERY);
        let (asking, other) = (claim("a", Wait::Forever), claim("a", Wait::Forever));
        lobby.rouse();
        let soon = Moment::now() + EVERY / 4;
        lobby.enter(&asking, before, later, Why::Look(EVERY));
        lobby.enter(&other, soon, later, Why::Look(EVERY));
        assert_eq!(due(&lobby, soon), [asking.holder]);
        lobby.enter(&asking, soon, later, Why::Look(EVERY));
        assert!(due(&lobby, soon + EVERY).is_empty(), "now it knows");
    }

    /// Whoever is about to give up tries once more, whoever else has looked.
    #[test]
    fn a_wait_that_ends_is_not_put_off() {
        let lobby = Lobby::default();
        let start = Moment::now();
        let until = start + EVERY / 2;
        let impatient = claim("a", Wait::Until(until));
        lobby.enter(&impatient, start, start + EVERY / 4, Why::Look(EVERY));
        lobby.enter(&claim("a", Wait::Forever), start, start + EVERY, Why::Look(EVERY));
        assert!(due(&lobby, start + EVERY / 4).is_empty());
        assert_eq!(due(&lobby, until), [impatient.holder]);
    }
}
