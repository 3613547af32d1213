//! What the server says finds the one whom it concerns.

use lockfast_core::lobby::Purpose;
use lockfast_core::{Grant, LossCause, Moment, ReleaseOutcome, Retry};

use crate::batch::{Asker, Batch, Op, Renew, Renewal, Take};
use crate::claim::{Admission, Answer};
use crate::failure::{self, Failure, Remedy};
use crate::inspect::read_label;
use crate::store::Store;
use crate::wire::get;

/// The code of a request that was in the way of others and must be repeated.
const UNSERVED: i16 = 10;

/// The server's answer to a batch: one entry for each line.
pub(crate) struct Reply {
    codes: Vec<i16>,
    numbers: Vec<Option<i64>>,
    /// Absent when there is nothing to say about any.
    notes: Option<Vec<Option<String>>>,
    now_us: i64,
    /// The locks of which somebody has to be told.
    pub(crate) owed: Vec<String>,
}

impl Reply {
    pub(crate) fn read(row: &tokio_postgres::Row) -> Result<Self, Failure> {
        Ok(Self {
            codes: get(row, 0)?,
            numbers: get(row, 1)?,
            notes: get(row, 2)?,
            now_us: get(row, 3)?,
            owed: get::<Option<Vec<String>>>(row, 4)?.unwrap_or_default(),
        })
    }

    /// Reads the answer to a request for `name` that was asked alone: code, number, clock, whether
    /// somebody has to be told, and note.
    pub(crate) fn read_one(line: &str, name: &str) -> Result<Self, Failure> {
        let read = || {
            let mut fields = line.splitn(5, ' ');
            let code = fields.next()?.parse().ok()?;
            let number = match fields.next()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            let now_us = fields.next()?.parse().ok()?;
            let owed = if fields.next()? == "1" { vec![name.to_owned()] } else { Vec::new() };
            let notes = fields.next().map(|note| vec![Some(note.to_owned())]);
            Some(Self { codes: vec![code], numbers: vec![number], notes, now_us, owed })
        };
        read().ok_or_else(|| failure::of_nonsense("an answer of another form"))
    }

    fn note(&self, at: usize) -> Option<&str> {
        self.notes.as_ref()?.get(at)?.as_deref()
    }
}

impl Store {
    /// Hands out the answers to a batch.
    pub(crate) fn distribute(&self, mut batch: Batch, sent: Moment, reply: &Reply) {
        let lines = std::mem::take(&mut batch.lines);
        if reply.codes.len() != lines.len() || reply.numbers.len() != lines.len() {
            let failure = failure::of_nonsense("too few lines");
            batch.into_ops().for_each(|op| self.fail_op(op, &failure));
            return;
        }
        self.expect(lines.len());
        let mut renewals: Vec<(usize, Vec<Option<Renewal>>)> = Vec::new();
        let mut again = Vec::new();
        for (at, line) in lines.into_iter().enumerate() {
            let (code, number, note) = (reply.codes[at], reply.numbers[at], reply.note(at));
            if let Some(Op::Renew(renew)) = &batch.ops[line.op] {
                let found = renewals.iter_mut().find(|(op, _)| *op == line.op);
                let outcomes = match found {
                    Some((_, outcomes)) => outcomes,
                    None => {
                        renewals.push((line.op, vec![None; renew.leases.len()]));
                        let Some((_, outcomes)) = renewals.last_mut() else { continue };
                        outcomes
                    }
                };
                outcomes[line.lease] = read_renewal(code, note);
                continue;
            }
            match batch.ops[line.op].take() {
                Some(op @ Op::Take(_)) if code == UNSERVED => again.push(op),
                Some(Op::Take(take)) => {
                    match Admission::read(&take.claim, code, number, note, reply.now_us) {
                        Ok(admission) => self.admit(take, admission, sent),
                        Err(failure) => self.fail_op(Op::Take(take), &failure),
                    }
                }
                Some(Op::Give(give)) => {
                    let outcome = match code {
                        1 => Ok(ReleaseOutcome::Released),
                        _ if give.doubtful => Err(failure::of_doubt()),
                        _ => Ok(ReleaseOutcome::NotHeld),
                    };
                    give.asker.into_iter().for_each(|asker| drop(asker.send(outcome.clone())));
                }
                _ => {}
            }
        }
        for (op, outcomes) in renewals {
            let Some(Op::Renew(renew)) = batch.ops[op].take() else { continue };
            answer_renew(renew, outcomes);
        }
        if !again.is_empty() {
            let failure = failure::of_haste();
            self.repeat(again, &failure);
        }
    }

