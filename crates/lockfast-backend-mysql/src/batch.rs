//! What is asked of the server, and how many askers share one call and one commit.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::{self, Lobby};
use lockfast_core::{
    ClientId, ErrorKind, HolderId, Label, LockName, LossCause, ReleaseOutcome, RenewRequest,
};
use tokio::sync::oneshot;

use crate::claim::{Claim, read_client, whole_us, write_mode};
use crate::failure::{self, Failure};
use crate::wire::{self, Argument};

/// How many acquisitions and how many releases one call carries.
pub(crate) const LOCKS_MAX: usize = 256;
/// How many renewals it does: two of the engine's batches fit.
pub(crate) const LEASES_MAX: usize = 1024;

/// The way an answer goes back.
pub(crate) type Asker<T> = oneshot::Sender<Result<T, Failure>>;

/// One request.
pub(crate) enum Op {
    Take(Take),
    Give(Give),
    Renew(Renew),
    Ask(Ask),
}

/// Asks for a lock.
pub(crate) type Take = lobby::Take<Claim>;

/// Gives a lock back.
pub(crate) struct Give {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) asker: Asker<ReleaseOutcome>,
    pub(crate) tries: u8,
    /// Whether it was sent before and nobody knows what came of it.
    pub(crate) is_doubtful: bool,
}

impl Give {
    pub(crate) fn new(name: LockName, holder: HolderId, asker: Asker<ReleaseOutcome>) -> Self {
        Self { name, holder, asker, tries: 0, is_doubtful: false }
    }

    /// What the server says about it. That nothing is there may be what an earlier try has done.
    pub(crate) fn read(&self, word: &str) -> Result<ReleaseOutcome, Failure> {
        match word {
            "1" => Ok(ReleaseOutcome::Released),
            "0" if self.is_doubtful => Err(failure::of_doubt()),
            "0" => Ok(ReleaseOutcome::NotHeld),
            _ => Err(failure::of_nonsense("a release of another form")),
        }
    }
}

/// Asks for more time.
pub(crate) struct Renew {
    pub(crate) leases: Arc<[RenewRequest]>,
    pub(crate) asker: Asker<Vec<Renewal>>,
    pub(crate) tries: u8,
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    Lost(LossCause),
    /// Somebody else has the lock.
    TakenBy(ClientId),
}

impl Renewal {
    /// Why the lease is lost, if it is; whoever has the lock now is called by its label.
    pub(crate) fn loss(self, labels: &HashMap<ClientId, Label>) -> Option<LossCause> {
        match self {
            Self::Renewed => None,
            Self::Lost(cause) => Some(cause),
            Self::TakenBy(client) => {
                Some(LossCause::Taken { by: labels.get(&client).map(ToString::to_string) })
            }
        }
    }

    /// Reads one line of the answer, without its number.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (code, rest) = line.split_once('\t').unwrap_or((line, ""));
        Some(match code {
            "F" => Self::Lost(LossCause::Forgotten),
            "R" => Self::Lost(LossCause::Revoked { reason: rest.into() }),
            "T" => Self::TakenBy(read_client(rest)?),
            _ => return None,
        })
    }
}

/// Any other call.
pub(crate) struct Ask {
    pub(crate) statement: &'static str,
    pub(crate) arguments: Vec<Argument>,
    /// Whether it changes something: then it begins with who asks, and may push.
    pub(crate) is_change: bool,
    /// Whether it can be done twice like once. A revocation cannot: the second takes the lock away
    /// from whoever has it next.
    pub(crate) is_repeatable: bool,
    pub(crate) asker: Asker<Reply>,
    pub(crate) tries: u8,
    /// Whether it was sent before and nobody knows what came of it.
    pub(crate) is_doubtful: bool,
}

impl Ask {
    /// What whoever asked is told of a failure. A change that is not there, or not allowed, did nothing,
    /// because procedures undo what they began; but an earlier try may have done it.
    pub(crate) fn explain(&self, failure: &Failure) -> Failure {
        let is_refused =
            [ErrorKind::InvalidConfig, ErrorKind::Permission].contains(&failure.kind());
        match is_refused && self.is_change && !self.is_doubtful {
            true => failure.to_error().without_effect().into(),
            false => failure.clone(),
        }
    }
}

