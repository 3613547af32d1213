//! The votes of one round, and what follows from them. It decides as soon as it can: when a
//! quorum has granted, or when none can be had any more.

use std::time::Duration;

use crate::record::Seen;
use crate::wire::Failure;

/// What a node said about a proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing yet.
    #[default]
    Nothing,
    Granted,
    /// The holder has it already, with this fence.
    Own(u64),
    /// It has seen this later fence.
    TooLow(u64),
    /// The proposal is too far ahead of its clock, which is this.
    Ahead(u64),
    Held(Seen),
    Failed(Failure),
    Late(Duration),
}

impl Said {
    /// Whether a node that is asked with a better proposal would grant it.
    fn is_willing(&self) -> bool {
        matches!(self, Self::Granted | Self::Own(_) | Self::TooLow(_) | Self::Ahead(_))
    }

    /// Whether it is certain that the node keeps nothing of the request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::TooLow(_) | Self::Ahead(_) | Self::Held(_))
    }
}

/// What the votes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is too early to tell.
    Open,
    /// A quorum has granted the proposal.
    Granted,
    /// A quorum has the holder already, with this fence.
    Own(u64),
    /// A quorum would grant a better proposal, above this one.
    Again { above: u64 },
    /// No quorum can be had.
    Refused,
}

/// The votes of one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ballot(Vec<Said>);

