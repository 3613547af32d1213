//! A lock that is given back, or a try that is undone: on every node that may have it.

use std::sync::{Arc, Mutex};

use lockfast_core::{LockName, Moment, ReleaseOutcome};
use tokio::sync::oneshot;

use crate::ballot::Said;
use crate::claim::{Asker, Claim, Outcome, tell_all};
use crate::store::lock;
use crate::wire::Failure;

/// What each node said, when too few could be asked.
pub(crate) type Unreached = Vec<Said>;

/// One release.
pub(crate) struct Giving {
    pub(crate) name: LockName,
    /// The holder as it is written.
    pub(crate) text: String,
    /// The highest fence that it proposed, where that is known.
    pub(crate) proposal: Option<u64>,
    pub(crate) ending: Ending,
    /// The acquisition that is undone, where it was made here.
    pub(crate) claim: Option<Arc<Claim>>,
    /// After this no node has it any more anyway.
    pub(crate) ends: Moment,
    pub(crate) quorum: usize,
    tally: Mutex<Tally>,
}

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A hold: those who wait are called.
    Hold,
    /// An acquisition, of which nobody needs to hear.
    Claim,
    /// One try of an acquisition that goes on.
    Try,
}

impl Ending {
    /// As the script reads it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "1",
            Self::Claim => "0",
            Self::Try => "2",
        }
    }
}

/// What a node said about a release.
#[derive(Clone, Debug)]
pub(crate) enum Gave {
    Released,
    NotHeld,
    Failed(Failure),
}

/// What follows a release.
pub(crate) enum Then {
    Nothing,
    Tell(oneshot::Sender<Result<ReleaseOutcome, Unreached>>),
    /// Whoever asked for the lock is told why not, but not before it was undone.
    Refuse(Vec<Asker>, Outcome),
}

struct Tally {
    votes: Vec<Option<Gave>>,
    then: Then,
}

impl Giving {
    pub(crate) fn new(
        (name, text): (LockName, String),
        claim: Option<Arc<Claim>>,
        proposal: Option<u64>,
        (ending, ends): (Ending, Moment),
        (nodes, quorum): (usize, usize),
        then: Then,
    ) -> Self {
        let tally = Mutex::new(Tally { votes: vec![None; nodes], then });
        Self { name, text, proposal, ending, claim, ends, quorum, tally }
    }

    /// Whether the node may have something of it.
    pub(crate) fn concerns(&self, node: usize) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.was_sent(node))
    }

    /// Whether this node has yet to answer.
    pub(crate) fn waits_for(&self, node: usize) -> bool {
        matches!(lock(&self.tally).votes.get(node), Some(None))
    }

    /// Whether nobody waits for the outcome.
    pub(crate) fn is_told(&self) -> bool {
        matches!(lock(&self.tally).then, Then::Nothing)
    }

    /// Takes a vote down, and tells when it is decided.
    pub(crate) fn vote(&self, node: usize, gave: Gave) {
        let mut tally = lock(&self.tally);
        if let Some(vote) = tally.votes.get_mut(node).filter(|vote| vote.is_none()) {
            *vote = Some(gave);
        }
        match std::mem::replace(&mut tally.then, Then::Nothing) {
            Then::Nothing => {}
            Then::Tell(asker) => match tally.decide(self.quorum) {
                None => tally.then = Then::Tell(asker),
                Some(outcome) => drop(asker.send(outcome)),
            },
            Then::Refuse(askers, mut outcome) => {
                if tally.answers() < self.quorum && tally.open() > 0 {
                    tally.then = Then::Refuse(askers, outcome);
                    return;
                }
                drop(tally);
                if let (Outcome::Refused { votes, .. }, Some(claim)) = (&mut outcome, &self.claim) {
                    *votes = claim.testimony();
                }
                tell_all(askers, &outcome);
            }
        }
    }
}

impl Tally {
    fn count(&self, which: impl Fn(&Gave) -> bool) -> usize {
        self.votes.iter().flatten().filter(|gave| which(gave)).count()
    }

    fn open(&self) -> usize {
        self.votes.iter().filter(|vote| vote.is_none()).count()
    }

    fn answers(&self) -> usize {
        self.count(|gave| !matches!(gave, Gave::Failed(_)))
    }

    /// Released when a quorum was, or may have been; not held when it can not have been.
    fn decide(&self, quorum: usize) -> Option<Result<ReleaseOutcome, Unreached>> {
        let released = self.count(|gave| matches!(gave, Gave::Released));
        let (failed, open) = (self.count(|gave| matches!(gave, Gave::Failed(_))), self.open());
        if released >= quorum {
            Some(Ok(ReleaseOutcome::Released))
        } else if released + failed + open < quorum {
            Some(Ok(ReleaseOutcome::NotHeld))
        } else if open > 0 {
            None
        } else if self.answers() >= quorum {
            Some(Ok(ReleaseOutcome::Released))
        } else {
            let said = |vote: &Option<Gave>| match vote {
                Some(Gave::Failed(failure)) => Said::Failed(failure.clone()),
                _ => Said::Granted,
            };
            Some(Err(self.votes.iter().map(said).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ErrorKind;

    #[test]
    fn a_release_is_decided_by_a_quorum() {
        let r = || Some(Gave::Released);
        let n = || Some(Gave::NotHeld);
        let f = || Some(Gave::Failed(Failure::new(ErrorKind::Unreachable, "gone")));
        let decide = |votes: Vec<Option<Gave>>, quorum| {
            let outcome = Tally { votes, then: Then::Nothing }.decide(quorum);
            outcome.map(|outcome| outcome.map_err(|_| ()))
        };
        let released = Some(Ok(ReleaseOutcome::Released));
        let not_held = Some(Ok(ReleaseOutcome::NotHeld));
        assert_eq!(decide(vec![r(), None, None], 2), None);
        assert_eq!(decide(vec![r(), r(), None], 2), released);
        assert_eq!(decide(vec![n(), n(), None], 2), not_held);
        assert_eq!(decide(vec![r(), n(), None], 2), None);
        assert_eq!(decide(vec![r(), n(), f()], 2), released);
        assert_eq!(decide(vec![r(), n(), n()], 2), not_held);
        assert_eq!(decide(vec![r(), f(), f()], 2), Some(Err(())));
        assert_eq!(decide(vec![n(), f(), f()], 2), Some(Err(())));
    }
}
