//! What a story is made of, and how a story is invented from a seed.

use std::fmt;

use lockfast_core::{Feature, Mode, Profile};

use super::world::{Act, Claim, Expect, World};
use crate::{Dice, Seed};

/// A lock of the story, by its number.
pub(super) type Lock = usize;
/// A holder of the story, by its number: one acquisition of one lock.
pub(super) type Who = usize;

/// How many locks a story is about.
pub(super) const LOCKS: usize = 2;
/// How many connections its holders use.
pub(super) const CONNECTIONS: usize = 3;
/// How many steps a story has.
const STEPS: usize = 40;
/// How many requests are issued at once at most: all their orders are tried.
const AT_ONCE_MAX: u64 = 4;
/// Longer lines show nothing that shorter ones do not.
const LINE_MAX: usize = 7;

/// Requests that are issued at once; most steps have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step(pub(super) Vec<Request>);

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) lock: Lock,
    pub(super) who: Who,
    /// Through which connection, where any will do. What is asked for goes through the holder's own.
    pub(super) via: usize,
    pub(super) what: What,
}

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Acquires; the fence has to be above the last one by more than this, if there is a floor.
    Acquire {
        mode: Mode,
        patience: Patience,
        floor: Option<u64>,
    },
    /// Acquires and gives up at once, so that nobody knows how far the request got.
    AcquireAndCancel {
        mode: Mode,
    },
    /// Acquires with a floor that no store may believe.
    AcquireFarAhead {
        mode: Mode,
    },
    /// Sends the request of a holder again, as one does that did not hear the answer.
    Again {
        may_wait: bool,
    },
    /// A holder asks for what it has, in another mode.
    OtherMode {
        mode: Mode,
    },
    /// Gives back what it has, or gives up waiting.
    Release,
    /// Renews its lease, together with those of others, some of them twice.
    Renew {
        others: Vec<Who>,
    },
    Downgrade,
    /// An operator takes the lock away, from whoever has it or from whom it expects.
    Revoke {
        expect: Expect,
    },
    Look,
    /// Looks at all locks of the story by their prefix.
    List,
    /// The lease is made short, and nobody renews it.
    Expire {
        with_delay: bool,
    },
}

/// How long somebody waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Short,
    Endless,
}

impl What {
    /// Whether its holder did not ask for anything before.
    pub(super) fn is_first(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::AcquireAndCancel { .. })
    }

    /// Whether it must not be issued together with others, because it counts on knowing the order.
    pub(super) fn is_alone(&self) -> bool {
        matches!(
            self,
            Self::AcquireFarAhead { .. }
                | Self::OtherMode { .. }
                | Self::List
                | Self::Expire { .. }
        )
    }
}

/// Invents a story. It keeps a line of its own, as if requests that are issued at once took effect in
/// their order, so that most steps are about somebody who is there.
pub(super) fn invent(seed: Seed, profile: &Profile) -> Vec<Step> {
    let mut dice = seed.dice();
    let uses = std::array::from_fn(|_| some_use(&mut dice, profile));
    let mut author = Author {
        dice,
        world: World::new(LOCKS),
        uses,
        has_downgrade: profile.lack_of(Feature::Downgrade).is_none(),
        has_floor: profile.lack_of(Feature::Floor).is_none(),
        has_delay: profile.lack_of(Feature::LockDelay).is_none(),
        came: [0; LOCKS].map(|_| Vec::new()),
        next_who: 0,
    };
    (0..STEPS).map(|_| author.step()).collect()
}

/// How a lock is used beside exclusively.
fn some_use(dice: &mut Dice, profile: &Profile) -> Mode {
    let limit = 1 + dice.below(3);
    let permit = Mode::permit(limit as u32).expect("a limit");
    let wanted = if dice.one_in(2) { Mode::Shared } else { permit };
    let possible = [wanted, Mode::Shared, permit];
    let possible = possible.into_iter().find(|mode| profile.require_mode(*mode).is_ok());
    possible.unwrap_or(Mode::Exclusive)
}

