//! What a node says finds the ones whom it concerns.

use std::sync::Arc;

use lockfast_core::{Error, ErrorKind};

use crate::ballot::Said;
use crate::batch::{Batch, Op, Sent, Tries};
use crate::giving::{Gave, Giving};
use crate::node::Node;
use crate::record::Seen;
use crate::renewal::Kept;
use crate::wire::{Failure, Remedy, Reply, failure};

/// Requests that the node did not serve and that are made again.
#[derive(Default)]
struct Repairs {
    again: Vec<Op>,
    broken: Option<Failure>,
}

/// How often a node may have forgotten the scripts.
const TRIES_MAX: u8 = 3;

impl Node {
    /// Hands out the replies to a batch. Returns why the connection is of no use any more, if it
    /// is not.
    pub(crate) fn distribute(&self, batch: Batch, replies: Vec<Reply>) -> Option<Failure> {
        let mut replies = replies.into_iter();
        let mut repairs = Repairs::default();
        let give_runs: Vec<usize> = batch.give_runs().map(<[_]>::len).collect();
        let take_runs: Vec<usize> = batch.take_runs().map(<[_]>::len).collect();
        for failure in replies.by_ref().take(batch.preamble).filter_map(|it| it.failure()) {
            tracing::warn!(node = self.name, failure = failure.message(), "it took no scripts");
        }
        for (renewal, tries, calls) in batch.renewals {
            let replies: Vec<Reply> = replies.by_ref().take(calls).collect();
            match read_renewal(replies, renewal.leases.len(), tries.is_apart) {
                Ok(kept) => {
                    renewal.vote(self.index, kept.clone());
                    if let Some(store) = self.store.upgrade() {
                        store.notice(self, &renewal, &kept);
                    }
                }
                Err(failure) => self.mend(Op::Renew(renewal, tries), failure, &mut repairs),
            }
        }
        let mut gives = batch.gives.into_iter();
        for run in give_runs {
            self.answer_gives(gives.by_ref().take(run), replies.next(), &mut repairs);
        }
        let mut takes = batch.takes.into_iter();
        for run in take_runs {
            self.answer_takes(takes.by_ref().take(run), replies.next(), &mut repairs);
        }
        for (inquiry, tries, count) in batch.inquiries {
            let replies: Vec<Reply> = replies.by_ref().take(count).collect();
            match replies.iter().find_map(Reply::failure) {
                Some(failure) => self.mend(Op::Ask(inquiry, tries), failure, &mut repairs),
                None => inquiry.answer(self.index, Ok(replies)),
            }
        }
        self.requeue(repairs.again);
        repairs.broken
    }

    fn answer_gives(
        &self,
        gives: impl Iterator<Item = (Arc<Giving>, Tries)>,
        reply: Option<Reply>,
        repairs: &mut Repairs,
    ) {
        let (failure, entries) = open(reply);
        for (at, (giving, tries)) in gives.enumerate() {
            let entry = entries.get(at);
            match entry.and_then(Reply::as_int) {
                Some(1) => giving.vote(self.index, Gave::Released),
                Some(_) => giving.vote(self.index, Gave::NotHeld),
                None => {
                    let failure = entry.and_then(Reply::failure).unwrap_or(failure.clone());
                    self.mend(Op::Give(giving, tries), failure, repairs);
                }
            }
        }
    }

    fn answer_takes(
        &self,
        takes: impl Iterator<Item = Sent>,
        reply: Option<Reply>,
        repairs: &mut Repairs,
    ) {
        let Some(store) = self.store.upgrade() else { return };
        let (failure, entries) = open(reply);
        let mut entries = entries.into_iter();
        for Sent { take, counts, .. } in takes {
            match entries.next() {
                Some(_) if !counts => {}
                Some(entry) => {
                    let said = read_vote(entry).unwrap_or_else(Said::Failed);
                    store.vote(&take.claim, take.round, self.index, said);
                }
                None if !counts => {}
                None => self.mend(Op::Take(take), failure.clone(), repairs),
            }
        }
    }

