//! What a store promises, as few enums that say *how*, because whoever relies on a lock must be
//! able to reason about it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a double grant would cost, and so what the lock may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
pub enum Order {
    /// First come, first served.
    Fifo,
    /// Whoever asks at the right moment.
    None,
}

/// What ends a lease whose holder is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// How far a store reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// One process.
    Process,
    /// All processes of one machine.
    Host,
    /// Every machine that can connect to it.
    Network,
}

/// What outlives a crash of the store's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceSurvival {
    /// The fence rises as long as the process lives and its clock does not run back.
    Process,
    /// The fence rises across crashes and restarts.
    Durable,
    /// The fence rises across the loss of all data while the store's clock does not run back.
    DataLoss,
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
    /// The shortest ttl it can keep.
    pub ttl_min: Duration,
}