impl Ballot {
    /// An empty ballot of so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![Said::Nothing; nodes])
    }

    /// Takes a vote down; only the first of a node counts.
    pub(crate) fn cast(&mut self, node: usize, said: Said) {
        if let Some(vote) = self.0.get_mut(node).filter(|vote| **vote == Said::Nothing) {
            *vote = said;
        }
    }

    /// Takes back whatever a node said or will say.
    pub(crate) fn withdraw(&mut self, node: usize, failure: Failure) {
        if let Some(vote) = self.0.get_mut(node) {
            *vote = Said::Failed(failure);
        }
    }

    pub(crate) fn votes(&self) -> &[Said] {
        &self.0
    }

    /// Takes over what nodes said in a later round. One that is late then does not take back that
    /// somebody has the lock.
    pub(crate) fn update(&mut self, later: &Self) {
        self.0.resize(later.0.len(), Said::Nothing);
        for (vote, later) in self.0.iter_mut().zip(&later.0) {
            let is_silent = match later {
                Said::Nothing => true,
                Said::Late(_) => matches!(vote, Said::Held(_)),
                _ => false,
            };
            if !is_silent {
                vote.clone_from(later);
            }
        }
    }

    /// Counts.
    pub(crate) fn decide(&self, quorum: usize) -> Verdict {
        let count = |which: &dyn Fn(&Said) -> bool| self.0.iter().filter(|it| which(it)).count();
        let granted = count(&|said| *said == Said::Granted);
        if granted >= quorum {
            return Verdict::Granted;
        }
        let mut own = 0;
        for said in &self.0 {
            let Said::Own(fence) = said else { continue };
            let same = count(&|other| other == said);
            if same >= quorum {
                return Verdict::Own(*fence);
            }
            own = own.max(same);
        }
        let open = count(&|said| *said == Said::Nothing);
        if granted.max(own) + open >= quorum {
            return Verdict::Open;
        }
        let ahead = count(&|said| matches!(said, Said::Ahead(_)));
        let willing = count(&Said::is_willing) - ahead;
        // A few nodes for which it was too far ahead have wrong clocks; only where no quorum can be
        // had without them is an earlier proposal made.
        let may_win = |open: usize| {
            let is_believed = ahead + open > self.0.len() - quorum;
            willing + open + if is_believed { ahead } else { 0 } >= quorum
        };
        if may_win(0) {
            let above = self.0.iter().map(|said| match said {
                Said::Own(fence) | Said::TooLow(fence) => *fence,
                _ => 0,
            });
            return Verdict::Again { above: above.max().unwrap_or(0) };
        }
        if may_win(open) { Verdict::Open } else { Verdict::Refused }
    }

    /// Whether somebody else is in the way, and not that too few nodes can be asked.
    pub(crate) fn is_taken(&self, quorum: usize) -> bool {
        let silent = |said: &&Said| matches!(said, Said::Failed(_) | Said::Late(_));
        let silent = self.0.iter().filter(silent).count();
        self.0.len() - silent >= quorum && self.held().next().is_some()
    }

    /// Whether one holder keeps everybody else from having a quorum, as far as can be told.
    pub(crate) fn is_firm(&self, quorum: usize) -> bool {
        let same = |seen: &Seen| {
            self.0
                .iter()
                .filter(|said| match said {
                    Said::Held(other) => other.value == seen.value,
                    Said::Granted | Said::Own(_) | Said::TooLow(_) | Said::Ahead(_) => false,
                    Said::Nothing | Said::Failed(_) | Said::Late(_) => true,
                })
                .count()
        };
        self.held().any(|seen| same(seen) >= quorum)
    }

    /// What is in the way.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Seen> {
        self.0.iter().filter_map(|said| match said {
            Said::Held(seen) => Some(seen),
            _ => None,
        })
    }

    /// When so many nodes will be free that there can be a quorum, if nobody does anything.
    pub(crate) fn free_in(&self, quorum: usize) -> Option<Duration> {
        let willing = self.0.iter().filter(|said| said.is_willing()).count();
        let mut left: Vec<Duration> = self.held().filter_map(|seen| seen.left).collect();
        left.sort_unstable();
        let last = quorum.saturating_sub(willing).max(1) - 1;
        left.get(last.min(left.len().saturating_sub(1))).copied()
    }

    /// By which clock to propose, if the proposal was too far ahead for a quorum: the latest by
    /// which one may be had.
    pub(crate) fn clock(&self, quorum: usize) -> Option<u64> {
        let clocks = self.0.iter().filter_map(|said| match said {
            Said::Ahead(now_us) => Some(*now_us),
            _ => None,
        });
        let mut clocks: Vec<u64> = clocks.collect();
        clocks.sort_unstable_by(|a, b| b.cmp(a));
        let willing = self.0.iter().filter(|said| said.is_willing()).count() - clocks.len();
        clocks.get(quorum.checked_sub(willing + 1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ErrorKind;

    fn held(value: &str, left_ms: u64) -> Said {
        Said::Held(Seen {
            value: value.into(),
            left: Some(Duration::from_millis(left_ms)),
            callers: 0,
            place: None,
        })
    }

    fn failed() -> Said {
        Said::Failed(Failure::new(ErrorKind::Unreachable, "gone"))
    }

    fn ballot(votes: &[Said]) -> Ballot {
        Ballot(votes.to_vec())
    }

    #[test]
    fn a_quorum_decides_as_soon_as_it_can() {
        use Said::{Ahead, Granted as G, Nothing as N, Own, TooLow};
        let late = || Said::Late(Duration::ZERO);
        let table: &[(&[Said], usize, Verdict)] = &[
            (&[N, N, N], 2, Verdict::Open),
            (&[G, N, N], 2, Verdict::Open),
            (&[G, G, N], 2, Verdict::Granted),
            (&[G, N, failed()], 2, Verdict::Open),
            (&[N, failed(), late()], 2, Verdict::Refused),
            (&[held("x", 1), held("x", 1), N], 2, Verdict::Refused),
            (&[held("x", 1), N, N], 2, Verdict::Open),
            // A better proposal may win, but only what a quorum would grant is proposed.
            (&[TooLow(7), TooLow(9), N], 2, Verdict::Again { above: 9 }),
            (&[TooLow(7), G, N], 2, Verdict::Open),
            (&[TooLow(7), G, held("x", 1)], 2, Verdict::Again { above: 7 }),
            (&[TooLow(7), held("x", 1), N], 2, Verdict::Open),
            (&[TooLow(7), held("x", 1), failed()], 2, Verdict::Refused),
            // What the holder has already counts only with one fence.
            (&[Own(5), Own(5), N], 2, Verdict::Own(5)),
            (&[Own(5), Own(6), N], 2, Verdict::Open),
            (&[Own(5), Own(6), G], 2, Verdict::Again { above: 6 }),
            (&[Own(5), G, N, N, N], 3, Verdict::Open),
            (&[Own(5), G, failed(), failed(), N], 3, Verdict::Open),
            (&[Own(5), G, G, failed(), failed()], 3, Verdict::Again { above: 5 }),
            // A minority for which it was too far ahead is not believed.
            (&[Ahead(7), Ahead(9), N], 2, Verdict::Again { above: 0 }),
            (&[Ahead(7), G, Ahead(9)], 2, Verdict::Again { above: 0 }),
            (&[Ahead(7), TooLow(8), TooLow(9)], 2, Verdict::Again { above: 9 }),
            (&[Ahead(7), G, N], 2, Verdict::Open),
            (&[Ahead(7), held("x", 1), N], 2, Verdict::Open),
            (&[Ahead(7), G, late()], 2, Verdict::Refused),
            (&[Ahead(7), TooLow(8), held("x", 1)], 2, Verdict::Refused),
            (&[Ahead(7), G, G], 3, Verdict::Again { above: 0 }),
            (&[Ahead(7), Ahead(9), G, G, late()], 3, Verdict::Refused),
            (&[Ahead(7), Ahead(9), Ahead(8), late(), late()], 3, Verdict::Again { above: 0 }),
            (&[G], 1, Verdict::Granted),
            (&[failed()], 1, Verdict::Refused),
        ];
        for (votes, quorum, expected) in table {
            assert_eq!(ballot(votes).decide(*quorum), *expected, "{votes:?}");
        }
    }

    #[test]
    fn the_latest_clock_that_a_quorum_follows() {
        use Said::{Ahead, Granted as G, TooLow};
        let table: &[(&[Said], usize, Option<u64>)] = &[
            (&[Ahead(7), Ahead(9), Ahead(8)], 2, Some(8)),
            (&[Ahead(7), Ahead(9), G], 2, Some(9)),
            (&[Ahead(7), TooLow(20), G], 3, Some(7)),
            (&[Ahead(7), TooLow(20), G], 2, None),
            (&[Ahead(7), Ahead(9), Ahead(8), failed(), failed()], 3, Some(7)),
            (&[TooLow(20), TooLow(20), failed()], 2, None),
        ];
        for (votes, quorum, expected) in table {
            assert_eq!(ballot(votes).clock(*quorum), *expected, "{votes:?}");
        }
    }

    #[test]
    fn the_first_vote_of_a_node_counts() {
        let mut ballot = Ballot::new(2);
        ballot.cast(0, Said::Late(Duration::ZERO));
        ballot.cast(0, Said::Granted);
        ballot.cast(7, Said::Granted);
        assert_eq!(ballot.votes(), [Said::Late(Duration::ZERO), Said::Nothing]);
    }

    #[test]
    fn who_is_in_the_way_and_for_how_long() {
        let table: &[(&[Said], bool, bool, Option<u64>)] = &[
            (&[held("x", 30), held("x", 50), held("x", 40)], true, true, Some(40)),
            (&[held("x", 30), held("x", 50), Said::Granted], true, true, Some(30)),
            (&[held("x", 30), held("y", 50), Said::Granted], true, false, Some(30)),
            (&[held("x", 30), failed(), failed()], false, true, Some(30)),
            (&[failed(), failed(), Said::Granted], false, false, None),
        ];
        for (votes, taken, firm, free_ms) in table {
            let ballot = ballot(votes);
            assert_eq!((ballot.is_taken(2), ballot.is_firm(2)), (*taken, *firm), "{votes:?}");
            assert_eq!(ballot.free_in(2), free_ms.map(Duration::from_millis), "{votes:?}");
        }
    }
}
