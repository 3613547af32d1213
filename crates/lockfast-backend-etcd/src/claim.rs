//! What this process wants and has.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::time::wall_clock_us;
use lockfast_core::{
    AcquireRequest, HolderId, Label, LockName, LossCause, LossReporter, Mode, Moment,
};
use tokio::sync::Notify;

use crate::line::Place;
use crate::record::{Record, State};
use crate::session::{Class, Session};
use crate::store::lock;
use crate::table::Table;
use crate::wire::PutRequest;

/// A claim whose key is in the store.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) key: Vec<u8>,
    /// The revision at which the key was made: its place in the line, and its fence.
    pub(crate) revision: i64,
    /// The revision at which we wrote it last.
    pub(crate) written: i64,
    /// What we wrote there last.
    pub(crate) says: State,
    pub(crate) session: Arc<Session>,
    pub(crate) stage: Stage,
    pub(crate) is_detached: bool,
    /// Told when something becomes of it.
    pub(crate) signal: Arc<Notify>,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody is ahead of it.
    Waiting,
    /// It has its turn: because of what happened at this revision, if that is known.
    Turn(Option<i64>),
    /// Its holder was told that it has the lock, which ends then if nobody prolongs it.
    Held { until: Moment, since: Moment },
    /// Its key is being deleted, and it is never granted any more. That is tried again then if it
    /// is not answered.
    Leaving { again: Moment, was_held: bool },
}

/// How long a request wants a lock to last in the store.
pub(crate) fn lasting(ttl: Duration, delay: Duration) -> Duration {
    ttl.saturating_add(delay)
}

/// The class of leases that last so long.
pub(crate) fn class_of(lasting: Duration, is_detached: bool) -> Class {
    let seconds = lasting.as_secs() + u64::from(lasting.subsec_nanos() > 0);
    if is_detached { Class::Own(seconds) } else { Class::Hold(seconds) }
}

impl Claim {
    /// Where it stands in the line.
    pub(crate) fn place(&self) -> Place {
        (self.revision, self.key.clone())
    }

    /// What its key holds in a state.
    pub(crate) fn put(&self, label: &Label, state: State) -> PutRequest {
        let record = Record {
            mode: self.mode,
            state,
            since_us: wall_clock_us(),
            label: Some(label.clone()),
        };
        PutRequest {
            key: self.key.clone(),
            value: record.write(),
            lease: self.session.id,
            ..PutRequest::default()
        }
    }

    /// Whether its holder was told that it has the lock.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held { .. })
    }

    /// What its key should say when it is written anew. One that has its turn may have been told to say
    /// that it is held already, and then must go on to say so: others give up who only waits.
    pub(crate) fn state(&self) -> State {
        if self.is_held() { State::Held } else { self.says.clone() }
    }
}

/// The key of a new claim.
pub(crate) fn first_put(
    request: &AcquireRequest,
    key: &[u8],
    session: &Session,
    label: &Label,
    state: State,
) -> PutRequest {
    let record =
        Record { mode: request.mode, state, since_us: wall_clock_us(), label: Some(label.clone()) };
    PutRequest {
        key: key.to_vec(),
        value: record.write(),
        lease: session.id,
        ..PutRequest::default()
    }
}

/// All claims of this process.
#[derive(Debug)]
pub(crate) struct Claims {
    table: Mutex<Table>,
    losses: LossReporter,
}

impl Claims {
    pub(crate) fn new(losses: LossReporter) -> Self {
        Self { table: Mutex::default(), losses }
    }

    pub(crate) fn insert(&self, holder: HolderId, claim: Claim) {
        lock(&self.table).insert(holder, claim);
    }

    pub(crate) fn find(&self, holder: HolderId) -> Option<Claim> {
        lock(&self.table).find(holder).cloned()
    }

    pub(crate) fn remove(&self, holder: HolderId) -> Option<Claim> {
        lock(&self.table).remove(holder)
    }

    /// Some claim that waits.
    pub(crate) fn any_waiting(&self) -> Option<Vec<u8>> {
        lock(&self.table).any_waiting().map(|claim| claim.key.clone())
    }

    /// The key of some claim, not always of the same.
    pub(crate) fn any_key(&self) -> Option<Vec<u8>> {
        lock(&self.table).any_key()
    }