struct Author {
    dice: Dice,
    world: World,
    uses: [Mode; LOCKS],
    has_downgrade: bool,
    has_floor: bool,
    has_delay: bool,
    /// All who ever asked for each lock.
    came: [Vec<Who>; LOCKS],
    next_who: Who,
}

impl Author {
    fn step(&mut self) -> Step {
        let count = if self.dice.one_in(3) { 2 + self.dice.below(AT_ONCE_MAX - 1) } else { 1 };
        let focus = self.dice.one_in(2).then(|| self.some_lock());
        let mut requests = Vec::new();
        for _ in 0..count {
            let lock = focus.unwrap_or_else(|| self.some_lock());
            let mut request = self.request(lock);
            while count > 1 && request.what.is_alone() {
                request = self.request(lock);
            }
            self.assume(&request);
            let twice = match request.what {
                What::Release | What::Renew { .. } | What::Downgrade => true,
                What::Acquire { patience, .. } => patience == Patience::None,
                _ => false,
            };
            if twice && (requests.len() as u64) + 1 < count && self.dice.one_in(4) {
                requests.push(request.clone());
            }
            requests.push(request);
            if requests.len() as u64 >= count {
                break;
            }
        }
        Step(requests)
    }

    fn some_lock(&mut self) -> Lock {
        self.dice.below(LOCKS as u64) as Lock
    }

    fn request(&mut self, lock: Lock) -> Request {
        let via = self.dice.below(CONNECTIONS as u64) as usize;
        let is_long = self.world.line(lock).len() >= LINE_MAX;
        let (who, what) = match self.dice.below(100) {
            0..38 if !is_long => self.acquisition(lock),
            0..58 => (self.some(lock, |claim| claim.is_granted), What::Release),
            58..65 => (self.some(lock, |claim| !claim.is_granted), What::Release),
            65..68 => (self.anybody(lock), What::Release),
            68..75 => {
                let others = (0..self.dice.below(3)).map(|_| self.anybody(lock)).collect();
                (self.some(lock, |_| true), What::Renew { others })
            }
            75..82 if self.has_downgrade => {
                let is_likely =
                    |claim: &Claim| claim.is_granted && !matches!(claim.mode, Mode::Permit { .. });
                (self.some(lock, is_likely), What::Downgrade)
            }
            75..86 => {
                let who = self.some(lock, |claim| claim.is_granted);
                let expect = match self.dice.below(4) {
                    0 => Expect::Any,
                    1 => Expect::Nobody,
                    _ => Expect::Of(who),
                };
                (who, What::Revoke { expect })
            }
            86..93 => {
                let may_wait = !self.dice.one_in(4);
                (self.some(lock, |_| true), What::Again { may_wait })
            }
            93..95 => {
                let mode = if self.dice.one_in(2) { Mode::Exclusive } else { self.uses[lock] };
                (self.some(lock, |claim| claim.is_granted), What::OtherMode { mode })
            }
            95..97 => (0, What::Look),
            97 => (0, What::List),
            _ => {
                let with_delay = self.has_delay && self.dice.one_in(3);
                (self.some(lock, |claim| claim.is_granted), What::Expire { with_delay })
            }
        };
        Request { lock, who, via, what }
    }

    fn acquisition(&mut self, lock: Lock) -> (Who, What) {
        let who = self.next_who;
        self.next_who += 1;
        self.came[lock].push(who);
        let mode = match self.dice.below(12) {
            0..5 => Mode::Exclusive,
            // Mostly a conflict: another lock's use, or another limit.
            5 => self.uses[(lock + 1) % LOCKS],
            _ => self.uses[lock],
        };
        let floor = (self.has_floor && self.dice.one_in(6)).then(|| self.dice.below(5000));
        let what = match self.dice.below(24) {
            0 => What::AcquireAndCancel { mode },
            1 if self.has_floor => What::AcquireFarAhead { mode },
            2 => What::Acquire { mode, patience: Patience::Short, floor },
            3..11 => What::Acquire { mode, patience: Patience::None, floor },
            _ => What::Acquire { mode, patience: Patience::Endless, floor },
        };
        (who, what)
    }

