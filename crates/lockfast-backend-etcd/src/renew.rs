//! Prolonging what is held: one question for each lease of the cluster, however many locks hang
//! on it. What hangs on another lease than it should is put under the right one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{HolderId, LockName, LossCause, Moment, RenewOutcome, RenewRequest};

use crate::batch::{OPS_MAX, is_of_one, op};
use crate::claim::{Claim, Stage, class_of, lasting};
use crate::failure::{self, Failure};
use crate::line::Line;
use crate::observer::cause_of_end;
use crate::record::{Record, State};
use crate::session::{Class, Session};
use crate::store::Store;
use crate::wire::{
    EventType, KeyValue, Op, PutRequest, RangeRequest, TxnRequest, WatchCreateRequest, WatchOp,
    WatchRequest,
};

/// How long it may take to find out why a key is gone.
const WHY_MAX: Duration = Duration::from_secs(1);

/// One lease to be prolonged, with what is known about it here.
struct Renewal {
    request: RenewRequest,
    claim: Option<Claim>,
}

type Outcome = Result<RenewOutcome, Failure>;

impl Store {
    /// Prolongs leases; the answers are in the order of the batch.
    pub(crate) async fn renew(self: &Arc<Self>, batch: Vec<RenewRequest>) -> Vec<RenewOutcome> {
        let asked = Moment::now();
        let renewals: Vec<Renewal> = batch
            .into_iter()
            .map(|request| Renewal { claim: self.claims.find(request.holder), request })
            .collect();
        let sessions = self.prolong_all(&renewals).await;
        let seen = self.look_at_held(&renewals).await;
        let mut outcomes = Vec::with_capacity(renewals.len());
        let mut moving = Vec::new();
        for (at, renewal) in renewals.into_iter().enumerate() {
            let outcome = match &renewal.claim {
                // It is written anew, once it is known what it hangs on.
                Some(claim) if claim.is_held() && self.has_doubt(renewal.request.holder) => None,
                Some(claim) if claim.is_held() => {
                    match (sessions.get(&claim.session.id), seen.get(&claim.key)) {
                        (_, Some(Err(failure))) => Some(Err(failure.clone())),
                        // Writing tells, too, that it is gone.
                        (_, Some(Ok(false))) => None,
                        (Some(Ok(())), _) if has_right_lease(claim, &renewal.request) => {
                            Some(self.renewed(&renewal.request, claim, asked))
                        }
                        (Some(Err(failure)), _) if has_right_lease(claim, &renewal.request) => {
                            match self.claims.find(renewal.request.holder) {
                                // It was moved away from a lease that has ended.
                                Some(now) if now.session.id != claim.session.id => None,
                                Some(_) => Some(Err(failure.clone())),
                                None => Some(Ok(RenewOutcome::Lost(LossCause::SessionEnded))),
                            }
                        }
                        _ => None,
                    }
                }
                Some(_) => Some(Ok(RenewOutcome::Lost(LossCause::Forgotten))),
                None => None,
            };
            outcomes.push(outcome);
            if outcomes[at].is_none() {
                let store = Arc::clone(self);
                let work = async move { store.renew_by_writing(renewal, asked).await };
                moving.push((at, self.context.runtime.spawn(work)));
            }
        }
        for (at, work) in moving {
            outcomes[at] = Some(work.await.unwrap_or_else(|_| Err(failure::of_closing())));
        }
        let answer = |outcome: Option<Outcome>| match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(failure)) => RenewOutcome::Unanswered(failure.to_error()),
            None => RenewOutcome::Unanswered(failure::of_closing().to_error()),
        };
        outcomes.into_iter().map(answer).collect()
    }

    /// Prolongs every lease that the batch's claims should hang on, once.
    async fn prolong_all(
        self: &Arc<Self>,
        renewals: &[Renewal],
    ) -> HashMap<i64, Result<(), Failure>> {
        let mut sessions: HashMap<i64, Arc<Session>> = HashMap::new();
        for renewal in renewals {
            if let Some(claim) = &renewal.claim
                && has_right_lease(claim, &renewal.request)
            {
                sessions.entry(claim.session.id).or_insert_with(|| Arc::clone(&claim.session));
            }
        }
        let asking: Vec<_> = sessions
            .into_values()
            .map(|session| {
                let store = Arc::clone(self);
                let id = session.id;
                (id, tokio::spawn(async move { store.prolong(&session).await }))
            })
            .collect();
        let mut answers = HashMap::new();
        for (id, asked) in asking {
            answers.insert(id, asked.await.unwrap_or_else(|_| Err(failure::of_closing())));
        }
        answers
    }

    /// That a lease goes on says nothing about a key, and what a watch should have told may not have
    /// been. So all keys are looked at, after their leases were prolonged.
    async fn look_at_held(
        self: &Arc<Self>,
        renewals: &[Renewal],
    ) -> HashMap<Vec<u8>, Result<bool, Failure>> {
        let held: Vec<(Vec<u8>, i64)> = renewals
            .iter()
            .filter_map(|renewal| renewal.claim.as_ref())
            .filter(|claim| claim.is_held())
            .map(|claim| (claim.key.clone(), claim.revision))
            .collect();
        let mut found = HashMap::new();
        for some in held.chunks(OPS_MAX) {
            let seen = self.look_at_keys(some).await;
            let is_mixed = matches!(&seen, Err(failure) if is_of_one(failure)) && some.len() > 1;
            for (at, (key, revision)) in some.iter().enumerate() {
                let seen = match is_mixed {
                    true => self.look_at_keys(&[(key.clone(), *revision)]).await.map(|it| it[0]),
                    false => seen.clone().map(|seen| seen[at]),
                };
                found.insert(key.clone(), seen);
            }
        }
        found
    }

    /// Whether these keys are there, as they were made at their revisions.
    pub(crate) async fn look_at_keys(&self, keys: &[(Vec<u8>, i64)]) -> Result<Vec<bool>, Failure> {
        let get = |(key, _): &(Vec<u8>, i64)| {
            let key = key.clone();
            op(Op::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() }))
        };
        let mut seen = Vec::with_capacity(keys.len());
        for some in keys.chunks(OPS_MAX) {
            let success = some.iter().map(get).collect();
            let request = TxnRequest { success, ..TxnRequest::default() };
            let answer = self.link.repeat_txn(request).await?;
            seen.extend(some.iter().enumerate().map(|(at, (_, revision))| {
                answer.responses.get(at).is_some_and(|it| it.has_key(*revision))
            }));
        }
        Ok(seen)
    }

    fn renewed(&self, request: &RenewRequest, claim: &Claim, asked: Moment) -> Outcome {
        let until = asked + lasting(request.ttl, request.lock_delay);
        let since = match claim.stage {
            Stage::Held { since, .. } => since,
            _ => asked,
        };
        let stage = Stage::Held { until, since };
        Ok(match self.claims.set_stage(request.holder, claim.revision, stage) {
            Some(_) => RenewOutcome::Renewed,
            None => RenewOutcome::Lost(LossCause::SessionEnded),
        })
    }

    /// The key of a holder is gone.
    async fn end_of(&self, request: &RenewRequest, claim: &Claim) -> Outcome {
        let cause = self.why_gone(&claim.key, claim.revision).await;
        if self.claims.find(request.holder).is_some_and(|it| it.revision == claim.revision) {
            self.claims.remove(request.holder);
        }
        Ok(RenewOutcome::Lost(cause))
    }

    /// Puts a key under a lease that lasts as long as is wanted.
    async fn renew_by_writing(self: Arc<Self>, renewal: Renewal, asked: Moment) -> Outcome {
        let Renewal { request, claim } = renewal;
        let lasting = lasting(request.ttl, request.lock_delay);
        let Some(claim) = claim else { return self.renew_elsewhere(&request, lasting).await };
        self.settle_doubt(request.holder).await?;
        let class = class_of(lasting, claim.is_detached);
        let lease = (class, Some(asked));
        let put = self.put_under(request.holder, &claim, lease, State::Held).await?;
        if put.is_none() {
            return self.end_of(&request, &claim).await;
        }
        if matches!(claim.session.class, Class::Own(_)) {
            self.condemn(&claim.session);
        }
        self.renewed(&request, &claim, asked)
    }

    /// Prolongs a lock that was taken over another connection, by another process for example.
    async fn renew_elsewhere(
        self: &Arc<Self>,
        request: &RenewRequest,
        lasting: Duration,
    ) -> Outcome {
        let found = self.read_entry(&request.name, request.holder).await?;
        let Some((entry, true)) = found else {
            return Ok(RenewOutcome::Lost(LossCause::Forgotten));
        };
        let record = entry.record.unwrap_or(Record {
            mode: entry.mode,
            state: State::Held,
            since_us: 0,
            label: None,
        });
        let record = Record { state: State::Held, ..record };
        let mut doubted = Vec::new();
        loop {
            let session = self.open_session(class_of(lasting, true)).await?;
            let put = PutRequest {
                key: entry.key.clone(),
                value: record.write(),
                lease: session.id,
                ..PutRequest::default()
            };
            match self.rewrite(put, entry.revision).await {
                Ok(Some(_)) => break,
                Ok(None) => return Ok(RenewOutcome::Lost(LossCause::Forgotten)),
                Err(failure) if failure.handling.is_in_doubt() && doubted.is_empty() => {
                    doubted.push(session.id);
                }
                Err(failure) => return Err(failure),
            }
        }
        // What was not answered would put the key back under a lease that ends sooner.
        for lease in doubted {
            self.end_lease(lease).await?;
            if self.read_entry(&request.name, request.holder).await?.is_none() {
                return Ok(RenewOutcome::Lost(LossCause::Forgotten));
            }
        }
        Ok(RenewOutcome::Renewed)
    }

    /// The claim of a holder in the store, and whether it has the lock.
    pub(crate) async fn read_entry(
        &self,
        name: &LockName,
        holder: HolderId,
    ) -> Result<Option<(crate::line::Entry, bool)>, Failure> {
        let found = self.read_line(name).await?;
        let line = Line::of(
            found.kvs.iter().filter_map(|kv| crate::line::Entry::read(&self.space, name, kv)),
        );
        let entry = line.granted().map(|entry| (entry, true));
        let entry = entry.chain(line.waiting().map(|entry| (entry, false)));
        let mut entry = entry.filter(|(entry, _)| entry.holder == Some(holder));
        Ok(entry.next().map(|(entry, is_granted)| (entry.clone(), is_granted)))
    }

    /// Why a key is gone, as far as its history tells.
    pub(crate) async fn why_gone(&self, key: &[u8], revision: i64) -> LossCause {
        let asking = self.read_history(key, revision);
        match tokio::time::timeout(WHY_MAX, asking).await {
            Ok(Ok(last)) => cause_of_end(last.as_ref()),
            _ => LossCause::Forgotten,
        }
    }

    /// What a key held when it was deleted.
    async fn read_history(&self, key: &[u8], revision: i64) -> Result<Option<KeyValue>, Failure> {
        let (_, connection) = self.link.current().await?;
        let mut stream = connection.watch();
        let create = WatchOp::Create(WatchCreateRequest {
            key: key.to_vec(),
            start_revision: revision + 1,
            prev_kv: true,
            ..WatchCreateRequest::default()
        });
        let _ = stream.questions.send(WatchRequest { request: Some(create) });
        loop {
            let answer = stream.next().await?;
            let is_end = |kind: i32| kind == i32::from(EventType::Delete);
            if let Some(event) = answer.events.into_iter().find(|event| is_end(event.kind)) {
                return Ok(event.prev_kv);
            }
            if answer.canceled {
                return Ok(None);
            }
        }
    }

    /// Watches the keys that have been held for a while, so that their end is heard of at once, and
    /// no longer those whose claims are gone.
    pub(crate) fn watch_own(self: &Arc<Self>, now: Moment, age: Duration) {
        for claim in self.claims.take_settled(now, age) {
            self.watches.open_key(self, claim.key, claim.revision);
        }
        for key in self.claims.take_gone() {
            self.watches.close_key(&key);
        }
    }
}

