//! Claims that end without their holders' asking: leases that nobody prolonged, turns that nobody
//! took, and what an operator takes away.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::time::wall_clock_us;
use lockfast_core::{
    HolderId, LockName, LossCause, Mode, Moment, ReleaseOutcome, ReleaseRequest, RevokeOutcome,
    RevokeRequest,
};

use crate::acquire::fence_of;
use crate::batch::{OPS_MAX, delete, op, written_at};
use crate::claim::{Claim, Stage};
use crate::failure::Failure;
use crate::line::{Entry, Line, Place};
use crate::record::{Record, State};
use crate::store::Store;
use crate::wire::{KeyValue, Op, PutRequest, RangeRequest, TxnRequest};

/// How long whoever got its turn has to confirm that before others give it up.
const CONFIRM_MAX: Duration = Duration::from_millis(1500);
/// How long it may not be certain that somebody has its turn, so that it is known when to give it up.
const UNSURE_MAX: Duration = Duration::from_millis(100);
/// When it is tried again to end a claim.
const END_AGAIN: Duration = Duration::from_secs(1);
/// How often a revocation is tried when the lock changes meanwhile.
const TRIES_MAX: usize = 10;

impl Store {
    /// Gives back what a holder has, or takes back what it wants.
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseOutcome, Failure> {
        let entering = self.gates.enter(request.holder);
        let _passed = entering.pass().await;
        if let Some(claim) = self.claims.find(request.holder) {
            let was_held = match claim.stage {
                Stage::Waiting => false,
                Stage::Turn(_) | Stage::Held { .. } => true,
                Stage::Leaving { was_held, .. } => was_held,
            };
            let was_there = self.remove(request.holder, &claim).await?;
            return Ok(match was_held && was_there {
                true => ReleaseOutcome::Released,
                false => ReleaseOutcome::NotHeld,
            });
        }
        self.settle_doubt(request.holder).await?;
        let Some((entry, is_granted)) = self.read_entry(&request.name, request.holder).await?
        else {
            return Ok(ReleaseOutcome::NotHeld);
        };
        let was_there = self.delete(&entry.key, entry.revision).await?;
        Ok(match is_granted && was_there {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::NotHeld,
        })
    }

    /// Ends the leases whose time is up, as the store would if each hung on a lease of its own, and
    /// tries again what could not be given back.
    pub(crate) fn end_due(self: &Arc<Self>, now: Moment) {
        for (holder, claim) in self.claims.take_due(now) {
            let store = Arc::clone(self);
            self.context.runtime.spawn(async move {
                let ended = store.end_claim(holder, claim.revision).await;
                if let Err(failure) = ended {
                    tracing::debug!(failure = failure.message(), "a claim did not end yet");
                }
                store.claims.look_again(holder, claim.revision, Moment::now() + END_AGAIN);
            });
        }
    }

    async fn end_claim(self: &Arc<Self>, holder: HolderId, revision: i64) -> Result<(), Failure> {
        let entering = self.gates.enter(holder);
        let _passed = entering.pass().await;
        let Some(claim) = self.claims.find(holder).filter(|it| it.revision == revision) else {
            return Ok(());
        };
        match claim.stage {
            Stage::Leaving { .. } => self.remove(holder, &claim).await.map(|_| ()),
            Stage::Held { until, .. } if until.has_passed(Moment::now()) => {
                self.expire(holder, &claim).await
            }
            _ => Ok(()),
        }
    }

    async fn expire(self: &Arc<Self>, holder: HolderId, claim: &Claim) -> Result<(), Failure> {
        let mut put = claim.put(&self.context.label, State::Expired);
        (put.ignore_lease, put.lease) = (true, 0);
        let mut expected = claim.written;
        while self.rewrite_if(put.clone(), claim.revision, Some(expected)).await?.is_none() {
            let found = self.read_key(&claim.key).await?;
            match found.filter(|kv| kv.create_revision == claim.revision) {
                // We wrote it, and did not hear of it.
                Some(kv) if self.sessions.find(kv.lease).is_some() => expected = kv.mod_revision,
                // It is gone; or whoever prolonged it from elsewhere has put it under another lease.
                _ => {
                    self.claims.lose(&claim.key, claim.revision, LossCause::Forgotten);
                    return Ok(());
                }
            }
        }
        self.context.losses.report(holder, LossCause::Forgotten);
        self.remove(holder, claim).await.map(|_| ())
    }

    pub(crate) async fn read_key(&self, key: &[u8]) -> Result<Option<KeyValue>, Failure> {
        let request = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
        Ok(self.link.range(request).await?.kvs.pop())
    }

