//! What is asked of a node, and how many askers share one round trip.

use std::sync::Arc;

use lockfast_core::Fence;

use crate::claim::{Claim, Ticket};
use crate::giving::Giving;
use crate::inquiry::Inquiry;
use crate::renewal::Renewal;

/// How many locks one call of a script carries.
pub(crate) const LOCKS_MAX: usize = 256;

/// How often a node was asked for the same, and how it is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    pub(crate) count: u8,
    /// Whether each lock has a call of its own, because one with others was refused.
    pub(crate) is_apart: bool,
}

/// One request to one node.
pub(crate) enum Op {
    Take(Take),
    Give(Arc<Giving>, Tries),
    Renew(Arc<Renewal>, Tries),
    Ask(Arc<Inquiry>, Tries),
    /// Writes a lease down again on a node that has forgotten it, for so long in ms.
    Relock(Arc<Claim>, Fence, u64),
}

/// Asks for a lock in a round of its claim.
pub(crate) struct Take {
    pub(crate) claim: Arc<Claim>,
    pub(crate) round: u32,
    pub(crate) tries: Tries,
}

impl Op {
    /// What is counted of it, if it is ever repeated.
    pub(crate) fn tries(&mut self) -> Option<&mut Tries> {
        match self {
            Self::Take(take) => Some(&mut take.tries),
            Self::Give(_, tries) | Self::Renew(_, tries) | Self::Ask(_, tries) => Some(tries),
            Self::Relock(..) => None,
        }
    }
}

/// An acquisition as it was sent.
pub(crate) struct Sent {
    pub(crate) take: Take,
    pub(crate) ticket: Ticket,
    /// Whether the answer is a vote.
    pub(crate) counts: bool,
}

/// What one round trip carries, in the order of the commands.
#[derive(Default)]
pub(crate) struct Batch {
    /// When it was sent, in [`lockfast_core::Moment::host_ns`].
    pub(crate) sent_ns: u64,
    /// Replies that nobody waits for.
    pub(crate) preamble: usize,
    /// Each with the number of its calls.
    pub(crate) renewals: Vec<(Arc<Renewal>, Tries, usize)>,
    /// Before what is taken, so that a lock that changes hands here is free by then.
    pub(crate) gives: Vec<(Arc<Giving>, Tries)>,
    pub(crate) takes: Vec<Sent>,
    /// Each with the number of its replies.
    pub(crate) inquiries: Vec<(Arc<Inquiry>, Tries, usize)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.renewals.is_empty()
            && self.gives.is_empty()
            && self.takes.is_empty()
            && self.inquiries.is_empty()
    }

    /// What is given back, one run for each call: all of a call end in the same way.
    pub(crate) fn give_runs(&self) -> impl Iterator<Item = &[(Arc<Giving>, Tries)]> {
        self.gives.chunk_by(|(one, mine), (next, its)| {
            one.ending == next.ending && !mine.is_apart && !its.is_apart
        })
    }

    /// What is taken, likewise.
    pub(crate) fn take_runs(&self) -> impl Iterator<Item = &[Sent]> {
        let is_apart = |sent: &Sent| sent.take.tries.is_apart;
        self.takes.chunk_by(move |one, next| !is_apart(one) && !is_apart(next))
    }
}
