//! What one node of a fenced Redlock does, as a pure function of its state and a request: the rule
//! that the model checks and that the scripts on real nodes follow. Time is not in it: a grant
//! ends when somebody calls [`Node::expire`], whenever that is.

/// What a node knows of one lock.
///
/// While the lock is held, `fence` is the fence of that grant: nobody but its holder moves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node<H, F> {
    /// Who has the lock here.
    pub holder: Option<H>,
    /// The greatest fence that this node accepted; it outlives the lock.
    pub fence: F,
}

/// What a node answers to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<H, F> {
    /// The holder has the lock here, with the fence that it proposed.
    Granted,
    /// Somebody else has the lock here.
    Taken(H),
    /// The proposal is not above this fence, which the node has accepted already.
    TooLow(F),
}

impl<H: Copy + Eq, F: Copy + Ord + Default> Node<H, F> {
    /// Grants the lock if it is free, or the holder's already, and the proposal is above every
    /// fence accepted so far. The very same request again is granted again, so that a lost reply
    /// can be repeated; an older proposal of the holder that comes late is not.
    pub fn acquire(&mut self, holder: H, proposal: F) -> Answer<H, F> {
        match self.holder {
            Some(other) if other != holder => Answer::Taken(other),
            Some(_) if proposal == self.fence => Answer::Granted,
            _ if proposal > self.fence => {
                *self = Self { holder: Some(holder), fence: proposal };
                Answer::Granted
            }
            _ => Answer::TooLow(self.fence),
        }
    }

    /// Takes back what `holder` may have been granted by proposals up to `fence`; true if there was
    /// something. A later proposal's grant stays, so that a late undo of one try cannot hurt the
    /// next. Where the lock was free the fence is raised, so that a proposal that arrives after its
    /// own undo is refused.
    pub fn undo(&mut self, holder: H, fence: F) -> bool {
        let was_held = self.has(holder) && self.fence <= fence;
        if was_held {
            self.holder = None;
        } else if self.holder.is_none() {
            self.fence = self.fence.max(fence);
        }
        was_held
    }

    /// Whether the lock is `holder`'s here with its hold's `fence`, so that its time may begin anew.
    /// It never creates. The grant of another proposal does not count: an earlier one's may be
    /// undone any moment, and a later one's may have come after somebody else's hold.
    pub fn renew(&self, holder: H, fence: F) -> bool {
        self.has(holder) && self.fence == fence
    }

    /// Whether the lock is `holder`'s here.
    pub fn has(&self, holder: H) -> bool {
        self.holder == Some(holder)
    }

    /// The grant's time is over; the fence stays.
    pub fn expire(&mut self) {
        self.holder = None;
    }

    /// All is lost: a restart without persistence, a flush, an eviction.
    pub fn forget(&mut self) {
        *self = Self { holder: None, fence: F::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Node<char, u8>;

    fn node(holder: impl Into<Option<char>>, fence: u8) -> Small {
        Node { holder: holder.into(), fence }
    }

    #[test]
    fn a_proposal_is_answered_by_the_table() {
        let table = [
            // what was there, who proposes what, the answer, what is there then
            (node(None, 0), 'a', 1, Answer::Granted, node('a', 1)),
            (node(None, 4), 'a', 5, Answer::Granted, node('a', 5)),
            (node(None, 5), 'a', 5, Answer::TooLow(5), node(None, 5)),
            (node(None, 6), 'a', 5, Answer::TooLow(6), node(None, 6)),
            (node('a', 5), 'a', 5, Answer::Granted, node('a', 5)),
            (node('a', 5), 'a', 7, Answer::Granted, node('a', 7)),
            (node('a', 5), 'a', 4, Answer::TooLow(5), node('a', 5)),
            (node('b', 5), 'a', 4, Answer::Taken('b'), node('b', 5)),
            (node('b', 5), 'a', 5, Answer::Taken('b'), node('b', 5)),
            (node('b', 5), 'a', 9, Answer::Taken('b'), node('b', 5)),
        ];
        for (before, holder, proposal, answer, after) in table {
            let mut seen = before;
            assert_eq!(seen.acquire(holder, proposal), answer, "{before:?} {holder} {proposal}");
            assert_eq!(seen, after, "{before:?} {holder} {proposal}");
        }
    }

    #[test]
    fn an_undo_is_answered_by_the_table() {
        let table = [
            (node('a', 5), 'a', 5, true, node(None, 5)),
            (node('a', 5), 'a', 7, true, node(None, 5)),
            (node('a', 5), 'a', 4, false, node('a', 5)),
            (node('b', 5), 'a', 9, false, node('b', 5)),
            (node(None, 3), 'a', 5, false, node(None, 5)),
            (node(None, 8), 'a', 5, false, node(None, 8)),
        ];
        for (before, holder, fence, was_held, after) in table {
            let mut seen = before;
            assert_eq!(seen.undo(holder, fence), was_held, "{before:?} {holder} {fence}");
            assert_eq!(seen, after, "{before:?} {holder} {fence}");
        }
    }

    #[test]
    fn a_renewal_finds_and_never_creates() {
        assert!(node('a', 5).renew('a', 5));
        assert!(!node('a', 4).renew('a', 5));
        assert!(!node('a', 6).renew('a', 5));
        assert!(!node('b', 5).renew('a', 5));
        assert!(!node(None, 5).renew('a', 5));
    }

    #[test]
    fn an_expiry_keeps_the_fence_and_a_loss_of_memory_does_not() {
        let mut seen = node('a', 5);
        seen.expire();
        assert_eq!(seen, node(None, 5));
        seen.forget();
        assert_eq!(seen, node(None, 0));
    }
}
