//! What a run came to, as numbers with stable names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::finding::{Finding, Kind, Tally};

/// The version of `verdict.json`.
pub const VERDICT_FORMAT: u32 = 1;

/// Whether the promises were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All that was seen is as promised.
    Kept,
    /// A promise was broken.
    Broken,
    /// Nothing was broken, but not everything was seen; `notes` says why.
    Incomplete,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// [`VERDICT_FORMAT`].
    pub format: u32,
    /// Whether the promises were kept.
    pub outcome: Outcome,
    /// What is to be known about the verdict itself.
    pub notes: Vec<String>,
    /// What was run; none if the history does not begin with it.
    pub run: Option<Run>,
    /// When the first line of the history was recorded, in nanoseconds of the machine's clock.
    pub began: u64,
    /// How many seconds later the last one was.
    pub seconds: f64,
    /// What happened, counted.
    pub counts: Counts,
    /// Findings of each kind, counted.
    pub found: BTreeMap<Kind, Tally>,
    /// Writes to what the locks guard.
    pub writes: Writes,
    /// Losses, and when they were told.
    pub losses: Losses,
    /// The longest time from the death of a holder to the next grant, while somebody waited.
    pub take_over: Option<TakeOver>,
    /// The longest wait while the lock was free.
    pub free_wait: FreeWaits,
    /// Waiters that were granted a lock later than one that came after them, where waiters are
    /// served in order of arrival. Those with faults of their own, outages and `run` do not count.
    #[serde(default)]
    pub overtaken: Overtaken,
    /// Findings, those that break a promise first, each by time: at most 200 of each kind and ruling.
    pub findings: Vec<Finding>,
}

/// By how much somebody came later who was served first. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overtaken {
    /// How many waiters.
    pub count: u64,
    /// By how much, at most.
    pub longest: u64,
    /// Which lock that was.
    pub lock: Option<String>,
    /// When that waiter was granted it.
    pub at: u64,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From which the schedule of faults follows.
    pub seed: u64,
    /// The store's URL without its password.
    pub store: String,
    /// `efficiency` or `correctness`.
    pub guarantee: String,
    /// Whether waiters are served in order of arrival.
    pub fair: bool,
    /// The ttl of leases, in nanoseconds.
    pub ttl: u64,
    /// How many processes.
    pub processes: u32,
    /// How many tasks in each.
    pub tasks: u32,
    /// The names of the locks.
    pub locks: Vec<String>,
}

/// What happened, counted. Also what the referee prints every second, a JSON object a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Seconds since the first line of the history.
    pub seconds: f64,
    /// Lines of the history.
    pub events: u64,
    /// Acquisitions.
    pub asked: u64,
    /// Grants that arrived.
    pub granted: u64,
    /// Acquisitions that ended without: `taken`, `cancelled`, or the kind of the error.
    pub not_granted: BTreeMap<String, u64>,
    /// Holds that ended: `release`, `drop`, `cancelled_release`, `lost`.
    pub ended: BTreeMap<String, u64>,
    /// Answers to releases.
    pub released: BTreeMap<String, u64>,
    /// Answers to revocations.
    pub revoked: BTreeMap<String, u64>,
    /// Commands that `run` started.
    pub runs: u64,
    /// Worker processes that started.
    pub workers_started: u64,
    /// Worker processes that were killed.
    pub workers_killed: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Holds at present.
    pub held: u64,
    /// Claims that wait at present.
    pub waiting: u64,
    /// Fenced writes tried.
    pub writes: u64,
    /// Fenced writes refused.
    pub writes_refused: u64,
    /// Losses.
    pub losses: u64,
    /// Overlaps, readers beside a writer and permits exceeded, whether allowed or not, but not those
    /// that follow from a revocation.
    pub overlaps: u64,
    /// Findings that break a promise.
    pub broken: u64,
}

/// Writes to what the locks guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writes {
    /// Tried.
    pub tried: u64,
    /// Let through.
    pub admitted: u64,
    /// Refused for their fence: what a resource without fences would have let through.
    pub refused: u64,
    /// Let through after one with a higher fence. Must be 0.
    pub stale_admitted: u64,
}

/// Losses, and when they were told. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// How many.
    pub count: u64,
    /// By cause.
    pub causes: BTreeMap<String, u64>,
    /// The shortest time before the deadline at which one was told; negative if after it, without
    /// the time for which the process was paused.
    pub shortest_before_deadline: Option<i64>,
    /// The median of that.
    pub median_before_deadline: Option<i64>,
    /// How many were told so long after the deadline that the promise is broken.
    pub late: u64,
}

/// How a lock came to its next holder after a crash. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    /// Of which lock.
    pub lock: String,
    /// From the death, or from when somebody waited, to the next grant.
    pub took: u64,
    /// The same without the time in which no lock could be granted, to anybody or to whoever got it,
    /// because of faults of its own.
    pub took_without_outages: u64,
    /// From the last known deadline of the dead holder to the next grant; negative if before it.
    pub after_deadline: i64,
    /// When the next grant had arrived.
    pub at: u64,
    /// How many take-overs there were.
    pub count: u64,
}

/// The longest waits while the lock was free. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeWaits {
    /// As it was.
    pub longest: u64,
    /// Without outages, the waiter's own faults and what others with faults may have kept.
    pub longest_counted: u64,
    /// Of which lock that one is.
    pub lock: Option<String>,
    /// When that one ended.
    pub at: u64,
    /// What it must not exceed.
    pub bound: u64,
}
