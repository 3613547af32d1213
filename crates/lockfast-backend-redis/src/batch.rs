//! What is asked of the server, and how many askers share one round trip.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::{self, Lobby};
use lockfast_core::{ClientId, HolderId, LockName, LossCause, ReleaseOutcome, RenewRequest};
use tokio::sync::oneshot;

use crate::claim::{Answer, Claim};
use crate::record;
use crate::simple::SimpleBatch;
use crate::wire::{Failure, Pipeline, Reply};

/// How many locks one call of a script carries.
pub(crate) const LOCKS_MAX: usize = 256;

/// The way an answer goes back.
pub(crate) type Asker<T> = oneshot::Sender<Result<T, Failure>>;

/// One request.
pub(crate) enum Op {
    Take(Take),
    Give(Give),
    Renew(Renew),
    Plain(Plain),
}

/// Asks for a lock.
pub(crate) type Take = lobby::Take<Claim>;

/// Gives a lock back.
pub(crate) struct Give {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    /// As what the holder waits, if it may be in the queue.
    pub(crate) claim: Option<Arc<Claim>>,
    pub(crate) then: Then,
    /// Of others who gave back the same.
    pub(crate) also: Vec<Then>,
    pub(crate) tries: u8,
    /// Whether it goes in a call of its own, because one with others was refused.
    pub(crate) is_apart: bool,
}

impl Give {
    pub(crate) fn new(name: LockName, holder: HolderId, then: Then) -> Self {
        Self { name, holder, claim: None, then, also: Vec::new(), tries: 0, is_apart: false }
    }

    /// Gives up a claim, whether it was granted by now or waits.
    pub(crate) fn of_claim(claim: &Arc<Claim>, then: Then) -> Self {
        let give = Self::new(claim.name.clone(), claim.holder, then);
        Self { claim: Some(Arc::clone(claim)), ..give }
    }

    /// Lets one release answer both.
    fn absorb(&mut self, twin: Self) {
        self.also.push(twin.then);
        self.also.extend(twin.also);
        self.claim = self.claim.take().or(twin.claim);
        self.tries = self.tries.max(twin.tries);
        self.is_apart |= twin.is_apart;
    }

    /// All that follows it.
    pub(crate) fn into_thens(self) -> impl Iterator<Item = Then> {
        std::iter::once(self.then).chain(self.also)
    }
}

/// What follows a release.
pub(crate) enum Then {
    Tell(Asker<ReleaseOutcome>),
    Nothing,
    /// What was granted is undone; its askers are told why, but not before.
    Refuse(Vec<Asker<Answer>>, Failure),
}

impl Then {
    /// Tells who asked what became of the release.
    pub(crate) fn tell(self, outcome: Result<&ReleaseOutcome, &Failure>) {
        match self {
            Self::Tell(asker) => drop(asker.send(outcome.cloned().map_err(Clone::clone))),
            Self::Nothing => {}
            Self::Refuse(askers, failure) => {
                askers.into_iter().for_each(|asker| drop(asker.send(Err(failure.clone()))));
            }
        }
    }
}

/// Asks for more time.
pub(crate) struct Renew {
    pub(crate) leases: Arc<[RenewRequest]>,
    pub(crate) asker: Asker<Vec<Renewal>>,
    pub(crate) tries: u8,
    /// Whether each lease has a call of its own, because one for all of them was refused.
    pub(crate) is_apart: bool,
}

impl Renew {
    pub(crate) fn new(leases: Arc<[RenewRequest]>, asker: Asker<Vec<Renewal>>) -> Self {
        Self { leases, asker, tries: 0, is_apart: false }
    }

    /// The leases, by the calls that carry them.
    pub(crate) fn runs(&self) -> impl ExactSizeIterator<Item = &[RenewRequest]> {
        self.leases.chunks(if self.is_apart { 1 } else { self.leases.len().max(1) })
    }
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    Lost(LossCause),
    /// Somebody else has the lock; who, if Lockfast knows.
    TakenBy(Option<ClientId>),
    /// The node that has it did not answer, or could not.
    Unanswered(Failure),
}

impl Renewal {
    /// Reads one entry of the renewal script's answer.
    pub(crate) fn read(reply: Reply) -> Option<Self> {
        if reply.as_int() == Some(1) {
            return Some(Self::Renewed);
        }
        if let Some(failure) = reply.failure() {
            return Some(Self::Unanswered(failure));
        }
        Self::read_loss(&reply.into_list().ok()?)
    }

    /// Reads why a holder does not have its lock, as the scripts explain it.
    pub(crate) fn read_loss(fields: &[Reply]) -> Option<Self> {
        let text = || fields.get(1).and_then(Reply::as_text);
        Some(match fields.first()?.as_int()? {
            0 => Self::Lost(LossCause::Forgotten),
            1 => Self::TakenBy(text().and_then(record::read_hold).map(|(id, _)| id.client())),
            2 => Self::Lost(LossCause::Revoked { reason: record::read_text(text()?) }),
            3 => Self::Lost(LossCause::DataLost),
            _ => return None,
        })
    }
}