/// Whether a claim hangs on a lease that lasts as long as is asked for, and goes on. A lock that outlives
/// this process may have been put under another one by whoever else prolonged it.
fn has_right_lease(claim: &Claim, request: &RenewRequest) -> bool {
    let wanted = class_of(lasting(request.ttl, request.lock_delay), claim.is_detached);
    claim.session.class == wanted && !claim.session.is_closing() && !claim.is_detached
}

#[cfg(test)]
mod tests {
    use lockfast_core::{ClientId, Mode};

    use super::*;

    /// B203: what is renewed on a lease that is being ended would end with it.
    #[test]
    fn a_lease_that_is_being_ended_is_the_wrong_one() {
        let ttl = Duration::from_secs(9);
        let session = Arc::new(Session::new(1, Class::Hold(9), ttl, Moment::now()));
        let claim = Claim {
            name: LockName::new("a").unwrap(),
            mode: Mode::Exclusive,
            key: b"a/1".to_vec(),
            revision: 7,
            written: 7,
            says: State::Held,
            session: Arc::clone(&session),
            stage: Stage::Held { until: Moment::now() + ttl, since: Moment::now() },
            is_detached: false,
            signal: Arc::default(),
        };
        let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
        let name = claim.name.clone();
        let request = RenewRequest { name, holder, ttl, lock_delay: Duration::ZERO };
        assert!(has_right_lease(&claim, &request));
        let longer = RenewRequest { lock_delay: ttl, ..request.clone() };
        assert!(!has_right_lease(&claim, &longer), "it lasts too short");
        assert!(session.close());
        assert!(!has_right_lease(&claim, &request), "it is being ended");
    }
}
