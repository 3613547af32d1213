//! The claims of this process, so that everything that is asked of them is found without looking at
//! the others: there may be thousands.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{HolderId, LockName, Moment, jitter};

use crate::claim::{Claim, Stage};
use crate::record::State;
use crate::session::Session;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    claims: HashMap<HolderId, Claim>,
    holders: HashMap<Vec<u8>, HolderId>,
    of_lock: HashMap<LockName, HashSet<HolderId>>,
    /// By the lease that a key hangs on, and by every other that it may hang on.
    of_session: HashMap<i64, HashSet<HolderId>>,
    /// The other leases that a key may hang on, because an answer was lost.
    maybe: HashMap<HolderId, HashSet<i64>>,
    waiting: HashSet<HolderId>,
    /// When each is to be looked at, because its time is up.
    due: BTreeSet<(u64, HolderId)>,
    due_of: HashMap<HolderId, u64>,
    /// Those that are held since then.
    young: VecDeque<(Moment, HolderId)>,
    /// The keys of those that were held for a while.
    settled: HashSet<Vec<u8>>,
    gone: Vec<Vec<u8>>,
}

impl Table {
    pub(crate) fn insert(&mut self, holder: HolderId, claim: Claim) {
        self.remove(holder);
        let stage = claim.stage;
        self.holders.insert(claim.key.clone(), holder);
        self.of_lock.entry(claim.name.clone()).or_default().insert(holder);
        self.of_session.entry(claim.session.id).or_default().insert(holder);
        self.claims.insert(holder, claim);
        self.set_stage(holder, stage);
    }

    pub(crate) fn find(&self, holder: HolderId) -> Option<&Claim> {
        self.claims.get(&holder)
    }

    pub(crate) fn remove(&mut self, holder: HolderId) -> Option<Claim> {
        let claim = self.claims.remove(&holder)?;
        self.holders.remove(&claim.key);
        take_out(&mut self.of_lock, &claim.name, holder);
        take_out(&mut self.of_session, &claim.session.id, holder);
        for session in self.maybe.remove(&holder).unwrap_or_default() {
            take_out(&mut self.of_session, &session, holder);
        }
        self.waiting.remove(&holder);
        self.set_due(holder, None);
        if let Some(key) = self.settled.take(&claim.key) {
            self.gone.push(key);
        }
        Some(claim)
    }

    pub(crate) fn set_stage(&mut self, holder: HolderId, stage: Stage) {
        let Some(claim) = self.claims.get_mut(&holder) else { return };
        claim.stage = stage;
        let due = match stage {
            Stage::Held { until, .. } => (!claim.is_detached).then_some(until),
            Stage::Leaving { again, .. } => Some(again),
            Stage::Waiting | Stage::Turn(_) => None,
        };
        if let Stage::Held { since, .. } = stage
            && !self.settled.contains(&claim.key)
        {
            self.young.push_back((since, holder));
        }
        match stage {
            Stage::Waiting | Stage::Turn(_) => self.waiting.insert(holder),
            Stage::Held { .. } | Stage::Leaving { .. } => self.waiting.remove(&holder),
        };
        self.set_due(holder, due);
    }

    fn set_due(&mut self, holder: HolderId, due: Option<Moment>) {
        if let Some(at) = self.due_of.remove(&holder) {
            self.due.remove(&(at, holder));
        }
        if let Some(due) = due {
            self.due.insert((due.host_ns(), holder));
            self.due_of.insert(holder, due.host_ns());
        }
    }

    /// The key of a claim hangs on another lease since a revision, and says something.
    pub(crate) fn put_under(
        &mut self,
        holder: HolderId,
        (written, says): (i64, State),
        session: Arc<Session>,
    ) {
        let Some(claim) = self.claims.get_mut(&holder) else { return };
        (claim.written, claim.says) = (written, says);
        let before = std::mem::replace(&mut claim.session, session).id;
        let now = claim.session.id;
        let is_maybe = self.maybe.get(&holder).is_some_and(|maybe| maybe.contains(&before));
        if !is_maybe {
            take_out(&mut self.of_session, &before, holder);
        }
        self.of_session.entry(now).or_default().insert(holder);
    }