    fn admit(&self, take: Take, admission: Admission, sent: Moment) {
        let Take { claim, purpose, .. } = take;
        let askers = match (purpose, &admission) {
            (Purpose::First(asker), Admission::Waiting(place)) => {
                // Whoever gave up releases it, or has asked again.
                if !asker.is_closed() {
                    let early = self.lobby.enter(claim, asker, *place, sent);
                    self.expects_mail.notify_one();
                    early.into_iter().for_each(|offer| self.take_offer(&offer));
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
            Admission::Taken(view) => {
                tell_all(askers, &Answer::Taken(view));
            }
            Admission::Granted(fence) => {
                tell_all(askers, &Answer::Granted(Grant::new(fence, sent)));
            }
        }
    }

    /// A batch could not be asked. Returns why the connection is of no use any more, if it is not.
    pub(crate) fn recover(&self, mut ops: Vec<Op>, failure: Failure) -> Option<Failure> {
        if failure.handling.is_unproven {
            ops.iter_mut().for_each(Op::doubt);
        }
        match failure.handling.remedy {
            // It counts when it comes again.
            Remedy::Tell if failure.handling.is_unproven && ops.iter_mut().all(Op::is_fresh) => {
                ops.iter_mut().for_each(|op| _ = op.try_again());
                self.separate(ops);
                return None;
            }
            Remedy::Tell if ops.len() > 1 => {
                self.separate(ops);
                return None;
            }
            Remedy::Tell => {
                ops.into_iter().for_each(|op| self.fail_op(op, &failure));
                return None;
            }
            Remedy::TellAndReconnect => {
                ops.into_iter().for_each(|op| self.fail_op(op, &failure));
                return Some(failure);
            }
            Remedy::Enrol => self.ask_for_enrolment(),
            Remedy::Repeat => {}
            Remedy::Reconnect => ops.iter_mut().for_each(Op::doubt),
        }
        self.repeat(ops, &failure);
        (failure.handling.remedy == Remedy::Reconnect).then_some(failure)
    }

    /// Asks once more what was not tried too often.
    fn repeat(&self, ops: Vec<Op>, failure: &Failure) {
        let mut again = Vec::new();
        for mut op in ops {
            match op.try_again() {
                true => again.push(op),
                false => self.fail_op(op, failure),
            }
        }
        self.requeue(again);
    }

    /// Tells whoever asked that there is no answer.
    pub(crate) fn fail_op(&self, op: Op, failure: &Failure) {
        match op {
            Op::Take(take) => {
                let askers = self.lobby.miss(take, failure.retry() == Retry::Later);
                askers.into_iter().for_each(|asker| drop(asker.send(Err(failure.clone()))));
            }
            Op::Give(give) => {
                give.asker.into_iter().for_each(|asker| drop(asker.send(Err(failure.clone()))));
            }
            Op::Renew(renew) => drop(renew.asker.send(Err(failure.clone()))),
            Op::Plain(plain) => {
                let mut failure = failure.clone();
                failure.handling.is_unproven = plain.is_doubtful;
                drop(plain.asker.send(Err(failure)));
            }
        }
    }
}

fn read_renewal(code: i16, note: Option<&str>) -> Option<Renewal> {
    match code {
        1 => Some(Renewal::Renewed),
        _ => read_loss(code, note).map(Renewal::Lost),
    }
}

/// Why a holder does not have the lock.
pub(crate) fn read_loss(code: i16, note: Option<&str>) -> Option<LossCause> {
    Some(match code {
        0 => LossCause::Forgotten,
        2 => LossCause::Revoked { reason: note.unwrap_or_default().to_owned() },
        3 => {
            let fields: Vec<&str> = note.unwrap_or_default().split('\t').collect();
            let by = read_label(&fields).map(|label| label.to_string());
            LossCause::Taken { by }
        }
        _ => return None,
    })
}

fn answer_renew(renew: Renew, outcomes: Vec<Option<Renewal>>) {
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    let nonsense = || failure::of_nonsense("a renewal of another form");
    drop(renew.asker.send(outcomes.ok_or_else(nonsense)));
}

/// Gives the same answer to all who asked the same. Returns whether anybody was there.
pub(crate) fn tell_all(askers: Vec<Asker<Answer>>, answer: &Answer) -> bool {
    // Not `any`: everybody is told.
    askers.into_iter().filter_map(|asker| asker.send(Ok(answer.clone())).ok()).count() > 0
}
