//! More time for leases, from a quorum of the nodes for each. Nothing is created by it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_backend_redis::node::{read_hold, write_holder};
use lockfast_core::{
    ClientId, Error, LossCause, Moment, NodeVote, RenewOutcome, RenewRequest, Result, Vote,
};
use tokio::sync::oneshot;

use crate::batch::{Op, Tries};
use crate::clerk::Pending;
use crate::inspect::labels;
use crate::store::{Store, lock};
use crate::wire::{Failure, Reply};

/// Leases that are renewed together.
pub(crate) struct Renewal {
    pub(crate) leases: Vec<RenewRequest>,
    /// Their holders as they are written.
    pub(crate) texts: Vec<String>,
    /// The fences of their holds, where they are known.
    fences: Vec<Option<u64>>,
    quorum: usize,
    tally: Mutex<Tally>,
}

/// What a node said about one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// With this fence.
    Renewed(u64),
    /// Nobody has it there, and whether its fence is known.
    Missing {
        fence_known: bool,
    },
    /// Another has it there; who, if Lockfast knows.
    Other(Option<ClientId>),
    Revoked(String),
    Failed(Failure),
    Late(Duration),
}

struct Tally {
    /// For each node what it said about each lease.
    votes: Vec<Option<Vec<Kept>>>,
    asker: Option<oneshot::Sender<Vec<Option<Vec<Kept>>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    Renewed,
    Lost,
    Unanswered,
}

impl Kept {
    /// Reads one entry of the script's answer.
    pub(crate) fn read(reply: Reply) -> Option<Self> {
        if let Some(fence) = reply.as_int() {
            return u64::try_from(fence).ok().map(Self::Renewed);
        }
        let fields = reply.into_list().ok()?;
        let field = || fields.get(1);
        Some(match fields.first()?.as_int()? {
            0 => Self::Missing { fence_known: field()?.as_int()? == 1 },
            1 => {
                let hold = field()?.as_text().and_then(read_hold);
                Self::Other(hold.map(|(holder, _)| holder.client()))
            }
            2 => Self::Revoked(field()?.as_text()?.to_owned()),
            4 => Self::Other(None),
            _ => return None,
        })
    }

    fn is_no(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Other(_) | Self::Revoked(_))
    }
}

/// What follows from the votes on one lease. Only nodes that have one and the same grant of it
/// count together. It is lost only when so many nodes said no that a quorum cannot be had.
fn decide<'a>(votes: impl Iterator<Item = Option<&'a Kept>> + Clone, quorum: usize) -> Verdict {
    let count =
        |which: &dyn Fn(Option<&Kept>) -> bool| votes.clone().filter(|it| which(*it)).count();
    let same = |kept: &Kept| count(&|other| other == Some(kept));
    let granted = votes.clone().flatten().filter(|kept| matches!(kept, Kept::Renewed(_)));
    let renewed = granted.map(same).max().unwrap_or(0);
    if renewed >= quorum {
        Verdict::Renewed
    } else if count(&|kept| !kept.is_some_and(Kept::is_no)) < quorum {
        Verdict::Lost
    } else if count(&|kept| kept.is_none()) > 0 {
        Verdict::Open
    } else {
        Verdict::Unanswered
    }
}

impl Renewal {
    /// Whether this node has yet to answer.
    pub(crate) fn waits_for(&self, node: usize) -> bool {
        matches!(lock(&self.tally).votes.get(node), Some(None))
    }

    /// Whether every lease is decided.
    pub(crate) fn is_decided(&self) -> bool {
        lock(&self.tally).asker.is_none()
    }

    /// Whether nobody waits for the outcome.
    pub(crate) fn is_moot(&self) -> bool {
        lock(&self.tally).asker.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Takes down what a node said about all leases.
    pub(crate) fn vote(&self, node: usize, mut kept: Vec<Kept>) {
        for (kept, fence) in kept.iter_mut().zip(&self.fences) {
            // Another grant of the same holder is not this hold.
            if matches!(kept, Kept::Renewed(found) if fence.is_some_and(|fence| fence != *found)) {
                *kept = Kept::Missing { fence_known: true };
            }
        }
        let mut tally = lock(&self.tally);
        if let Some(vote) = tally.votes.get_mut(node).filter(|vote| vote.is_none()) {
            *vote = Some(kept);
        }
        let is_open = |lease: usize| tally.verdict(lease, self.quorum) == Verdict::Open;
        if tally.asker.is_some() && !(0..self.leases.len()).any(is_open) {
            let votes = tally.votes.clone();
            tally.asker.take().into_iter().for_each(|asker| drop(asker.send(votes.clone())));
        }
    }

    /// A node says the same about all leases.
    pub(crate) fn vote_alike(&self, node: usize, kept: &Kept) {
        self.vote(node, vec![kept.clone(); self.leases.len()]);
    }

    /// Whether a quorum has renewed this lease.
    pub(crate) fn is_renewed(&self, lease: usize) -> bool {
        lock(&self.tally).verdict(lease, self.quorum) == Verdict::Renewed
    }
}

impl Tally {
    fn verdict(&self, lease: usize, quorum: usize) -> Verdict {
        decide(self.votes.iter().map(|vote| vote.as_ref().and_then(|it| it.get(lease))), quorum)
    }
}

impl Store {
    /// Renews leases on all nodes.
    pub(crate) async fn renew(self: &Arc<Self>, leases: Vec<RenewRequest>) -> Vec<RenewOutcome> {
        let (asker, answer) = oneshot::channel();
        let shortest = leases.iter().map(|lease| lease.ttl).min().unwrap_or_default();
        let texts = leases.iter().map(|lease| write_holder(lease.holder)).collect();
        let fences = leases.iter().map(|lease| self.fence_of(lease.holder)).collect();
        let tally = Tally { votes: vec![None; self.nodes.len()], asker: Some(asker) };
        let quorum = self.config.quorum;
        let renewal = Arc::new(Renewal { leases, texts, fences, quorum, tally: Mutex::new(tally) });
        let limit = self.config.renewal_limit(shortest);
        self.clerk.watch(Pending::Renewal(Arc::clone(&renewal)), Moment::now(), limit);
        {
            let _in_order = lock(&self.renewing);
            for node in &self.nodes {
                node.submit(Op::Renew(Arc::clone(&renewal), Tries::default()));
            }
        }
        let votes = answer.await.unwrap_or_default();
        let ballots: Vec<Vec<Option<Kept>>> = (0..renewal.leases.len())
            .map(|lease| votes.iter().map(|it| it.as_ref()?.get(lease).cloned()).collect())
            .collect();
        let mut outcomes = Vec::with_capacity(ballots.len());
        for (lease, ballot) in renewal.leases.iter().zip(ballots) {
            outcomes.push(self.conclude(lease, &ballot).await);
        }
        outcomes
    }

