//! What is asked of a node, and how many askers share one round trip.

use std::sync::Arc;

use lockfast_core::Fence;

use crate::claim::{Claim, Ticket};
use crate::giving::Giving;
use crate::inquiry::Inquiry;
use crate::renewal::Renewal;

/// How many locks one call of a script carries.
pub(crate) const LOCKS_MAX: usize = 256;

/// One request to one node.
pub(crate) enum Op {
    Take(Take),
    Give(Arc<Giving>, u8),
    Renew(Arc<Renewal>, u8),
    Ask(Arc<Inquiry>, u8),
    /// Writes a lease down again on a node that has forgotten it.
    Relock(Arc<Claim>, Fence),
}

/// Asks for a lock in a round of its claim.
pub(crate) struct Take {
    pub(crate) claim: Arc<Claim>,
    pub(crate) round: u32,
    pub(crate) tries: u8,
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
    pub(crate) renewals: Vec<(Arc<Renewal>, u8, usize)>,
    /// Before what is taken, so that a lock that changes hands here is free by then.
    pub(crate) gives: Vec<(Arc<Giving>, u8)>,
    pub(crate) takes: Vec<Sent>,
    /// Each with the number of its replies.
    pub(crate) inquiries: Vec<(Arc<Inquiry>, u8, usize)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.renewals.is_empty()
            && self.gives.is_empty()
            && self.takes.is_empty()
            && self.inquiries.is_empty()
    }

    /// What is given back, one run for each call: all of a call end in the same way.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[(Arc<Giving>, u8)]> {
        self.gives.chunk_by(|(one, _), (next, _)| one.ending == next.ending)
    }
}