    /// Writes into keys why they end, and deletes them, if they are as they were. Returns whether
    /// they were.
    async fn end_keys(&self, keys: Vec<(PutRequest, i64)>) -> Result<bool, Failure> {
        let mut request = TxnRequest::default();
        for (put, written) in &keys {
            request.compare.push(written_at(&put.key, *written));
            request.success.push(op(Op::Put(put.clone())));
        }
        let answer = self.link.repeat_txn(request).await?;
        if !answer.succeeded {
            return Ok(false);
        }
        let revision = answer.header.map_or(0, |header| header.revision);
        let mut request = TxnRequest::default();
        for (put, _) in keys {
            request.compare.push(written_at(&put.key, revision));
            request.success.push(delete(put.key));
        }
        let answer = self.link.repeat_txn(request).await?;
        Ok(answer.succeeded)
    }

    /// Whoever got its turn and did not confirm that is dead or hangs: all claims of its process
    /// are taken out of the line by whoever waits behind.
    pub(crate) fn evict(self: &Arc<Self>, now: Moment) {
        let (mut evicted, mut unsure): (Vec<Vec<Entry>>, Vec<LockName>) = Default::default();
        self.watches.for_each_line(|name, line| {
            let is_ours = |key: &[u8]| self.claims.has_key(key);
            evicted.extend(find_hung(line, now, is_ours));
            if line.has_unsure_turn(now, UNSURE_MAX)
                && line.waiting().any(|entry| is_ours(&entry.key))
            {
                unsure.push(name.clone());
            }
        });
        unsure.iter().for_each(|name| self.look_now(name, UNSURE_MAX));
        for entries in evicted {
            let store = Arc::clone(self);
            self.context.runtime.spawn(async move {
                let mut request = TxnRequest::default();
                for entry in entries {
                    request.compare.push(written_at(&entry.key, entry.written));
                    request.success.push(delete(entry.key));
                }
                let answer = store.link.txn(request).await;
                if let Err(failure) = answer {
                    tracing::debug!(failure = failure.message(), "a dead claim is still there");
                }
            });
        }
    }

    /// Takes a lock away from whoever has it, and from nobody who gets it meanwhile.
    pub(crate) async fn revoke(
        self: &Arc<Self>,
        request: &RevokeRequest,
    ) -> Result<RevokeOutcome, Failure> {
        let line = self.look_at_line(&request.name).await?;
        let mut holders: Vec<Entry> = line.granted().cloned().collect();
        if holders.is_empty() {
            return Ok(RevokeOutcome::NotHeld);
        }
        let views = self.views(holders.iter()).await;
        if let Some(expected) = request.expect_fence {
            let has_it = |entry: &Entry| fence_of(entry.revision).is_ok_and(|it| it == expected);
            if !holders.iter().any(has_it) {
                return Ok(RevokeOutcome::OtherFence(views));
            }
        }
        for _ in 0..TRIES_MAX {
            if self.end_holders(&holders, &request.reason).await? {
                return Ok(RevokeOutcome::Revoked(views));
            }
            // Something was written meanwhile, or an answer was lost: whoever is gone is gone.
            let line = self.look_at_line(&request.name).await?;
            let present = holders.iter().filter_map(|holder| line.find(&holder.key));
            let places: HashSet<Place> = holders.iter().map(Entry::place).collect();
            holders = present.filter(|entry| places.contains(&entry.place())).cloned().collect();
        }
        Err(Failure::new(
            lockfast_core::ErrorKind::Unreachable,
            "the lock changed again and again while it was taken away",
        ))
    }

    async fn look_at_line(&self, name: &LockName) -> Result<Line, Failure> {
        let found = self.read_line(name).await?;
        Ok(Line::of(found.kvs.iter().filter_map(|kv| Entry::read(&self.space, name, kv))))
    }

