//! What each node of a store said where several decide together, so that a refusal explains
//! itself.

use std::fmt;
use std::time::Duration;

use crate::error::printable;
use crate::fence::Fence;
use crate::view::{HolderView, brief};

/// One node and what it said.
#[derive(Clone, Debug)]
pub struct NodeVote {
    /// The node, as it is named in the store's URL.
    pub node: String,
    /// What it said.
    pub vote: Vote,
}

/// What a node said.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Vote {
    /// It agreed.
    Granted,
    /// Somebody else has the lock there.
    Held {
        /// Who.
        by: HolderView,
    },
    /// The holder does not have the lock there (any more).
    NotHeld,
    /// It has seen a later grant than the one that was proposed.
    FenceTooLow {
        /// The fence that it has seen.
        seen: Fence,
    },
    /// The fence that was proposed is too far ahead of its clock.
    FenceTooHigh,
    /// It could not be asked, or did not do what was asked.
    Unreachable {
        /// Why.
        why: String,
    },
    /// It did not answer in the time that a node has.
    Late {
        /// The time it had.
        limit: Duration,
    },
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Held { by } => write!(f, "held by {by}"),
            Self::NotHeld => f.write_str("not held there"),
            Self::FenceTooLow { seen } => write!(f, "fence too low, {seen} was seen"),
            Self::FenceTooHigh => f.write_str("fence too far ahead of its clock"),
            Self::Unreachable { why } => f.write_str(&printable(why)),
            Self::Late { limit } => write!(f, "no answer within {}", brief(*limit)),
        }
    }
}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.vote.to_string();
        // What a connection failed with often names the node already.
        match said.contains(&self.node) {
            true => f.write_str(&said),
            false => write!(f, "{}: {said}", self.node),
        }
    }
}

/// All votes in one line.
pub fn list(votes: &[NodeVote]) -> String {
    votes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_read_well() {
        let vote = |node: &str, vote| NodeVote { node: node.into(), vote };
        let votes = [
            vote("a:1", Vote::Granted),
            vote("b:1", Vote::Unreachable { why: "connection refused: b:1".into() }),
            vote("c:1", Vote::Late { limit: Duration::from_millis(50) }),
        ];
        let line = "a:1: granted; connection refused: b:1; c:1: no answer within 50ms";
        assert_eq!(list(&votes), line);
    }
}
