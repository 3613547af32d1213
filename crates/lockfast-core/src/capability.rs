//! What a store promises, as few enums that say *how*, because whoever relies on a lock must be
//! able to reason about it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::request::Mode;
use crate::view::exact;

/// What a double grant would cost, and so what the lock may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// Grants can be lost with a server's memory: good for not doing work twice.
    Efficiency,
    /// Grants are decided by one durable writer or by consensus: good for keeping data right,
    /// together with a fence that is checked.
    Correctness,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Efficiency => "efficiency",
            Self::Correctness => "correctness",
        })
    }
}

/// Who is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    Fifo,
    /// Whoever asks at the right moment.
    None,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "first come, first served",
            Self::None => "none",
        })
    }
}

/// What ends a lease whose holder is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// The store's clock, after the ttl.
    Ttl,
    /// The operating system, the moment the process dies; the ttl for one that only hangs.
    ProcessDeath {
        /// The process counts as alive while anybody has this file open for reading and writing,
        /// so that a helper process can stand in for one that was killed.
        witness: PathBuf,
    },
    /// The end of a session or connection in the store.
    Session,
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttl => "its ttl",
            Self::ProcessDeath { .. } => "the kernel, at once; the ttl if it hangs",
            Self::Session => "the end of its session",
        })
    }
}

/// How far a store reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// One process.
    Process,
    /// All processes of one machine.
    Host,
    /// Every machine that can connect to it.
    Network,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "one process",
            Self::Host => "one machine",
            Self::Network => "every machine",
        })
    }
}

/// What outlives a crash of the store's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FenceSurvival {
    /// The fence rises as long as the process lives and its clock does not run back.
    Process,
    /// The fence rises across crashes and restarts.
    Durable,
    /// The fence rises across the loss of all data while the store's clock does not run back.
    DataLoss,
}

impl fmt::Display for FenceSurvival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "the process's life, while its clock does not run back",
            Self::Durable => "crashes and restarts",
            Self::DataLoss => "the loss of all data, while the store's clock does not run back",
        })
    }
}

/// What a store may lack. An exclusive lock, and the end of a lease, every store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// [`Mode::Shared`].
    Shared,
    /// [`Mode::Permit`].
    Permits,
    /// A writer becomes a reader without giving the lock back:
    /// [`downgrade`](crate::Backend::downgrade). Only where there are shared locks.
    Downgrade,
    /// A lock that is not released stays taken for longer than its ttl:
    /// [`lock_delay`](crate::AcquireRequest::lock_delay).
    LockDelay,
    /// A lease that outlives the process that asks: [`detached`](crate::AcquireRequest::detached).
    Detached,
    /// The fence can be raised above a given one: [`floor`](crate::AcquireRequest::floor).
    Floor,
    /// A line of waiters, who are counted and woken. Without it they look now and then whether the
    /// lock is free.
    Line,
    /// Values that are written by comparing versions: [`write`](crate::Backend::write).
    Values,
    /// Values that the store forgets after a time: [`keep`](crate::Change::Put::keep).
    ValueExpiry,
    /// Events of locks and values: [`watch`](crate::Backend::watch).
    Events,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared locks",
            Self::Permits => "permits",
            Self::Downgrade => "downgrade of a writer to a reader",
            Self::LockDelay => "lock-delay",
            Self::Detached => "leases that outlive their process",
            Self::Floor => "floor for the fence",
            Self::Line => "line of waiters",
            Self::Values => "values",
            Self::ValueExpiry => "values that end by themselves",
            Self::Events => "events",
        })
    }
}

/// Which ttls a store can keep: from `min` to `max`, in multiples of `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlLimits {
    /// The shortest; a multiple of the step.
    pub min: Duration,
    /// The longest; a multiple of the step.
    pub max: Duration,
    /// What a ttl is a multiple of.
    pub step: Duration,
    /// Where the limits come from, and how to change them where that is possible: what people
    /// read when a ttl does not fit.
    pub because: &'static str,
}

impl TtlLimits {
    /// The limits of Lockfast itself, which hold for every store.
    pub const LOCKFAST: Self = Self {
        min: Duration::from_millis(100),
        max: Duration::from_secs(24 * 60 * 60),
        step: Duration::from_nanos(1),
        because: "Lockfast's own limits",
    };

    /// Whether a store can keep this ttl.
    pub fn allow(&self, ttl: Duration) -> bool {
        ttl >= self.min && ttl <= self.max && self.over(ttl).is_zero()
    }

    /// The allowed ttl next to this one: the same if it is allowed, otherwise the next longer one,
    /// or the longest.
    #[must_use]
    pub fn fit(&self, ttl: Duration) -> Duration {
        let within = ttl.clamp(self.min, self.max);
        let over = self.over(within);
        if over.is_zero() { within } else { (within + (self.step - over)).min(self.max) }
    }