/// What the server answered.
pub(crate) struct Reply {
    pub(crate) rows: Vec<wire::Answer>,
    /// Whether an earlier try, of which nobody knows what came, may have done it.
    pub(crate) is_doubtful: bool,
}

impl Op {
    /// Whether nobody wants the answer any more, so that it need not be asked.
    pub(crate) fn is_moot(&self, lobby: &Lobby<Claim>) -> bool {
        match self {
            Self::Take(take) => take.is_moot(lobby),
            Self::Give(_) => false,
            Self::Renew(renew) => renew.asker.is_closed(),
            Self::Ask(ask) => ask.asker.is_closed(),
        }
    }

    /// It was sent, and nobody knows what came of it.
    pub(crate) fn doubt(&mut self) {
        match self {
            Self::Give(give) => give.is_doubtful = true,
            Self::Ask(ask) => ask.is_doubtful = true,
            Self::Take(_) | Self::Renew(_) => {}
        }
    }

    /// Whether it can be done twice like once.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Ask(ask) if !ask.is_repeatable)
    }

    /// Counts another try, of which there are so many.
    pub(crate) fn try_again(&mut self, tries_max: u8) -> bool {
        let tries = match self {
            Self::Take(take) => &mut take.tries,
            Self::Give(give) => &mut give.tries,
            Self::Renew(renew) => &mut renew.tries,
            Self::Ask(ask) => &mut ask.tries,
        };
        *tries += 1;
        *tries < tries_max
    }

    /// How long an answer is worth waiting for before the connection counts as dead.
    pub(crate) fn limit(&self, request_timeout: Duration) -> Duration {
        let ttl = match self {
            Self::Take(take) => take.claim.ttl,
            Self::Renew(renew) => {
                renew.leases.iter().map(|lease| lease.ttl).min().unwrap_or(Duration::MAX)
            }
            Self::Give(_) | Self::Ask(_) => Duration::MAX,
        };
        (ttl / 4).max(Duration::from_millis(500)).min(request_timeout)
    }
}

