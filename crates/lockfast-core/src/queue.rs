//! The rule of the queue: who is granted, free of I/O. All contenders for a lock stand in one line;
//! one is granted when what is ahead of it agrees with its mode. Mutex, read–write lock and
//! semaphore are then one algorithm, nobody overtakes, and writers are not starved.
//!
//! A store that keeps the queue itself walks it with [`Ahead`] and remembers whom it has granted.
//! A client of a server that only keeps the line (etcd, ZooKeeper) asks for its [`standing`] in it.
//! Both agree, because who is granted stays so: others leave from ahead, and come only behind.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::request::Mode;

/// What stands ahead of a contender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    all: u32,
    exclusive: bool,
}

impl Ahead {
    /// The one rule: whether a contender behind these is granted.
    pub fn allows(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.all == 0,
            Mode::Shared => !self.exclusive,
            Mode::Permit { limit } => !self.exclusive && self.all < limit.get(),
        }
    }

    /// One more stands ahead, granted or not.
    pub fn count(&mut self, mode: Mode) {
        self.all = self.all.saturating_add(1);
        self.exclusive |= mode == Mode::Exclusive;
    }
}

/// Where a contender stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has the lock.
    Granted,
    /// It waits, and need not look again before one of the contenders at these places has left.
    Waits {
        /// The places, counted from the head of the line.
        watch: Range<usize>,
    },
}

/// Where a contender stands behind these, the head of the line first. One of which nobody knows
/// the mode counts as exclusive.
///
/// Whom it watches is as few as can be without missing its turn:
/// - exclusive: the one just before it, because all have to leave;
/// - shared: the nearest exclusive one before it;
/// - one of N permits: the N nearest before it, or only the exclusive one if there is one among
///   them. Any of the N may leave first, and as long as they are there it is not granted. Nobody
///   further ahead wakes it, so that one who leaves wakes at most N.
pub fn standing(ahead: &[Mode], mode: Mode) -> Standing {
    let mut counted = Ahead::default();
    ahead.iter().for_each(|other| counted.count(*other));
    if counted.allows(mode) {
        return Standing::Granted;
    }
    let end = ahead.len();
    let nearest = match mode {
        Mode::Exclusive => end.saturating_sub(1),
        Mode::Shared => 0,
        Mode::Permit { limit } => end.saturating_sub(limit.get() as usize),
    };
    let is_exclusive = |other: &Mode| *other == Mode::Exclusive;
    let watch = match ahead[nearest..].iter().rposition(is_exclusive) {
        Some(place) => nearest + place..nearest + place + 1,
        None => nearest..end,
    };
    Standing::Waits { watch }
}

/// A name is used either with shared or with permit contenders, and all permits agree on their
/// number: otherwise two callers would each be right about a different limit. Only those ahead are
/// compared: of two that came at the same time, the later one is refused.
///
/// # Errors
/// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) with how the name is in use.
pub fn check_use(ahead: impl IntoIterator<Item = Mode>, asked: Mode) -> Result<()> {
    let stored = ahead.into_iter().find(|mode| *mode != Mode::Exclusive);
    match stored {
        Some(stored) if asked != Mode::Exclusive && asked != stored => {
            Err(Error::conflict(asked, stored))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