    /// By how much a ttl is longer than a whole number of steps.
    fn over(&self, ttl: Duration) -> Duration {
        const NANOS_PER_SECOND: u128 = 1_000_000_000;
        let over = ttl.as_nanos() % self.step.as_nanos().max(1);
        Duration::new((over / NANOS_PER_SECOND) as u64, (over % NANOS_PER_SECOND) as u32)
    }

    /// # Errors
    /// [`ErrorKind::InvalidTtl`] for a ttl that is outside the limits, with what is allowed.
    pub fn check(&self, ttl: Duration) -> Result<()> {
        if self.allow(ttl) {
            return Ok(());
        }
        let message = format!("a ttl of {} is not possible: it must be {self}", exact(ttl));
        Err(Error::new(ErrorKind::InvalidTtl, message))
    }
}

impl fmt::Display for TtlLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", exact(self.min), exact(self.max))?;
        if self.step > Self::LOCKFAST.step {
            write!(f, " in steps of {}", exact(self.step))?;
        }
        write!(f, " ({})", self.because)
    }
}

/// One store's promises and limits.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The scheme, as in the store's URL.
    pub backend: &'static str,
    /// What its grants are good for.
    pub guarantee: Guarantee,
    /// Why, in one sentence.
    pub because: &'static str,
    /// Who is served next.
    pub order: Order,
    /// What ends a lease whose holder is gone.
    pub expiry: Expiry,
    /// How far it reaches.
    pub reach: Reach,
    /// What the fence survives.
    pub fence: FenceSurvival,
    /// Which ttls it can keep.
    pub ttl: TtlLimits,
    /// What it cannot do, each with the reason and what to use instead, as the end of a sentence.
    pub lacks: &'static [(Feature, &'static str)],
}

impl Profile {
    /// Why the store cannot do this, if it cannot.
    pub fn lack_of(&self, feature: Feature) -> Option<&'static str> {
        self.lacks.iter().find(|(lacking, _)| *lacking == feature).map(|(_, reason)| *reason)
    }

    /// # Errors
    /// [`ErrorKind::Unsupported`] with the reason when the store cannot do this.
    pub fn require(&self, feature: Feature) -> Result<()> {
        if self.lack_of(feature).is_some() { Err(self.unsupported(feature)) } else { Ok(()) }
    }

    /// That the store cannot do this, which it lacks.
    pub fn unsupported(&self, feature: Feature) -> Error {
        let reason = self.lack_of(feature).unwrap_or("nobody says why");
        let error = Error::new(ErrorKind::Unsupported, format!("it has no {feature}: {reason}"));
        error.with_backend(self.backend)
    }

    /// # Errors
    /// [`ErrorKind::Unsupported`] with the reason when the store has no such locks.
    pub fn require_mode(&self, mode: Mode) -> Result<()> {
        match mode {
            Mode::Exclusive => Ok(()),
            Mode::Shared => self.require(Feature::Shared),
            Mode::Permit { .. } => self.require(Feature::Permits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE_SECONDS: TtlLimits = TtlLimits {
        min: Duration::from_secs(2),
        max: Duration::from_secs(40),
        step: Duration::from_secs(1),
        because: "the server's",
    };

    #[test]
    fn a_ttl_is_brought_to_the_next_that_is_allowed() {
        let ms = Duration::from_millis;
        let table = [
            (ms(0), ms(2000)),
            (ms(1999), ms(2000)),
            (ms(2000), ms(2000)),
            (ms(2001), ms(3000)),
            (ms(30_000), ms(30_000)),
            (ms(39_001), ms(40_000)),
            (ms(40_001), ms(40_000)),
            (Duration::MAX, ms(40_000)),
        ];
        for (given, fitting) in table {
            assert_eq!(WHOLE_SECONDS.fit(given), fitting, "{given:?}");
            assert_eq!(WHOLE_SECONDS.allow(given), given == fitting, "{given:?}");
            assert!(WHOLE_SECONDS.allow(fitting));
        }
        assert_eq!(TtlLimits::LOCKFAST.to_string(), "100ms to 24h (Lockfast's own limits)");
        let odd = Duration::from_nanos(123_456_789);
        assert_eq!(TtlLimits::LOCKFAST.fit(odd), odd);
    }

    #[test]
    fn what_is_allowed_is_told() {
        let error = WHOLE_SECONDS.check(Duration::from_millis(1500)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTtl);
        assert_eq!(
            error.to_string(),
            "a ttl of 1.5s is not possible: it must be 2s to 40s in steps of 1s (the server's)"
        );
    }
}
