//! What a store decides, as a pure function: the lines of a few locks, with the rule of
//! [`lockfast_core::queue`] and nothing else.

use std::collections::BTreeMap;
use std::fmt;

use lockfast_core::Mode;
use lockfast_core::queue::{Ahead, check_use};

use super::step::{Lock, Who, letter};

/// One in a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) who: Who,
    pub(super) mode: Mode,
    pub(super) is_granted: bool,
}

/// A lease that an operator took away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Revoked {
    /// By which revocation.
    pub(super) by: usize,
    /// Whether its holder gave it up since, so that the store may have forgotten why.
    pub(super) is_settled: bool,
}

/// What all requests so far have made of the locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    lines: Vec<Vec<Claim>>,
    revoked: BTreeMap<Who, Revoked>,
    /// Who was granted since this was last cleared, in order, lock by lock.
    granted: Vec<Vec<Who>>,
}

/// One request at the moment at which it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Asks, and waits.
    Enter(Lock, Who, Mode),
    /// Asks, and does not wait, or not any longer.
    Try(Lock, Who, Mode),
    Leave(Lock, Who),
    Renew(Lock, Who),
    Downgrade(Lock, Who),
    /// The revocation of this number, perhaps only if this one holds it, or if nobody can.
    Revoke(Lock, usize, Expect),
    Look(Lock),
    /// Asks with a floor that no store may believe.
    Overreach(Lock, Who, Mode),
    Expire(Lock, Who),
}

/// Whose fence an operator expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Any,
    Of(Who),
    Nobody,
}

/// A lock as it is seen: its holders, and how many wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) holders: Vec<(Who, Mode)>,
    pub(super) waiting: usize,
}

/// Why somebody does not hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) revoked: Option<Revoked>,
    /// Whether somebody else holds it.
    pub(super) is_taken: bool,
}

/// What a store has to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Granted,
    Waits,
    Taken(Sight),
    Conflict,
    Released,
    NotHeld,
    Renewed,
    Downgraded,
    Lost(Missing),
    Seen(Sight),
    Revoked(Sight),
    OtherFence(Sight),
    /// The floor is refused, unless this is said before anybody looks at it.
    TooHigh(Box<Said>),
    AlreadyHeld,
    Expired,
}

impl World {
    pub(super) fn new(locks: usize) -> Self {
        let (lines, granted) = (vec![Vec::new(); locks], vec![Vec::new(); locks]);
        Self { lines, revoked: BTreeMap::new(), granted }
    }

    pub(super) fn line(&self, lock: Lock) -> &[Claim] {
        &self.lines[lock]
    }

    pub(super) fn find(&self, who: Who) -> Option<&Claim> {
        self.lines.iter().flatten().find(|claim| claim.who == who)
    }

    pub(super) fn holds(&self, who: Who) -> bool {
        self.find(who).is_some_and(|claim| claim.is_granted)
    }

    pub(super) fn revoked(&self, who: Who) -> Option<Revoked> {
        self.revoked.get(&who).copied()
    }

    /// Who was granted since the last [`World::forget_grants`], in order.
    pub(super) fn granted(&self, lock: Lock) -> &[Who] {
        &self.granted[lock]
    }

    pub(super) fn forget_grants(&mut self) {
        self.granted.iter_mut().for_each(Vec::clear);
    }

    pub(super) fn sight(&self, lock: Lock) -> Sight {
        let held = self.lines[lock].iter().filter(|claim| claim.is_granted);
        let holders: Vec<_> = held.map(|claim| (claim.who, claim.mode)).collect();
        Sight { waiting: self.lines[lock].len() - holders.len(), holders }
    }

    /// Lets a request take effect.
    pub(super) fn act(&mut self, act: Act) -> Said {
        match act {
            Act::Enter(lock, who, mode) => self.enter(lock, who, mode),
            Act::Try(lock, who, mode) => match self.enter(lock, who, mode) {
                Said::Waits => {
                    self.remove(lock, who);
                    Said::Taken(self.sight(lock))
                }
                said => said,
            },
            Act::Leave(lock, who) => {
                if let Some(revoked) = self.revoked.get_mut(&who) {
                    revoked.is_settled = true;
                }
                match self.remove(lock, who) {
                    Some(claim) if claim.is_granted => Said::Released,
                    _ => Said::NotHeld,
                }
            }
            Act::Renew(lock, who) => match self.holds(who) {
                true => Said::Renewed,
                false => Said::Lost(self.missing(lock, who)),
            },
            Act::Downgrade(lock, who) => self.downgrade(lock, who),
            Act::Revoke(lock, number, expect) => self.revoke(lock, number, expect),
            Act::Look(lock) => Said::Seen(self.sight(lock)),
            Act::Overreach(lock, who, mode) => {
                Said::TooHigh(Box::new(self.clone().act(Act::Try(lock, who, mode))))
            }
            Act::Expire(lock, who) => {
                self.remove(lock, who);
                Said::Expired
            }
        }
    }

    fn enter(&mut self, lock: Lock, who: Who, mode: Mode) -> Said {
        if self.find(who).is_none() {
            // A repetition that comes after its lock was taken away is no new request.
            if self.revoked(who).is_some_and(|revoked| !revoked.is_settled) {
                return Said::Lost(self.missing(lock, who));
            }
            let line = &mut self.lines[lock];
            if check_use(line.iter().map(|claim| claim.mode), mode).is_err() {
                return Said::Conflict;
            }
            line.push(Claim { who, mode, is_granted: false });
            self.settle(lock);
        }
        match self.find(who) {
            Some(claim) if claim.mode != mode => Said::AlreadyHeld,
            Some(claim) if claim.is_granted => Said::Granted,
            _ => Said::Waits,
        }
    }