/// Any other commands.
pub(crate) struct Plain {
    pub(crate) write: Box<dyn Fn(&mut Pipeline) + Send + Sync>,
    /// Of a cluster's node, the slot that it must have.
    pub(crate) slot: Option<u16>,
    pub(crate) asker: Asker<Vec<Reply>>,
    pub(crate) tries: u8,
}

impl Op {
    /// Whether nobody wants the answer any more, so that it need not be asked.
    pub(crate) fn is_moot(&self, lobby: &Lobby<Claim>) -> bool {
        match self {
            Self::Take(take) => take.is_moot(lobby),
            Self::Give(_) => false,
            Self::Renew(renew) => renew.asker.is_closed(),
            Self::Plain(plain) => plain.asker.is_closed(),
        }
    }

    /// Counts another try; the fourth is one too many.
    pub(crate) fn try_again(&mut self) -> bool {
        let tries = match self {
            Self::Take(take) => &mut take.tries,
            Self::Give(give) => &mut give.tries,
            Self::Renew(renew) => &mut renew.tries,
            Self::Plain(plain) => &mut plain.tries,
        };
        *tries += 1;
        *tries < 4
    }

    /// From now on each lock of it has a call of its own. Returns whether none had before.
    pub(crate) fn set_apart(&mut self) -> bool {
        match self {
            Self::Take(take) => take.claim.set_apart(),
            Self::Give(give) => !std::mem::replace(&mut give.is_apart, true),
            Self::Renew(renew) => {
                renew.leases.len() > 1 && !std::mem::replace(&mut renew.is_apart, true)
            }
            Self::Plain(_) => false,
        }
    }

    /// How long an answer is worth waiting for before the connection counts as dead.
    pub(crate) fn limit(&self, request_timeout: Duration) -> Duration {
        let ttl = match self {
            Self::Take(take) => take.claim.ttl,
            Self::Renew(renew) => {
                renew.leases.iter().map(|lease| lease.ttl).min().unwrap_or(Duration::MAX)
            }
            Self::Give(_) | Self::Plain(_) => Duration::MAX,
        };
        (ttl / 3).max(Duration::from_millis(500)).min(request_timeout)
    }
}

/// What one round trip carries, in the order of the commands.
#[derive(Default)]
pub(crate) struct Batch {
    /// How many acquisitions may come to wait, of a cluster's node.
    pub(crate) waits: usize,
    /// Replies that nobody waits for.
    pub(crate) preamble: usize,
    /// What the simple scripts are asked.
    pub(crate) simple: SimpleBatch,
    pub(crate) renews: Vec<Renew>,
    pub(crate) takes: Vec<Take>,
    /// How many of them each call carries, as it was written.
    pub(crate) take_runs: Vec<usize>,
    pub(crate) gives: Vec<Give>,
    pub(crate) give_runs: Vec<usize>,
    pub(crate) plains: Vec<(Plain, usize)>,
    /// Whether the last reply tells how many replicas have it all.
    pub(crate) counts_replicas: bool,
}

impl Batch {
    pub(crate) fn add(&mut self, op: Op) {
        match op {
            Op::Take(take) => self.takes.push(take),
            Op::Give(give) => self.gives.push(give),
            Op::Renew(renew) => self.renews.push(renew),
            Op::Plain(plain) => self.plains.push((plain, 0)),
        }
    }

    /// Lets a release go with one of the same holder that is in the batch, so that no call names a
    /// holder twice. Returns it if there is none.
    pub(crate) fn absorb(&mut self, give: Give) -> Option<Give> {
        // For cargo xtask soak --undone: shows that torture finds it.
        if cfg!(lockfast_undone = "B14") {
            return Some(give);
        }
        let mut gives = self.simple.gives.iter_mut().chain(&mut self.gives);
        match gives.find(|it| it.holder == give.holder && it.name == give.name) {
            Some(twin) => twin.absorb(give),
            None => return Some(give),
        }
        None
    }

    /// How many locks it is about; renewals are batches of their own.
    pub(crate) fn len(&self) -> usize {
        let simple = self.simple.takes.len() + self.simple.gives.len();
        simple + self.takes.len() + self.gives.len()
    }

    /// Whether locks are given back, and nothing else is asked.
    pub(crate) fn only_gives(&self) -> bool {
        let gives = self.gives.len() + self.simple.gives.len();
        let renews = self.renews.len() + self.simple.renews.len();
        gives > 0 && gives == self.len() && renews == 0 && self.plains.is_empty()
    }

    /// Of all that is taken or renewed.
    pub(crate) fn shortest_ttl(&self) -> Duration {
        let takes = self.takes.iter().map(|take| take.claim.ttl);
        let leases = self.renews.iter().flat_map(|renew| renew.leases.iter());
        takes.chain(leases.map(|lease| lease.ttl)).min().unwrap_or(Duration::MAX)
    }

    pub(crate) fn into_ops(self) -> impl Iterator<Item = Op> {
        let renews = self.renews.into_iter().map(Op::Renew);
        let takes = self.takes.into_iter().map(Op::Take);
        let gives = self.gives.into_iter().map(Op::Give);
        let plains = self.plains.into_iter().map(|(plain, _)| Op::Plain(plain));
        self.simple.into_ops().chain(renews).chain(takes).chain(gives).chain(plains)
    }
}