    async fn conclude(
        self: &Arc<Self>,
        lease: &RenewRequest,
        ballot: &[Option<Kept>],
    ) -> RenewOutcome {
        match decide(ballot.iter().map(Option::as_ref), self.config.quorum) {
            Verdict::Renewed => {
                if let Some(claim) = self.find(lease.holder) {
                    claim.extend(lease.ttl + lease.lock_delay);
                }
                self.remind(lease, ballot);
                RenewOutcome::Renewed
            }
            Verdict::Lost => {
                self.forget(lease.holder);
                RenewOutcome::Lost(self.name_cause(ballot).await)
            }
            Verdict::Open | Verdict::Unanswered => {
                RenewOutcome::Unanswered(self.name_silence(ballot).await.with_lock(&lease.name))
            }
        }
    }

    async fn name_cause(self: &Arc<Self>, ballot: &[Option<Kept>]) -> LossCause {
        let mut cause = LossCause::DataLost;
        for kept in ballot.iter().flatten() {
            match kept {
                Kept::Revoked(reason) => return LossCause::Revoked { reason: reason.clone() },
                Kept::Other(client) => {
                    let labels = labels(self, client.iter().copied().collect()).await;
                    let label = client.as_ref().and_then(|client| labels.get(client));
                    cause = LossCause::Taken { by: label.map(ToString::to_string) };
                }
                Kept::Missing { fence_known: true } if cause == LossCause::DataLost => {
                    cause = LossCause::Forgotten;
                }
                _ => {}
            }
        }
        cause
    }

    async fn name_silence(self: &Arc<Self>, ballot: &[Option<Kept>]) -> Error {
        let others: HashSet<ClientId> = ballot
            .iter()
            .filter_map(|kept| match kept {
                Some(Kept::Other(client)) => *client,
                _ => None,
            })
            .collect();
        let labels = labels(self, others).await;
        let votes = self.nodes.iter().zip(ballot).map(|(node, kept)| {
            let vote = match kept {
                Some(Kept::Renewed(_)) => Vote::Granted,
                Some(Kept::Failed(failure)) => {
                    Vote::Unreachable { why: failure.message().to_owned() }
                }
                Some(Kept::Late(limit)) => Vote::Late { limit: *limit },
                Some(Kept::Other(Some(client))) => match labels.get(client) {
                    Some(label) => Vote::Unreachable { why: format!("held by {label}") },
                    None => Vote::NotHeld,
                },
                Some(_) | None => Vote::NotHeld,
            };
            NodeVote { node: node.name.clone(), vote }
        });
        Error::no_quorum(self.config.quorum, votes.collect()).with_backend("redlock")
    }
}

/// Renews any number of leases.
pub(crate) async fn renew_all(
    store: &Arc<Store>,
    batch: Vec<RenewRequest>,
    most: usize,
) -> Result<Vec<RenewOutcome>> {
    let mut outcomes = Vec::with_capacity(batch.len());
    for leases in batch.chunks(most) {
        outcomes.extend(store.renew(leases.to_vec()).await);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ErrorKind;

    #[test]
    fn a_lease_is_lost_only_when_nodes_say_so() {
        let y = || Some(Kept::Renewed(7));
        let n = || Some(Kept::Missing { fence_known: true });
        let f = || Some(Kept::Failed(Failure::new(ErrorKind::Unreachable, "gone")));
        let count =
            |votes: [Option<Kept>; 3], quorum| decide(votes.iter().map(Option::as_ref), quorum);
        assert_eq!(count([y(), None, None], 2), Verdict::Open);
        assert_eq!(count([y(), y(), None], 2), Verdict::Renewed);
        assert_eq!(count([y(), n(), f()], 2), Verdict::Unanswered);
        assert_eq!(count([y(), f(), f()], 2), Verdict::Unanswered);
        assert_eq!(count([f(), f(), f()], 2), Verdict::Unanswered);
        let older = || Some(Kept::Renewed(6));
        assert_eq!(count([y(), older(), None], 2), Verdict::Open);
        assert_eq!(count([y(), older(), f()], 2), Verdict::Unanswered);
        assert_eq!(count([y(), older(), y()], 2), Verdict::Renewed);
        assert_eq!(count([n(), n(), None], 2), Verdict::Lost);
        assert_eq!(count([n(), n(), y()], 2), Verdict::Lost);
        assert_eq!(count([y(), y(), n()], 3), Verdict::Lost);
        assert_eq!(count([y(), y(), f()], 3), Verdict::Unanswered);
    }
}