    /// The key of a claim may hang on this lease too, or may do so later.
    pub(crate) fn may_be_under(&mut self, holder: HolderId, session: i64) {
        if self.claims.contains_key(&holder) {
            self.maybe.entry(holder).or_default().insert(session);
            self.of_session.entry(session).or_default().insert(holder);
        }
    }

    /// A lease has ended. Returns the claims whose keys hung on it, out of the table; those that may
    /// hang on another are told apart.
    pub(crate) fn end_session(&mut self, session: i64) -> (Vec<Claim>, Vec<(HolderId, Claim)>) {
        let (mut gone, mut unsure) = (Vec::new(), Vec::new());
        for holder in self.of_session.remove(&session).unwrap_or_default() {
            if let Some(maybe) = self.maybe.get_mut(&holder) {
                maybe.remove(&session);
                if maybe.is_empty() {
                    self.maybe.remove(&holder);
                }
            }
            let hung_on_it = self.claims.get(&holder).is_some_and(|it| it.session.id == session);
            match self.maybe.contains_key(&holder) {
                _ if !hung_on_it => {}
                true => unsure.extend(self.claims.get(&holder).map(|it| (holder, it.clone()))),
                false => gone.extend(self.remove(holder)),
            }
        }
        (gone, unsure)
    }

    pub(crate) fn holder_of(&self, key: &[u8]) -> Option<HolderId> {
        self.holders.get(key).copied()
    }

    pub(crate) fn any_waiting(&self) -> Option<&Claim> {
        self.waiting.iter().next().and_then(|holder| self.claims.get(holder))
    }

    /// The key of some claim, not always of the same.
    pub(crate) fn any_key(&self) -> Option<Vec<u8>> {
        let at = (self.holders.len() as f64 * jitter()) as usize;
        self.holders.keys().nth(at).or(self.holders.keys().next()).cloned()
    }

    pub(crate) fn of_lock(&self, name: &LockName) -> impl Iterator<Item = (HolderId, &Claim)> {
        self.all_of(self.of_lock.get(name))
    }

    pub(crate) fn of_session(&self, id: i64) -> impl Iterator<Item = (HolderId, &Claim)> {
        self.all_of(self.of_session.get(&id))
    }

    /// Whether the key of a holder hangs on a lease, or may do.
    pub(crate) fn is_under(&self, holder: HolderId, id: i64) -> bool {
        self.of_session.get(&id).is_some_and(|holders| holders.contains(&holder))
    }

    fn all_of<'a>(
        &'a self,
        holders: Option<&'a HashSet<HolderId>>,
    ) -> impl Iterator<Item = (HolderId, &'a Claim)> {
        let find = |holder: &HolderId| Some((*holder, self.claims.get(holder)?));
        holders.into_iter().flatten().filter_map(find)
    }

    /// Those whose time is up, each once.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<(HolderId, Claim)> {
        let mut taken = Vec::new();
        while let Some((at, holder)) = self.due.first().copied() {
            if at > now.host_ns() {
                break;
            }
            self.set_due(holder, None);
            taken.extend(self.claims.get(&holder).map(|claim| (holder, claim.clone())));
        }
        taken
    }

    /// See [`crate::claim::Claims::look_again`].
    pub(crate) fn look_again(&mut self, holder: HolderId, revision: i64, at: Moment) {
        let is_same = self.claims.get(&holder).is_some_and(|claim| claim.revision == revision);
        if is_same && !self.due_of.contains_key(&holder) {
            self.set_due(holder, Some(at));
        }
    }

    /// Those that have been held for so long and were not told here before.
    pub(crate) fn take_settled(&mut self, now: Moment, age: Duration) -> Vec<Claim> {
        let mut taken = Vec::new();
        while let Some((since, holder)) = self.young.front().copied() {
            if now.since(since) < age {
                break;
            }
            self.young.pop_front();
            let Some(claim) = self.claims.get(&holder).filter(|claim| claim.is_held()) else {
                continue;
            };
            if self.settled.insert(claim.key.clone()) {
                taken.push(claim.clone());
            }
        }
        taken
    }

    /// The keys that were told before and whose claims are gone.
    pub(crate) fn take_gone(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.gone)
    }
}

fn take_out<K: Eq + Hash>(index: &mut HashMap<K, HashSet<HolderId>>, key: &K, holder: HolderId) {
    if let Some(holders) = index.get_mut(key) {
        holders.remove(&holder);
        if holders.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
