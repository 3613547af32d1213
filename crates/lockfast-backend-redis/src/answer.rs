//! What the server says finds the one whom it concerns.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lockfast_core::lobby::{Place, Purpose};
use lockfast_core::{
    ErrorKind, Fence, Grant, HolderId, LossCause, Mode, Moment, ReleaseOutcome, Retry,
};

use crate::batch::{Asker, Batch, Give, Op, Renew, Renewal, Take, Then};
use crate::claim::{Admission, Answer, Claim};
use crate::record;
use crate::store::{Store, lock};
use crate::wire::failure::Remedy;
use crate::wire::{Failure, Reply, failure};

impl Store {
    /// Hands out the replies to a batch. Returns why the connection is of no use any more, if it
    /// is not.
    pub(crate) fn distribute(
        &self,
        batch: Batch,
        sent: Moment,
        replies: Vec<Reply>,
    ) -> Option<Failure> {
        let mut replies = replies.into_iter();
        let mut repairs = Repairs::default();
        for failure in replies.by_ref().take(batch.preamble).filter_map(|reply| reply.failure()) {
            self.forget_channels();
            tracing::warn!(failure = failure.message(), "the server could not be prepared");
            repairs.unprepared.get_or_insert(failure);
        }
        let simple = batch.simple;
        self.answer_simple(simple.renews, simple.takes, sent, &mut replies, &mut repairs);
        let renewed: Vec<_> = batch
            .renews
            .iter()
            .map(|renew| Reply::join(replies.by_ref().take(renew.runs().len()).collect()))
            .collect();
        let taken: Vec<_> = replies.by_ref().take(batch.take_runs.len()).collect();
        let shortage = match batch.counts_replicas {
            true => replies.next().and_then(|reply| self.count_replicas(&reply)),
            false => None,
        };
        for (renew, reply) in batch.renews.into_iter().zip(renewed) {
            self.answer_renew(renew, reply, &mut repairs);
        }
        let mut takes = batch.takes.into_iter();
        for (run, reply) in batch.take_runs.into_iter().zip(taken) {
            let takes = takes.by_ref().take(run).collect();
            self.answer_takes(takes, reply, sent, shortage.as_ref(), &mut repairs);
        }
        let mut gives = batch.gives.into_iter();
        for (run, reply) in batch.give_runs.iter().copied().zip(replies.by_ref()) {
            self.answer_gives(gives.by_ref().take(run).collect(), reply, &mut repairs);
        }
        for (plain, count) in batch.plains {
            let replies: Vec<_> = replies.by_ref().take(count).collect();
            match replies.iter().find_map(Reply::failure) {
                Some(failure) => repairs.add(Op::Plain(plain), failure),
                None => drop(plain.asker.send(Ok(replies))),
            }
        }
        if !simple.gives.is_empty() {
            self.answer_simple_gives(simple.gives, replies.next(), &mut repairs);
        }
        self.repair(repairs)
    }

    /// Whether too few replicas have what was asked for.
    fn count_replicas(&self, reply: &Reply) -> Option<Failure> {
        let wanted = self.config().min_replicas;
        match reply.as_int() {
            Some(count) if count >= i64::from(wanted) => None,
            Some(count) => Some(Failure::new(
                ErrorKind::Unreachable,
                format!("only {count} of {wanted} replicas confirmed the grant, so it was undone"),
            )),
            None => Some(reply.failure().unwrap_or_else(|| failure::of_nonsense("WAIT"))),
        }
    }

    fn answer_takes(
        &self,
        takes: Vec<Take>,
        reply: Reply,
        sent: Moment,
        shortage: Option<&Failure>,
        repairs: &mut Repairs,
    ) {
        if let Some(failure) = reply.failure() {
            takes.into_iter().for_each(|take| repairs.add(Op::Take(take), failure.clone()));
            return;
        }
        let entries = reply.into_list().unwrap_or_default();
        if entries.len() != takes.len() {
            let failure = failure::of_nonsense("too few acquisitions");
            takes.into_iter().for_each(|take| repairs.add(Op::Take(take), failure.clone()));
            return;
        }
        for (take, entry) in takes.into_iter().zip(entries) {
            match Admission::read(&take.claim, entry) {
                Err(failure) => repairs.add(Op::Take(take), failure),
                Ok(admission) => self.admit(take, admission, sent, shortage),
            }
        }
    }