    fn remove(&mut self, lock: Lock, who: Who) -> Option<Claim> {
        let at = self.lines[lock].iter().position(|claim| claim.who == who)?;
        let claim = self.lines[lock].remove(at);
        self.settle(lock);
        Some(claim)
    }

    fn downgrade(&mut self, lock: Lock, who: Who) -> Said {
        if !self.holds(who) {
            return Said::Lost(self.missing(lock, who));
        }
        let line = &mut self.lines[lock];
        if check_use(line.iter().map(|claim| claim.mode), Mode::Shared).is_err() {
            return Said::Conflict;
        }
        line.iter_mut()
            .filter(|claim| claim.who == who)
            .for_each(|claim| claim.mode = Mode::Shared);
        self.settle(lock);
        Said::Downgraded
    }

    fn revoke(&mut self, lock: Lock, by: usize, expect: Expect) -> Said {
        let sight = self.sight(lock);
        let is_expected = match expect {
            Expect::Any => true,
            Expect::Of(who) => self.holds(who),
            Expect::Nobody => false,
        };
        if sight.holders.is_empty() {
            return Said::NotHeld;
        }
        if !is_expected {
            return Said::OtherFence(sight);
        }
        for (who, _) in &sight.holders {
            self.revoked.insert(*who, Revoked { by, is_settled: false });
        }
        self.lines[lock].retain(|claim| !claim.is_granted);
        self.settle(lock);
        Said::Revoked(sight)
    }

    fn missing(&self, lock: Lock, who: Who) -> Missing {
        let is_taken = self.lines[lock].iter().any(|claim| claim.is_granted);
        Missing { revoked: self.revoked(who), is_taken }
    }

    /// Grants everybody whom the rule lets in.
    fn settle(&mut self, lock: Lock) {
        let mut ahead = Ahead::default();
        for claim in &mut self.lines[lock] {
            if !claim.is_granted && ahead.allows(claim.mode) {
                claim.is_granted = true;
                self.granted[lock].push(claim.who);
            }
            ahead.count(claim.mode);
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lock, line) in self.lines.iter().enumerate() {
            write!(f, "{}{}", if lock > 0 { "; " } else { "" }, letter(lock))?;
            if line.is_empty() {
                f.write_str(" is free")?;
            }
            for Claim { who, mode, is_granted } in line {
                let does = if *is_granted { "holds" } else { "waits" };
                write!(f, ", {who} {does} ({mode})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;

    fn world(acts: &[Act]) -> World {
        let mut world = World::new(1);
        for act in acts {
            world.act(*act);
        }
        world
    }

    #[test]
    fn nobody_overtakes_and_a_refusal_leaves_nothing() {
        let mut world = world(&[Act::Enter(0, 0, S), Act::Enter(0, 1, E)]);
        let seen = Sight { holders: vec![(0, S)], waiting: 1 };
        assert_eq!(world.act(Act::Try(0, 2, S)), Said::Taken(seen.clone()));
        assert_eq!(world.sight(0), seen);
        assert_eq!(world.act(Act::Enter(0, 3, S)), Said::Waits);
        assert_eq!(world.act(Act::Leave(0, 1)), Said::NotHeld);
        assert!(world.holds(3));
        assert_eq!(world.granted(0), [0, 3]);
        assert_eq!(world.act(Act::Try(0, 4, Mode::permit(2).unwrap())), Said::Conflict);
    }

    #[test]
    fn what_was_taken_away_is_told_until_it_is_given_up() {
        let mut world = world(&[Act::Enter(0, 0, E), Act::Enter(0, 1, S)]);
        assert!(matches!(world.act(Act::Revoke(0, 7, Expect::Of(1))), Said::OtherFence(_)));
        assert!(matches!(world.act(Act::Revoke(0, 8, Expect::Of(0))), Said::Revoked(_)));
        let revoked = |is_settled| Some(Revoked { by: 8, is_settled });
        let missing = |revoked| Said::Lost(Missing { revoked, is_taken: true });
        assert_eq!(world.act(Act::Renew(0, 0)), missing(revoked(false)));
        assert_eq!(world.act(Act::Try(0, 0, E)), missing(revoked(false)));
        assert_eq!(world.act(Act::Leave(0, 0)), Said::NotHeld);
        assert_eq!(world.act(Act::Downgrade(0, 0)), missing(revoked(true)));
        assert_eq!(world.act(Act::Downgrade(0, 1)), Said::Downgraded);
    }

    #[test]
    fn a_downgrade_lets_readers_in_up_to_the_next_writer() {
        let mut world = world(&[
            Act::Enter(0, 0, E),
            Act::Enter(0, 1, S),
            Act::Enter(0, 2, E),
            Act::Enter(0, 3, S),
        ]);
        assert_eq!(world.act(Act::Downgrade(0, 0)), Said::Downgraded);
        assert_eq!(world.sight(0), Sight { holders: vec![(0, S), (1, S)], waiting: 2 });
        assert_eq!(world.act(Act::Try(0, 0, E)), Said::AlreadyHeld);
        assert_eq!(world.act(Act::Try(0, 0, S)), Said::Granted);
    }
}