    /// One in the line of whom this is true, or anybody.
    fn some(&mut self, lock: Lock, is_meant: impl Fn(&Claim) -> bool) -> Who {
        let meant: Vec<Who> = self
            .world
            .line(lock)
            .iter()
            .filter(|claim| is_meant(claim))
            .map(|claim| claim.who)
            .collect();
        match meant.len() as u64 {
            0 => self.anybody(lock),
            count => meant[self.dice.below(count) as usize],
        }
    }

    /// Somebody who has ever asked for the lock, or a stranger.
    fn anybody(&mut self, lock: Lock) -> Who {
        let count = self.came[lock].len() as u64;
        match self.dice.below(count + 1) {
            at if at < count => self.came[lock][at as usize],
            _ => {
                self.next_who += 1;
                self.next_who - 1
            }
        }
    }

    fn assume(&mut self, request: &Request) {
        let Request { lock, who, .. } = *request;
        let act = match request.what {
            What::Acquire { mode, patience: Patience::Endless, .. } => Act::Enter(lock, who, mode),
            What::Acquire { mode, .. } => Act::Try(lock, who, mode),
            What::Release => Act::Leave(lock, who),
            What::Downgrade => Act::Downgrade(lock, who),
            What::Revoke { expect } => Act::Revoke(lock, 0, expect),
            What::Again { may_wait: false } if !self.world.holds(who) => Act::Leave(lock, who),
            What::Expire { .. } if self.world.holds(who) => Act::Expire(lock, who),
            _ => return,
        };
        self.world.act(act);
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [request] => write!(f, "{request}"),
            requests => {
                f.write_str("at once: ")?;
                for (at, request) in requests.iter().enumerate() {
                    write!(f, "{}{request}", if at > 0 { "; " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock, who, via, what } = self;
        let lock = letter(*lock);
        let own = who % CONNECTIONS;
        match what {
            What::Acquire { mode, patience, floor } => {
                let how = match patience {
                    Patience::None => "asks for",
                    Patience::Short => "waits for a moment for",
                    Patience::Endless => "waits for",
                };
                write!(f, "holder {who} {how} {lock}, {mode}, on connection {own}")?;
                floor.map_or(Ok(()), |above| {
                    write!(f, ", with a floor that is {above} above the last fence")
                })
            }
            What::AcquireAndCancel { mode } => {
                write!(f, "holder {who} begins to wait for {lock}, {mode}, and gives up at once")
            }
            What::AcquireFarAhead { mode } => {
                write!(f, "holder {who} asks for {lock}, {mode}, with a floor that is too high")
            }
            What::Again { may_wait: true } => {
                write!(f, "holder {who} repeats its request for {lock} and waits")
            }
            What::Again { may_wait: false } => {
                write!(f, "holder {who} repeats its request for {lock} without waiting")
            }
            What::OtherMode { mode } => write!(f, "holder {who} asks for {lock} again as {mode}"),
            What::Release => {
                write!(f, "holder {who} releases {lock} or gives up, on connection {via}")
            }
            What::Renew { others } if others.is_empty() => {
                write!(f, "holder {who} renews {lock} on connection {via}")
            }
            What::Renew { others } => {
                write!(f, "holders {who}, {others:?} renew {lock} in one batch on connection {via}")
            }
            What::Downgrade => write!(f, "holder {who} downgrades {lock} on connection {via}"),
            What::Revoke { expect: Expect::Any } => write!(f, "an operator takes {lock} away"),
            What::Revoke { expect: Expect::Of(whose) } => {
                write!(f, "an operator takes {lock} away if holder {whose} has it")
            }
            What::Revoke { expect: Expect::Nobody } => {
                write!(f, "an operator takes {lock} away if it has a fence that nobody has")
            }
            What::Look => write!(f, "somebody looks at {lock}"),
            What::List => f.write_str("somebody lists all locks"),
            What::Expire { with_delay } => {
                let delay = if *with_delay { " and its lock-delay" } else { "" };
                write!(f, "the lease of holder {who} on {lock}{delay} runs out")
            }
        }
    }
}

/// What a lock is called.
pub(super) fn letter(lock: Lock) -> char {
    char::from(b'a' + lock as u8)
}
