//! What the server says finds the one whom it concerns.

use std::collections::HashMap;
use std::time::Duration;

use lockfast_core::lobby::Purpose;
use lockfast_core::time::ClockPair;
use lockfast_core::{Grant, Moment, Retry};

use crate::batch::{Asker, Batch, Op, Renewal, Take};
use crate::claim::{Admission, Answer};
use crate::failure::{self, Failure, Remedy};
use crate::store::Store;
use crate::wire;

/// How often a request is repeated in which others were in the way.
const REPEATS_MAX: u8 = 10;
/// How often on a new connection.
const RECONNECTS_MAX: u8 = 3;

/// The answer to a batch, by what it is about.
#[derive(Default)]
struct Sections<'a> {
    renews: Vec<(usize, &'a str)>,
    takes: Lines<'a>,
    gives: Lines<'a>,
}

/// A line for each request, or one for all.
#[derive(Default)]
struct Lines<'a> {
    common: Option<&'a str>,
    each: HashMap<usize, &'a str>,
}

impl<'a> Lines<'a> {
    fn add(&mut self, number: &str, line: &'a str) -> Option<()> {
        match number {
            "*" => self.common = Some(line),
            _ => drop(self.each.insert(read_number(number)?, line)),
        }
        Some(())
    }

    fn of(&self, number: usize) -> Result<&'a str, Failure> {
        self.each.get(&number).copied().or(self.common).ok_or_else(nonsense)
    }
}

impl<'a> Sections<'a> {
    fn read(batch: &Batch, answers: &'a str) -> Option<Self> {
        let mut sections = Self::default();
        let mut at = match batch.is_lone() {
            true if batch.takes.is_empty() => 2,
            true => 1,
            false => 0,
        };
        for line in answers.lines() {
            if line.is_empty() {
                at += 1;
                continue;
            }
            let (number, rest) = line.split_once('\t')?;
            match at {
                0 => sections.renews.push((read_number(number)?, rest)),
                1 => sections.takes.add(number, rest)?,
                2 => sections.gives.add(number, rest)?,
                _ => return None,
            }
        }
        Some(sections)
    }
}

/// The server counts from one.
fn read_number(number: &str) -> Option<usize> {
    number.parse::<usize>().ok()?.checked_sub(1)
}

fn nonsense() -> Failure {
    failure::of_nonsense("an answer of another form")
}

impl Store {
    /// Hands out the answer to a batch.
    pub(crate) fn distribute(&self, batch: Batch, sent: Moment, rows: &[wire::Answer]) {
        let read = rows.first().and_then(|row| Some((row.number(0)?, row.text(1)?, row.text(2)?)));
        match read {
            Some((server_us, answers, pushes)) => {
                self.hand_out(batch, ClockPair { sent, server_us }, answers, pushes);
            }
            None => batch.into_ops().for_each(|op| self.fail_op(op, &nonsense())),
        }
    }

    /// The same, with what the server said in words.
    pub(crate) fn hand_out(&self, batch: Batch, clock: ClockPair, answers: &str, pushes: &str) {
        let sent = clock.sent;
        let Some(sections) = Sections::read(&batch, answers) else {
            batch.into_ops().for_each(|op| self.fail_op(op, &nonsense()));
            return;
        };
        self.note_clock(clock);
        let Batch { renews, takes, gives, leases } = batch;
        for (number, take) in takes.into_iter().enumerate() {
            let line = sections.takes.of(number);
            match line.and_then(|line| Admission::read(&take.claim, line)) {
                Err(failure) => self.fail_op(Op::Take(take), &failure),
                Ok(admission) => self.admit(take, admission, sent),
            }
        }
        for (number, give) in gives.into_iter().enumerate() {
            let outcome = sections.gives.of(number).and_then(|word| give.read(word));
            let _ = give.asker.send(outcome);
        }
        let mut outcomes: Vec<Result<Vec<Renewal>, Failure>> =
            renews.iter().map(|renew| Ok(vec![Renewal::Renewed; renew.leases.len()])).collect();
        for (number, line) in sections.renews {
            let Some((renew, lease)) = leases.get(number) else { continue };
            match (Renewal::read(line), &mut outcomes[*renew]) {
                (Some(renewal), Ok(outcomes)) => outcomes[*lease] = renewal,
                (None, outcomes) => *outcomes = Err(nonsense()),
                (_, Err(_)) => {}
            }
        }
        for (renew, outcomes) in renews.into_iter().zip(outcomes) {
            let _ = renew.asker.send(outcomes);
        }
        pushes.lines().for_each(|line| self.hear(line, Some(clock)));
    }