    pub(crate) fn admit(
        &self,
        take: Take,
        admission: Admission,
        sent: Moment,
        shortage: Option<&Failure>,
    ) {
        let Take { claim, purpose, .. } = take;
        let askers = match (purpose, &admission) {
            (Purpose::First(asker), Admission::Waiting(place)) => {
                // Whoever gave up releases it, or has asked again.
                if !asker.is_closed() {
                    self.let_wait(claim, asker, *place, sent);
                }
                return;
            }
            (_, Admission::Waiting(place)) => {
                return self.lobby.stay(claim.holder, *place, sent);
            }
            (purpose, _) => self.lobby.settle(claim.holder, purpose),
        };
        match admission {
            Admission::Waiting(_) => {}
            Admission::Taken(seen) => {
                tell_all(askers, || Answer::Taken(seen.clone()));
            }
            Admission::Granted(_) if shortage.is_some() => {
                let Some(failure) = shortage else { return };
                self.refuse(&claim, askers, failure);
            }
            Admission::Granted(fence) => {
                self.remember(&claim, fence);
                tell_all(askers, || Answer::Granted(Grant::new(fence, sent)));
            }
        }
    }

    /// Lets a claim wait until its turn comes. Pushes are heard before answers: what was offered
    /// already may be over by now, so it looks.
    fn let_wait(&self, claim: Arc<Claim>, asker: Asker<Answer>, place: Place, sent: Moment) {
        let offer = self.lobby.enter(Arc::clone(&claim), asker, place, sent);
        // For cargo xtask soak --undone: shows that torture finds it.
        if offer.is_some() && !cfg!(lockfast_undone = "B18") {
            self.submit(Op::Take(Take { claim, purpose: Purpose::Look, tries: 0 }));
        }
    }

    /// Undoes a grant and then tells why.
    pub(crate) fn refuse(&self, claim: &Arc<Claim>, askers: Vec<Asker<Answer>>, failure: &Failure) {
        let then = Then::Refuse(askers, failure.clone());
        self.submit(Op::Give(Give::of_claim(claim, then)));
    }

    pub(crate) fn remember(&self, claim: &Claim, fence: Fence) {
        self.simplicity.note_grant(claim.holder, claim.mode);
        if let Some(held) = &self.held {
            lock(held).insert(claim.holder, (claim.mode, fence));
        }
    }

    /// Takes note of how a holder has its lock from now on. Returns how it had it, if that is known.
    pub(crate) fn change_mode(&self, holder: HolderId, mode: Mode) -> Option<Mode> {
        let mut held = lock(self.held.as_ref()?);
        held.get_mut(&holder).map(|(before, _)| std::mem::replace(before, mode))
    }

    pub(crate) fn forget(&self, holder: HolderId) {
        self.simplicity.note_end(holder);
        if let Some(held) = &self.held {
            lock(held).remove(&holder);
        }
    }

    fn answer_gives(&self, gives: Vec<Give>, reply: Reply, repairs: &mut Repairs) {
        let failure = reply.failure();
        let entries = reply.into_list().unwrap_or_default();
        self.note_heirs(entries.iter());
        for (at, give) in gives.into_iter().enumerate() {
            let outcome = match entries.get(at).and_then(Reply::as_int) {
                Some(1 | 2) => ReleaseOutcome::Released,
                Some(0) => ReleaseOutcome::NotHeld,
                _ => {
                    let nonsense = || failure::of_nonsense("a release of another form");
                    let its_own = || entries.get(at).and_then(Reply::failure);
                    let failure = failure.clone().or_else(its_own).unwrap_or_else(nonsense);
                    repairs.add(Op::Give(give), failure);
                    continue;
                }
            };
            self.tell_given(give, outcome);
        }
    }

    pub(crate) fn tell_given(&self, give: Give, outcome: ReleaseOutcome) {
        self.forget(give.holder);
        self.unsettled.settle(give.holder);
        give.into_thens().for_each(|then| then.tell(Ok(&outcome)));
    }

    fn answer_renew(&self, renew: Renew, reply: Reply, repairs: &mut Repairs) {
        if let Some(failure) = reply.failure() {
            return repairs.add(Op::Renew(renew), failure);
        }
        let entries = reply.into_list().unwrap_or_default();
        let outcomes: Option<Vec<_>> = entries.into_iter().map(Renewal::read).collect();
        match outcomes.filter(|outcomes| outcomes.len() == renew.leases.len()) {
            Some(outcomes) => {
                let is_gone = |it: &Renewal| matches!(it, Renewal::Lost(LossCause::DataLost));
                if outcomes.iter().any(is_gone) {
                    tracing::warn!("the server has lost data");
                    if self.held.is_some() {
                        // With the quarantine, what we hold is written down again.
                        repairs.add(Op::Renew(renew), failure::of_server("LFGUARD", None));
                        return;
                    }
                    self.ask_for_enrolment(record::NO_LINK);
                }
                drop(renew.asker.send(Ok(outcomes)));
            }
            None => {
                repairs.add(Op::Renew(renew), failure::of_nonsense("a renewal of another form"));
            }
        }
    }