    /// Ends these claims if they are as they were. Returns whether they were.
    async fn end_holders(&self, holders: &[Entry], reason: &str) -> Result<bool, Failure> {
        for some in holders.chunks(OPS_MAX) {
            let keys = some.iter().map(|entry| (revoked(entry, reason), entry.written));
            if !self.end_keys(keys.collect()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The claims of a process that got its turn and did not confirm it in time, if one of ours waits behind.
/// Whoever else of that process has the lock and is not late keeps it, and so does whoever may have got its
/// turn later than it seemed, because news of somebody ahead of it was lost.
fn find_hung(line: &Line, now: Moment, is_ours: impl Fn(&[u8]) -> bool) -> Option<Vec<Entry>> {
    let is_late = |entry: &Entry| {
        entry.sure.is_some()
            && entry.unconfirmed.is_some_and(|since| now.since(since) > CONFIRM_MAX)
    };
    let is_hung = |entry: &&Entry| is_late(entry) && !is_ours(&entry.key) && entry.holder.is_some();
    let hung = line.granted().find(is_hung)?;
    line.waiting().find(|entry| is_ours(&entry.key))?;
    let of_process = |entry: &&Entry| entry.lease == hung.lease && entry.holder.is_some();
    let late = line.granted().filter(|entry| is_late(entry));
    // Behind a lock that is held alone nobody can get his turn before it is taken away.
    let is_alone = hung.mode == Mode::Exclusive;
    let behind = line.waiting().filter(|entry| is_alone && entry.is_waiting());
    Some(late.chain(behind).filter(of_process).take(OPS_MAX).cloned().collect())
}

fn revoked(entry: &Entry, reason: &str) -> PutRequest {
    let state = State::Revoked { reason: reason.to_owned() };
    let record = match &entry.record {
        Some(record) => Record { state, ..record.clone() },
        None => Record { mode: entry.mode, state, since_us: wall_clock_us(), label: None },
    };
    PutRequest {
        key: entry.key.clone(),
        value: record.write(),
        ignore_lease: true,
        ..PutRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use lockfast_core::ClientId;

    use super::*;
    use crate::line::Origin;

    /// A claim that hangs on a lease: those of one process have one in common.
    fn entry(revision: i64, mode: Mode, lease: i64) -> Entry {
        let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
        let record = Record { mode, state: State::Waiting, since_us: 0, label: None };
        Entry {
            key: format!("a/{revision:x}").into_bytes(),
            revision,
            written: revision,
            lease,
            holder: Some(holder),
            mode,
            record: Some(record),
            unconfirmed: None,
            sure: None,
            origin: Origin::Unknown,
        }
    }

    fn places(entries: Option<Vec<Entry>>) -> Vec<i64> {
        entries.unwrap_or_default().iter().map(|entry| entry.revision).collect()
    }

    /// B205: a process of which one claim is late may have got its turn with another just now.
    #[test]
    fn whoever_is_not_late_is_not_evicted() {
        let (start, late) = (Moment::now(), CONFIRM_MAX + Duration::from_millis(1));
        let is_ours = |key: &[u8]| key == b"a/9";
        let mut line = Line::default();
        line.prove(9, start);
        line.put(entry(1, Mode::Shared, 7), start);
        line.put(entry(2, Mode::Shared, 7), start + late);
        line.put(entry(3, Mode::Shared, 8), start);
        line.put(entry(4, Mode::Exclusive, 7), start);
        assert_eq!(places(find_hung(&line, start + late, is_ours)), [0; 0], "nobody waits here");
        line.put(entry(9, Mode::Exclusive, 1), start);
        assert_eq!(places(find_hung(&line, start, is_ours)), [0; 0], "nobody is late");
        assert_eq!(places(find_hung(&line, start + late, is_ours)), [1]);
    }

    /// B208: the first in what is known of the line may have got its turn long after it seemed, because
    /// somebody was ahead of it of whom nobody told: it is given its whole time from when that is certain.
    #[test]
    fn whoever_may_have_got_its_turn_later_is_not_evicted() {
        let (start, late) = (Moment::now(), CONFIRM_MAX + Duration::from_millis(1));
        let is_ours = |key: &[u8]| key == b"a/9";
        let mut line = Line::default();
        line.put(entry(1, Mode::Exclusive, 7), start);
        line.put(entry(9, Mode::Exclusive, 1), start);
        assert_eq!(places(find_hung(&line, start + late, is_ours)), [0; 0], "it is not certain");
        assert!(line.has_unsure_turn(start + late, UNSURE_MAX));
        assert!(!line.has_unsure_turn(start, UNSURE_MAX), "it is new");
        line.prove(5, start + late);
        assert!(!line.has_unsure_turn(start + late, UNSURE_MAX));
        assert_eq!(places(find_hung(&line, start + late, is_ours)), [0; 0], "it is not late");
        assert_eq!(places(find_hung(&line, start + late * 2, is_ours)), [1]);
    }

    #[test]
    fn all_of_a_process_that_hangs_are_evicted_at_once() {
        let (start, late) = (Moment::now(), CONFIRM_MAX + Duration::from_millis(1));
        let mut line = Line::default();
        line.prove(9, start);
        for (revision, lease) in [(1, 7), (2, 7), (3, 8), (4, 7), (9, 1)] {
            line.put(entry(revision, Mode::Exclusive, lease), start);
        }
        let hung = find_hung(&line, start + late, |key| key == b"a/9");
        assert_eq!(places(hung), [1, 2, 4]);
    }
}