    /// Makes a request again, if that can help, or tells.
    fn mend(&self, mut op: Op, failure: Failure, repairs: &mut Repairs) {
        let is_about_locks = !matches!(op, Op::Ask(..));
        let Some(tries) = op.tries() else { return self.fail_op(op, &failure) };
        tries.count += 1;
        let may_repeat = tries.count < TRIES_MAX;
        match failure.handling {
            Remedy::LoadScripts if may_repeat => {
                self.ask_for_scripts();
                repairs.again.push(op);
            }
            Remedy::Enroll(ref rival) if may_repeat => {
                self.ask_for_enrolment(rival);
                repairs.again.push(op);
            }
            // Others of the call may be innocent.
            Remedy::AskApart if is_about_locks && !tries.is_apart => {
                tries.is_apart = true;
                repairs.again.push(op);
            }
            Remedy::Reconnect => {
                self.fail_op(op, &failure);
                repairs.broken = Some(failure);
            }
            _ => self.fail_op(op, &failure),
        }
    }

    /// A batch was lost on the way.
    pub(crate) fn fail_batch(&self, batch: Batch, failure: &Failure) {
        let renewals = batch.renewals.into_iter().map(|(it, tries, _)| Op::Renew(it, tries));
        let gives = batch.gives.into_iter().map(|(it, tries)| Op::Give(it, tries));
        let takes = batch.takes.into_iter().filter(|it| it.counts).map(|it| Op::Take(it.take));
        let inquiries = batch.inquiries.into_iter().map(|(it, tries, _)| Op::Ask(it, tries));
        renewals
            .chain(gives)
            .chain(takes)
            .chain(inquiries)
            .for_each(|op| self.fail_op(op, failure));
    }
}

/// The entries of a script's answer, and what to tell those for whom there is none.
fn open(reply: Option<Reply>) -> (Failure, Vec<Reply>) {
    let nonsense = || failure::of_nonsense("a decision of another form");
    let failure = reply.as_ref().and_then(Reply::failure).unwrap_or_else(nonsense);
    let entries = match reply.map(Reply::into_list) {
        Some(Ok(entries)) => entries,
        Some(Err(alone)) if alone.as_int() == Some(1) => vec![alone],
        _ => Vec::new(),
    };
    (failure, entries)
}

/// Reads one entry of the acquisition script's answer.
fn read_vote(entry: Reply) -> Result<Said, Failure> {
    if entry.as_int() == Some(1) {
        return Ok(Said::Granted);
    }
    let nonsense = || failure::of_nonsense("an acquisition of another form");
    let fields = entry.into_list().map_err(|_| nonsense())?;
    let (code, fields) = fields.split_first().ok_or_else(nonsense)?;
    let number = || {
        let number = fields.first().and_then(Reply::as_int);
        number.and_then(|number| u64::try_from(number).ok()).ok_or_else(nonsense)
    };
    match code.as_int() {
        Some(0) => Seen::read(fields).map(Said::Held).ok_or_else(nonsense),
        Some(1) => number().map(Said::TooLow),
        Some(2) => number().map(Said::Ahead),
        Some(3) => number().map(Said::Own),
        Some(4) => Err(Failure::new(
            ErrorKind::ForeignKey,
            "a key of this name is in use for something that is no lock; choose another name or \
             set the option prefix",
        )),
        Some(5) => Err(Failure::new(
            ErrorKind::CorruptRecord,
            "the key of the lock's fence does not hold one; repair or delete it",
        )),
        Some(6) => Err(Failure::new(
            ErrorKind::CorruptRecord,
            "the key of those who wait for the lock is no sorted set; delete it",
        )),
        _ => Err(nonsense()),
    }
}

fn read_renewal(replies: Vec<Reply>, leases: usize, is_apart: bool) -> Result<Vec<Kept>, Failure> {
    let nonsense = || failure::of_nonsense("a renewal of another form");
    let mut kept = Vec::with_capacity(leases);
    for reply in replies {
        match reply.failure() {
            // It concerns none of the others.
            Some(failure) if is_apart && failure.handling == Remedy::AskApart => {
                kept.push(Kept::Failed(failure));
            }
            Some(failure) => return Err(failure),
            None => {
                for entry in reply.into_list().map_err(|_| nonsense())? {
                    kept.push(Kept::read(entry).ok_or_else(nonsense)?);
                }
            }
        }
    }
    if kept.len() == leases { Ok(kept) } else { Err(nonsense()) }
}

/// The public error of a failure.
pub(crate) fn to_error(failure: &Failure) -> Error {
    failure.to_error().with_backend("redlock")
}