    /// Repeats what can be repeated, tells the rest.
    pub(crate) fn repair(&self, repairs: Repairs) -> Option<Failure> {
        let mut again = Vec::new();
        let mut broken = None;
        let Repairs { refused, unprepared } = repairs;
        for (mut op, failure) in refused {
            // What the server lacks it was given in the same breath: why it did not take that says
            // more than that it lacks it still.
            let lacks = matches!(failure.handling, Remedy::LoadScripts | Remedy::Enroll(_));
            let failure = unprepared.clone().filter(|_| lacks).unwrap_or(failure);
            match &failure.handling {
                Remedy::Ask(place) => self.ask_there(op, place, &failure),
                Remedy::TryAgain => self.try_soon(op, &failure),
                Remedy::LookCloser => match op.try_again() {
                    true => again.push(op),
                    false => self.fail_op(op, &failure),
                },
                Remedy::AskApart if op.set_apart() && op.try_again() => again.push(op),
                Remedy::Tell | Remedy::AskApart => self.fail_op(op, &failure),
                Remedy::Follow => match self.cluster.as_ref().and_then(Weak::upgrade) {
                    Some(cluster) if op.try_again() => cluster.follow(op),
                    Some(_) => self.fail_op(op, &failure::of_disagreement()),
                    None => self.fail_op(op, &failure),
                },
                Remedy::Reconnect => {
                    self.fail_op(op, &failure);
                    broken = Some(failure);
                }
                Remedy::Wait(ms) => self.postpone(op, &failure, Duration::from_millis(*ms)),
                Remedy::LoadScripts | Remedy::Enroll(_) | Remedy::ReconnectAndRepeat => {
                    match &failure.handling {
                        Remedy::LoadScripts => self.ask_for_scripts(),
                        Remedy::Enroll(rival) => self.ask_for_enrolment(rival),
                        _ => broken = Some(failure.clone()),
                    }
                    if op.try_again() {
                        again.push(op);
                    } else {
                        self.fail_op(op, &failure);
                    }
                }
            }
        }
        self.requeue(again);
        broken
    }

    /// Nothing is granted for a while: whoever may wait does.
    pub(crate) fn postpone(&self, op: Op, failure: &Failure, pause: Duration) {
        let (place, now) = (Place { blocked: Some(pause), now_us: None }, Moment::now());
        match op {
            Op::Take(Take { claim, purpose: Purpose::First(asker), .. })
                if claim.wait.is_open() =>
            {
                self.let_wait(claim, asker, place, now);
            }
            Op::Take(Take { claim, purpose: Purpose::Look, .. }) => {
                self.lobby.stay(claim.holder, place, now);
            }
            op => self.fail_op(op, failure),
        }
    }

    /// Tells whoever asked that there is no answer.
    pub(crate) fn fail_op(&self, op: Op, failure: &Failure) {
        match op {
            Op::Take(take) => {
                let askers = self.lobby.miss(take, failure.retry() == Retry::Later);
                askers.into_iter().for_each(|asker| drop(asker.send(Err(failure.clone()))));
            }
            Op::Give(give) => give.into_thens().for_each(|then| then.tell(Err(failure))),
            Op::Renew(renew) => drop(renew.asker.send(Err(failure.clone()))),
            Op::Plain(plain) => drop(plain.asker.send(Err(failure.clone()))),
        }
    }
}

/// Requests that the server did not serve, and why.
#[derive(Default)]
pub(crate) struct Repairs {
    refused: Vec<(Op, Failure)>,
    /// Why it did not take the scripts, or us, when it was given them before these requests.
    unprepared: Option<Failure>,
}

impl Repairs {
    pub(crate) fn add(&mut self, op: Op, failure: Failure) {
        self.refused.push((op, failure));
    }
}

/// Gives the same answer to all who asked the same.
pub(crate) fn tell_all(askers: Vec<Asker<Answer>>, answer: impl Fn() -> Answer) -> bool {
    // Not `any`: everybody is told.
    askers.into_iter().filter_map(|asker| asker.send(Ok(answer())).ok()).count() > 0
}