    /// Hears what came with the answer to a change that is no batch.
    pub(crate) fn hear_pushes(&self, rows: &[wire::Answer], sent: Moment) {
        let read = rows.first().and_then(|row| Some((row.number(0)?, row.text(2)?)));
        let Some((server_us, pushes)) = read else { return };
        let clock = ClockPair { sent, server_us };
        pushes.lines().for_each(|line| self.hear(line, Some(clock)));
    }

    fn admit(&self, take: Take, admission: Admission, sent: Moment) {
        let Take { claim, purpose, .. } = take;
        let askers = match (purpose, &admission) {
            (Purpose::First(asker), Admission::Waiting(place)) => {
                let holder = claim.holder;
                // What was offered already may be over by now, so it looks.
                if self.lobby.enter(claim, asker, *place, sent).is_some() {
                    self.lobby.hasten(holder, Duration::ZERO);
                }
                return;
            }
            (_, Admission::Waiting(place)) => return self.lobby.stay(claim.holder, *place, sent),
            (purpose, _) => self.lobby.settle(claim.holder, purpose),
        };
        match admission {
            Admission::Waiting(_) => {}
            Admission::Taken(seen) => {
                tell_all(askers, || Answer::Taken(seen.clone()));
            }
            Admission::Granted(fence) => {
                tell_all(askers, || Answer::Granted(Grant::new(fence, sent)));
            }
        }
    }

    /// A batch was not served. Returns whether the connection is of no use any more.
    pub(crate) fn mend(&self, ops: impl Iterator<Item = Op>, failure: &Failure) -> bool {
        let mut again = Vec::new();
        for mut op in ops {
            if matches!(failure.handling, Remedy::RepeatInDoubt | Remedy::ReconnectAndRepeat) {
                op.doubt();
            }
            let is_again = match failure.handling {
                Remedy::Tell | Remedy::Reconnect => false,
                Remedy::Repeat => op.try_again(REPEATS_MAX),
                Remedy::RepeatInDoubt => op.is_repeatable() && op.try_again(REPEATS_MAX),
                Remedy::ReconnectAndRepeat => op.is_repeatable() && op.try_again(RECONNECTS_MAX),
            };
            match is_again {
                true => again.push(op),
                false => self.fail_op(op, failure),
            }
        }
        self.requeue(again);
        matches!(failure.handling, Remedy::Reconnect | Remedy::ReconnectAndRepeat)
    }

    /// Tells whoever asked that there is no answer.
    pub(crate) fn fail_op(&self, op: Op, failure: &Failure) {
        match op {
            Op::Take(take) => {
                let askers = self.lobby.miss(take, failure.retry() == Retry::Later);
                askers.into_iter().for_each(|asker| drop(asker.send(Err(failure.clone()))));
            }
            Op::Give(give) => drop(give.asker.send(Err(failure.clone()))),
            Op::Renew(renew) => drop(renew.asker.send(Err(failure.clone()))),
            Op::Ask(ask) => {
                let failure = ask.explain(failure);
                drop(ask.asker.send(Err(failure)));
            }
        }
    }
}

/// Gives the same answer to all who asked the same.
pub(crate) fn tell_all(askers: Vec<Asker<Answer>>, answer: impl Fn() -> Answer) {
    // Whoever is gone by now releases what it was told.
    askers.into_iter().for_each(|asker| drop(asker.send(Ok(answer()))));
}
