//! What a store answers.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, printable};
use crate::fence::Fence;
use crate::observe::cause;
use crate::time::Moment;
use crate::view::{HolderView, LockView};
use crate::vote::NodeVote;

/// What leases end together with in a store that has such a thing: a lease of etcd, a session of
/// ZooKeeper. The store chooses the number and never uses it again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// A lock that was granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Higher than that of every earlier grant of this lock.
    pub fence: Fence,
    /// A moment that is certainly not after the one at which the store began to count the ttl:
    /// for an immediate grant, taken before the request was sent. The deadline starts here.
    pub from: Moment,
    /// How long the store keeps it from then on when that is less than the ttl that was asked for:
    /// a lock that is handed over may last only briefly until it is renewed, so that a waiter that
    /// hangs does not hold up those behind it.
    pub brief: Option<Duration>,
    /// What the lease ends together with: see
    /// [`LossReporter::session_ended`](crate::LossReporter::session_ended).
    pub session: Option<SessionId>,
}

impl Grant {
    /// A grant for the whole ttl that was asked for.
    pub fn new(fence: Fence, from: Moment) -> Self {
        Self { fence, from, brief: None, session: None }
    }

    /// The same, ending together with a session.
    #[must_use]
    pub fn in_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// The same, lasting only so long until it is renewed.
    #[must_use]
    pub fn lasting(self, brief: Duration) -> Self {
        Self { brief: Some(brief), ..self }
    }

    /// How long it lasts from `from` on without a renewal, when `ttl` was asked for.
    pub fn lasts(&self, ttl: Duration) -> Duration {
        self.brief.map_or(ttl, |brief| brief.min(ttl))
    }
}

/// The answer to an acquisition.
#[derive(Clone, Debug)]
pub enum AcquireOutcome {
    /// The holder has it.
    Granted(Grant),
    /// Somebody else has it, and nothing of this request is left in the store.
    Taken(Refusal),
}

/// Why an acquisition was refused: who is in the way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The lock as it was seen.
    pub lock: LockView,
    /// How long the request had waited; nothing for one that does not wait.
    pub waited: Duration,
    /// What each node said, where several decide together; empty elsewhere.
    pub votes: Vec<NodeVote>,
}

impl Refusal {
    /// A refusal after so long.
    pub fn new(lock: LockView, waited: Duration) -> Self {
        Self { lock, waited, votes: Vec::new() }
    }

    /// The same with what each node said.
    #[must_use]
    pub fn with_votes(self, votes: Vec<NodeVote>) -> Self {
        Self { votes, ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lock.holders.as_slice() {
            [] => f.write_str("taken")?,
            [holder] => write!(f, "held by {holder}")?,
            [holder, rest @ ..] => write!(f, "held by {holder} and {} more", rest.len())?,
        }
        if self.lock.waiting > 0 {
            write!(f, ", {} waiting", self.lock.waiting)?;
        }
        if !self.waited.is_zero() {
            write!(f, "; gave up after {}", crate::view::brief(self.waited))?;
        }
        if !self.votes.is_empty() {
            write!(f, " ({})", crate::vote::list(&self.votes))?;
        }
        Ok(())
    }
}

/// The answer to one renewal of a batch.
#[derive(Debug)]
pub enum RenewOutcome {
    /// The lease lasts its ttl from when the store handled the request.
    Renewed,
    /// The holder does not have it any more. Nothing was created.
    Lost(LossCause),
    /// The part of the store that decides about this lock did not answer. When that holds for
    /// all of a batch, the answer to the batch may be the error instead.
    Unanswered(Error),
}

/// The answer to a downgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DowngradeOutcome {
    /// The holder has the lock shared, by this request or since an earlier one.
    Downgraded,
    /// The holder does not have it (any more). Nothing was changed.
    Lost(LossCause),
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free, or goes to the next.
    Released,
    /// The holder did not have it (any more); for a waiting claim: it is gone.
    NotHeld,
}

/// The answer to an operator.
#[derive(Clone, Debug)]
pub enum RevokeOutcome {
    /// These lost it.
    Revoked(Vec<HolderView>),
    /// Nobody has it.
    NotHeld,
    /// Somebody has it, but not with the expected fence: nothing was done.
    OtherFence(Vec<HolderView>),
}

/// Why a lease ended without its holder's asking.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The local deadline passed before a renewal was confirmed.
    Expired {
        /// What the last renewal met, if one failed.
        last_failure: Option<String>,
    },
    /// The store let the lease expire and somebody else has it now.
    Taken {
        /// Who, where the store tells.
        by: Option<String>,
    },
    /// The store does not know the lease: it expired there, or its data was lost.
    Forgotten,
    /// What the lease was bound to in the store has ended.
    SessionEnded,
    /// The store has lost data.
    DataLost,
    /// An operator took it away.
    Revoked {
        /// The reason given.
        reason: String,
    },
}

impl LossCause {
    /// What kind of cause it is, in one word that does not change: one of [`cause::ALL`].
    pub fn code(&self) -> &'static str {
        match self {
            Self::Expired { .. } => cause::EXPIRED,
            Self::Taken { .. } => cause::TAKEN,
            Self::Forgotten => cause::FORGOTTEN,
            Self::SessionEnded => cause::SESSION_ENDED,
            Self::DataLost => cause::DATA_LOST,
            Self::Revoked { .. } => cause::REVOKED,
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { last_failure: None } => {
                f.write_str("its deadline passed before it was renewed")
            }
            Self::Expired { last_failure: Some(failure) } => {
                let failure = printable(failure);
                write!(f, "its deadline passed while it could not be renewed: {failure}")
            }
            Self::Taken { by: Some(by) } => {
                write!(f, "it expired and was taken by {}", printable(by))
            }
            Self::Taken { by: None } => f.write_str("it expired and was taken by another holder"),
            Self::Forgotten => f.write_str("the store does not know it any more"),
            Self::SessionEnded => f.write_str("the store ended the session it belonged to"),
            Self::DataLost => f.write_str("the store has lost data"),
            Self::Revoked { reason } => {
                write!(f, "an operator released it by force: {}", printable(reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_causes_are_the_values_of_their_label() {
        let causes = [
            LossCause::Expired { last_failure: None },
            LossCause::Taken { by: None },
            LossCause::Forgotten,
            LossCause::SessionEnded,
            LossCause::DataLost,
            LossCause::Revoked { reason: "maintenance".into() },
        ];
        assert_eq!(causes.each_ref().map(LossCause::code), cause::ALL);
    }
}