/// What one call carries. Locks are in the order of their names, so that two batches seldom wait
/// for each other in a circle.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) renews: Vec<Renew>,
    pub(crate) takes: Vec<Take>,
    pub(crate) gives: Vec<Give>,
    /// Which lease of which renewal, in the order of names.
    pub(crate) leases: Vec<(usize, usize)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.renews.is_empty() && self.takes.is_empty() && self.gives.is_empty()
    }

    pub(crate) fn into_ops(self) -> impl Iterator<Item = Op> {
        let renews = self.renews.into_iter().map(Op::Renew);
        let takes = self.takes.into_iter().map(Op::Take);
        let gives = self.gives.into_iter().map(Op::Give);
        renews.chain(takes).chain(gives)
    }

    /// Puts everything in order.
    pub(crate) fn sort(&mut self) {
        self.takes.sort_by(|a, b| a.claim.name.cmp(&b.claim.name));
        self.gives.sort_by(|a, b| a.name.cmp(&b.name));
        let renews = self.renews.iter().enumerate();
        self.leases = renews
            .flat_map(|(renew, op)| (0..op.leases.len()).map(move |lease| (renew, lease)))
            .collect();
        let renews = &self.renews;
        self.leases.sort_by(|a, b| {
            let name = |at: &(usize, usize)| &renews[at.0].leases[at.1].name;
            name(a).cmp(name(b))
        });
    }

    /// The call: a lone request has one of its own, which costs the server less.
    pub(crate) fn call(&self, who: &str) -> (&'static str, Vec<Argument>) {
        let (statement, rest): (_, Vec<Argument>) =
            match (self.renews.as_slice(), self.takes.as_slice(), self.gives.as_slice()) {
                ([], [take @ Take { claim, .. }], []) => (
                    "CALL lockfast_take(?, ?, ?, ?, ?, ?, ?, ?)",
                    vec![
                        claim.name.as_str().into(),
                        claim.holder.to_hex().into(),
                        write_mode(claim.mode).into(),
                        whole_us(claim.ttl).into(),
                        whole_us(claim.lock_delay).into(),
                        claim.floor.into(),
                        take.may_wait().into(),
                    ],
                ),
                ([], [], [give]) => (
                    "CALL lockfast_give(?, ?, ?)",
                    vec![give.name.as_str().into(), give.holder.to_hex().into()],
                ),
                _ => (
                    "CALL lockfast_work(?, ?, ?, ?, ?, ?)",
                    vec![
                        self.write_renews().into(),
                        self.write_takes().into(),
                        self.takes.len().into(),
                        self.write_gives().into(),
                        self.gives.len().into(),
                    ],
                ),
            };
        (statement, std::iter::once(Argument::from(who)).chain(rest).collect())
    }

    /// Whether the answer is that of a lone request.
    pub(crate) fn is_lone(&self) -> bool {
        self.renews.is_empty() && self.takes.len() + self.gives.len() == 1
    }

    fn write_renews(&self) -> String {
        write_list(&self.leases, |text, (renew, lease)| {
            let lease = &self.renews[*renew].leases[*lease];
            write_json(text, lease.name.as_str());
            let (ttl, delay) = (whole_us(lease.ttl), whole_us(lease.lock_delay));
            // Writing to a string cannot fail.
            let _ = write!(text, ",\"{}\",{ttl},{delay}", lease.holder.to_hex());
        })
    }

    fn write_takes(&self) -> String {
        write_list(&self.takes, |text, take @ Take { claim, .. }| {
            write_json(text, claim.name.as_str());
            let _ = write!(
                text,
                ",\"{}\",{},{},{},{},{}",
                claim.holder.to_hex(),
                write_mode(claim.mode),
                whole_us(claim.ttl),
                whole_us(claim.lock_delay),
                claim.floor,
                u8::from(take.may_wait())
            );
        })
    }

    fn write_gives(&self) -> String {
        write_list(&self.gives, |text, give| {
            write_json(text, give.name.as_str());
            let _ = write!(text, ",\"{}\"", give.holder.to_hex());
        })
    }
}

/// A list of lists, or nothing at all.
fn write_list<T>(items: &[T], write: impl Fn(&mut String, &T)) -> String {
    let mut text = String::with_capacity(items.len() * 96);
    for item in items {
        text.push_str(if text.is_empty() { "[[" } else { ",[" });
        write(&mut text, item);
        text.push(']');
    }
    if !text.is_empty() {
        text.push(']');
    }
    text
}

/// Text in JSON. A name has no control characters.
pub(crate) fn write_json(text: &mut String, word: &str) {
    text.push('"');
    for character in word.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_json() {
        assert_eq!(write_list::<u8>(&[], |_, _| {}), "");
        let write = |text: &mut String, word: &&str| write_json(text, word);
        assert_eq!(write_list(&["a", "b\"\\'"], write), r#"[["a"],["b\"\\'"]]"#);
    }

    /// B267: a refusal proves that nothing was done only if nothing was sent before whose answer was lost.
    #[test]
    fn what_did_nothing() {
        let table = [
            (ErrorKind::Permission, true, false, true),
            (ErrorKind::InvalidConfig, true, false, true),
            (ErrorKind::Permission, true, true, false),
            (ErrorKind::Permission, false, false, false),
            (ErrorKind::Unreachable, true, false, false),
        ];
        for (kind, is_change, is_doubtful, expected) in table {
            let ask = Ask {
                statement: "CALL lockfast_downgrade(?, ?, ?)",
                arguments: Vec::new(),
                is_change,
                is_repeatable: true,
                asker: oneshot::channel().0,
                tries: 1,
                is_doubtful,
            };
            let told = ask.explain(&Failure::new(kind, "denied"));
            let said = (kind, is_change, is_doubtful);
            assert_eq!(told.error.is_without_effect(), expected, "{said:?}");
        }
    }
}