    /// Those whose time is up, each once.
    pub(crate) fn take_due(&self, now: Moment) -> Vec<(HolderId, Claim)> {
        lock(&self.table).take_due(now)
    }

    /// Looks at it once more at that time, if it is still the same.
    pub(crate) fn look_again(&self, holder: HolderId, revision: i64, at: Moment) {
        lock(&self.table).look_again(holder, revision, at);
    }

    /// Those that have been held for so long and were not told here before.
    pub(crate) fn take_settled(&self, now: Moment, age: Duration) -> Vec<Claim> {
        lock(&self.table).take_settled(now, age)
    }

    /// The keys that were told by [`Claims::take_settled`] and whose claims are gone.
    pub(crate) fn take_gone(&self) -> Vec<Vec<u8>> {
        lock(&self.table).take_gone()
    }

    /// The claims of one lock.
    pub(crate) fn of_lock(&self, name: &LockName) -> Vec<(HolderId, Claim)> {
        lock(&self.table).of_lock(name).map(|(holder, claim)| (holder, claim.clone())).collect()
    }

    /// How many claims of one lock there are.
    pub(crate) fn count_of_lock(&self, name: &LockName) -> usize {
        lock(&self.table).of_lock(name).count()
    }

    pub(crate) fn has_lock(&self, name: &LockName) -> bool {
        lock(&self.table).of_lock(name).next().is_some()
    }

    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        lock(&self.table).holder_of(key).is_some()
    }

    pub(crate) fn has_session(&self, id: i64) -> bool {
        lock(&self.table).of_session(id).next().is_some()
    }

    /// Those whose keys hang on a lease, or may do.
    pub(crate) fn of_session(&self, id: i64) -> Vec<HolderId> {
        lock(&self.table).of_session(id).map(|(holder, _)| holder).collect()
    }

    /// The claim of a holder, if its key hangs on a lease, or may do.
    pub(crate) fn find_under(&self, holder: HolderId, id: i64) -> Option<Claim> {
        let table = lock(&self.table);
        table.find(holder).filter(|_| table.is_under(holder, id)).cloned()
    }

    /// The key of a holder was written under a lease, or was not there any more. Whoever finds that
    /// it was not tells its holder. Returns whether the claim is known here.
    pub(crate) fn moved(
        &self,
        holder: HolderId,
        revision: i64,
        now: Option<(i64, Arc<Session>, State)>,
    ) -> bool {
        let mut table = lock(&self.table);
        let Some(claim) = table.find(holder).filter(|claim| claim.revision == revision) else {
            return false;
        };
        let (is_held, known) = (claim.is_held(), claim.written);
        match now {
            // Two who move it may hear their answers in another order.
            Some((written, ..)) if written < known => {}
            Some((written, session, says)) => {
                let number = session.number();
                table.put_under(holder, (written, says), session);
                if is_held {
                    self.losses.moved(holder, number);
                }
            }
            None => {
                claim.signal.notify_one();
                table.remove(holder);
            }
        }
        true
    }

    /// The key of a holder may hang on this lease, or may do so later.
    pub(crate) fn may_be_under(&self, holder: HolderId, session: &Session) {
        lock(&self.table).may_be_under(holder, session.id);
    }

    /// Changes how far a claim has come, if it is still the same. Returns its lease. One whose key is being
    /// deleted is not held again.
    pub(crate) fn set_stage(
        &self,
        holder: HolderId,
        revision: i64,
        stage: Stage,
    ) -> Option<Arc<Session>> {
        let mut table = lock(&self.table);
        let claim = table.find(holder).filter(|claim| claim.revision == revision)?;
        let is_to_be_held = matches!(stage, Stage::Held { .. });
        if is_to_be_held && matches!(claim.stage, Stage::Leaving { .. }) {
            return None;
        }
        let (session, was_held) = (Arc::clone(&claim.session), claim.is_held());
        table.set_stage(holder, stage);
        if is_to_be_held && !was_held {
            // From here on the engine knows of every move, also while the grant is on its way.
            self.losses.moved(holder, session.number());
        }
        Some(session)
    }

    /// The same for one that has its turn; `None` when it has it no more.
    pub(crate) fn take_turn(
        &self,
        holder: HolderId,
        revision: i64,
        stage: Stage,
    ) -> Option<Arc<Session>> {
        let mut table = lock(&self.table);
        let has_turn =
            |claim: &&Claim| claim.revision == revision && matches!(claim.stage, Stage::Turn(_));
        let session = Arc::clone(&table.find(holder).filter(has_turn)?.session);
        table.set_stage(holder, stage);
        if matches!(stage, Stage::Held { .. }) {
            self.losses.moved(holder, session.number());
        }
        Some(session)
    }

    /// Those who are first have their turn, because of what happened at a revision.
    pub(crate) fn call<'a>(
        &self,
        places: impl IntoIterator<Item = &'a Place>,
        revision: Option<i64>,
    ) {
        let mut table = lock(&self.table);
        for (made, key) in places {
            let Some(holder) = table.holder_of(key) else { continue };
            let Some(claim) = table.find(holder) else { continue };
            // A holder that stands in line again may have the key that it had before.
            if claim.stage == Stage::Waiting && claim.revision == *made {
                claim.signal.notify_one();
                table.set_stage(holder, Stage::Turn(revision));
            }
        }
    }

    /// A key is gone. Whoever has the lock by it is told. Returns the lease that it hung on, if the
    /// claim was ours.
    pub(crate) fn lose(&self, key: &[u8], revision: i64, cause: LossCause) -> Option<Arc<Session>> {
        let mut table = lock(&self.table);
        let holder = table.holder_of(key)?;
        table.find(holder).filter(|claim| claim.revision <= revision)?;
        let claim = table.remove(holder)?;
        drop(table);
        claim.signal.notify_one();
        if claim.is_held() {
            self.losses.report(holder, cause);
        }
        Some(claim.session)
    }

    /// A lease has ended, and with it every claim. A key that may hang on another lease is deleted.
    pub(crate) fn lose_session(&self, session: &Session) {
        let mut table = lock(&self.table);
        let (gone, unsure) = table.end_session(session.id);
        gone.iter().for_each(|claim| claim.signal.notify_one());
        for (holder, claim) in unsure {
            table.set_stage(
                holder,
                Stage::Leaving { again: Moment::now(), was_held: claim.is_held() },
            );
            claim.signal.notify_one();
        }
        // All of them in one step.
        self.losses.session_ended(session.number(), LossCause::SessionEnded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ClientId;

    /// B103: news of a key that was given up, and made anew for the same holder, comes late.
    #[test]
    fn a_turn_is_that_of_one_claim_and_not_of_its_key() {
        let claims = Claims::new(LossReporter::new(|_| {}));
        let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
        let session = Session::new(1, Class::Waiting, Duration::from_secs(2), Moment::now());
        let claim = Claim {
            name: LockName::new("a").unwrap(),
            mode: Mode::Exclusive,
            key: b"a/1".to_vec(),
            revision: 7,
            written: 7,
            says: State::Waiting,
            session: Arc::new(session),
            stage: Stage::Waiting,
            is_detached: false,
            signal: Arc::default(),
        };
        claims.insert(holder, claim);
        let stage = || claims.find(holder).unwrap().stage;
        claims.call(&[(5, b"a/1".to_vec())], Some(6));
        assert_eq!(stage(), Stage::Waiting, "that was the turn of the claim before it");
        claims.call(&[(7, b"a/1".to_vec())], Some(8));
        assert_eq!(stage(), Stage::Turn(Some(8)));
        // B220: its key was written as held, and it is moved before that is known to be so.
        let session = Arc::clone(&claims.find(holder).unwrap().session);
        assert_eq!(claims.find(holder).unwrap().state(), State::Waiting);
        assert!(claims.moved(holder, 7, Some((9, session, State::Held))));
        assert_eq!(stage(), Stage::Turn(Some(8)));
        assert_eq!(claims.find(holder).unwrap().state(), State::Held);
        // B221: what is being deleted is not held again.
        let (again, since) = (Moment::now(), Moment::now());
        claims.set_stage(holder, 7, Stage::Leaving { again, was_held: true }).unwrap();
        assert!(claims.set_stage(holder, 7, Stage::Held { until: again, since }).is_none());
        assert!(matches!(stage(), Stage::Leaving { .. }));
    }
}
