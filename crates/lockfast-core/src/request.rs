//! What is asked of a store.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::fence::Fence;
use crate::holder::HolderId;
use crate::name::LockName;
use crate::time::Moment;

/// How a lock is held. Every claim is a place in an ordered queue; the mode is the rule about
/// what may be ahead of it for it to be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: nothing is ahead.
    Exclusive,
    /// Together with other shared holders: nothing exclusive is ahead.
    Shared,
    /// One of `limit` permits: fewer than `limit` are ahead, none of them exclusive.
    Permit {
        /// How many may hold at once; everybody who uses the name must say the same.
        limit: NonZeroU32,
    },
}

impl Mode {
    /// One of `limit` permits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for zero.
    pub fn permit(limit: u32) -> Result<Self> {
        NonZeroU32::new(limit).map(|limit| Self::Permit { limit }).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfig,
                "a semaphore of 0 permits can never be entered; give at least 1",
            )
        })
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { limit } => write!(f, "one of {limit} permits"),
        }
    }
}

/// How long an acquisition may wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: answer at once.
    No,
    /// Until this moment.
    Until(Moment),
    /// As long as it takes.
    Forever,
}

impl Wait {
    /// When it ends, if it does; what does not wait ends now.
    pub fn until(self) -> Option<Moment> {
        match self {
            Self::No => Some(Moment::now()),
            Self::Until(until) => Some(until),
            Self::Forever => None,
        }
    }

    /// How long somebody has waited by now who asked at `start`. Who does not wait has waited no time,
    /// however long the store took to answer.
    pub fn waited(self, start: Moment, now: Moment) -> Duration {
        match self {
            Self::No => Duration::ZERO,
            Self::Until(_) | Self::Forever => now.since(start),
        }
    }

    /// Whether there is time left to wait.
    pub fn is_open(self) -> bool {
        match self {
            Self::No => false,
            Self::Until(until) => !until.has_passed(Moment::now()),
            Self::Forever => true,
        }
    }
}

/// Asks for a lock.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// Which lock.
    pub name: LockName,
    /// How.
    pub mode: Mode,
    /// For whom; repeating the request for the same holder gives the same answer.
    pub holder: HolderId,
    /// For how long the holder will believe in it.
    pub ttl: Duration,
    /// How much longer than that the store keeps it when the holder does not release it.
    pub lock_delay: Duration,
    /// How long to wait.
    pub wait: Wait,
    /// Whether the lease outlives the process that asks: then only a release or the ttl ends it,
    /// also in a store that notices when a process dies.
    pub detached: bool,
    /// The highest fence known for this lock; the grant's is higher. A store refuses one that is
    /// more than 60 s of its clock's microseconds ahead, so that a single wrong number cannot
    /// use up the future: [`ErrorKind::InvalidToken`].
    pub floor: Option<Fence>,
}

/// Asks for more time.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// Which lock.
    pub name: LockName,
    /// Whose lease.
    pub holder: HolderId,
    /// The new time, counted from when the store handles this.
    pub ttl: Duration,
    /// As in [`AcquireRequest::lock_delay`].
    pub lock_delay: Duration,
}

/// A holder that has a lock alone wants to have it together with others from now on. The time of its
/// lease does not change.
#[derive(Clone, Debug)]
pub struct DowngradeRequest {
    /// Which lock.
    pub name: LockName,
    /// Whose lease.
    pub holder: HolderId,
}

/// Gives a lock back, or gives up wanting it.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Which lock.
    pub name: LockName,
    /// Whose claim, granted or still waiting.
    pub holder: HolderId,
}

/// An operator takes a lock away from whoever holds it.
#[derive(Clone, Debug)]
pub struct RevokeRequest {
    /// Which lock.
    pub name: LockName,
    /// Only if one of its holders has this fence.
    pub expect_fence: Option<Fence>,
    /// Told to the holders.
    pub reason: String,
}

/// What to look at.
#[derive(Clone, Debug)]
pub enum Query {
    /// One lock, held or not.
    Name(LockName),
    /// The locks that are held or waited for, by name in byte order.
    Prefix {
        /// What their names start with, to the letter: nothing in it is a pattern.
        prefix: String,
        /// Only names after this one.
        after: Option<LockName>,
        /// At most so many.
        limit: usize,
    },
}
