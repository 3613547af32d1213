//! What is recorded: one JSON object on each line, so that any checker can read it.
//!
//! All times are nanoseconds of the machine's monotonic clock ([`Moment::host_ns`]), which all
//! processes share. Each process appends to a file of its own, a line in one write, so that what it
//! recorded outlives it. Lines of one file are in order; a reader merges the files by `at`.
//!
//! A hold as it is judged begins when the grant had arrived ([`What::Granted`]) and ends at the last
//! moment at which the holder found it to be its own ([`What::Still`], [`What::Ended`]). So it lies
//! within the real one, and two that overlap were really granted twice. What was recorded after
//! the deadline that it names proves nothing: the process may have been paused since it looked.
//!
//! [`Moment::host_ns`]: https://docs.rs/lockfast-core

use serde::{Deserialize, Serialize};

/// The file in the directory of a run into which the others are merged.
pub const MERGED: &str = "history.jsonl";

/// The version of the format, in the first line of a history.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of the machine's clock.
    pub at: u64,
    /// Who recorded it: a worker's number, or none for the director of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// How a lock is used. All who use a name use it in modes that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By one.
    Exclusive,
    /// By many who only read.
    Shared,
    /// By as many as there are permits.
    Permits(u32),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The run begins. The first line of a history.
    Start {
        /// [`FORMAT`].
        format: u32,
        /// From which the schedule of faults follows.
        seed: u64,
        /// The store's URL without its password.
        store: String,
        /// What the store promises: `efficiency` or `correctness`.
        guarantee: String,
        /// Whether waiters are served in order of arrival.
        fair: bool,
        /// The ttl of leases, in nanoseconds.
        ttl: u64,
        /// How long the run is to last, in nanoseconds.
        lasts: u64,
        /// How many processes.
        processes: u32,
        /// How many tasks in each.
        tasks: u32,
        /// The names of the locks.
        locks: Vec<String>,
    },
    /// A worker process runs: the first, or the one that follows a killed one.
    WorkerStarted {
        /// Which worker.
        #[serde(rename = "number")]
        worker: u32,
        /// Its process id.
        pid: u32,
    },
    /// A worker is about to be killed: what it does after this is not judged.
    WorkerKilled {
        /// Which worker.
        #[serde(rename = "number")]
        worker: u32,
    },
    /// A worker has ended by itself.
    WorkerEnded {
        /// Which worker.
        #[serde(rename = "number")]
        worker: u32,
        /// Its exit code; none if a signal ended it.
        code: Option<i32>,
    },
    /// A fault begins.
    Fault {
        /// Its number in the schedule.
        number: u32,
        /// What kind, as in `--faults`.
        fault: String,
        /// To whom or what: `worker 2`, `server 1`, `the way of worker 3`, `the way of workers 0, 2`.
        target: String,
        /// Whether no lock can be granted to anybody while it lasts.
        outage: bool,
        /// Whether the guarantee of the store does not cover it, so that what was granted before
        /// it ended may be granted again.
        #[serde(default, skip_serializing_if = "is_false")]
        beyond: bool,
    },
    /// A fault is over.
    Healed {
        /// Its number in the schedule.
        number: u32,
    },
    /// Somebody asks for a lock.
    Asked {
        /// Which acquisition: unique in the whole history.
        claim: u64,
        /// Which lock.
        lock: String,
        /// In which mode.
        mode: Mode,
        /// How long it would wait, in nanoseconds; none if for ever, 0 if not at all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<u64>,
    },
    /// The asking ended without the lock.
    NotGranted {
        /// Which acquisition.
        claim: u64,
        /// `taken`, `cancelled` (by the one who asked), or the kind of the error.
        why: String,
    },
    /// The grant has arrived.
    Granted {
        /// Which acquisition.
        claim: u64,
        /// Its fence.
        fence: u64,
        /// Until when the holder may believe that it has it.
        deadline: u64,
    },
    /// The holder looked and found the lock to be its own.
    Still {
        /// Which acquisition.
        claim: u64,
        /// Until when it may believe so.
        deadline: u64,
    },
    /// The holder is about to give it back, or has been told that it is lost. It does not use it
    /// after this.
    Ended {
        /// Which acquisition.
        claim: u64,
        /// `release`, `drop`, `cancelled_release`, or `lost`.
        how: String,
        /// The cause of a loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// When the holder last found it to be its own, if that is not now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u64>,
        /// The deadline that it had.
        deadline: u64,
        /// Of a loss that was told after it: for how much of that time the machine kept the process
        /// from running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<u64>,
    },
    /// The answer to a release has come.
    Released {
        /// Which acquisition.
        claim: u64,
        /// `released`, `already_lost` or the kind of the error.
        how: String,
    },
    /// A holder wrote to what the lock guards, which checks fences.
    Wrote {
        /// Which acquisition.
        claim: u64,
        /// With which fence.
        fence: u64,
        /// Whether it was let through.
        admitted: bool,
        /// The highest fence that was seen there before.
        highest: u64,
        /// The number of this write there; of those that were let through, each one more.
        number: u64,
    },
    /// Somebody is about to take a lock away from its holders. Another may be let in before they
    /// are told.
    Revoking {
        /// Which lock.
        lock: String,
    },
    /// The answer to that has come, to the same worker.
    Revoked {
        /// Which lock.
        lock: String,
        /// `revoked`, `not_held` (nothing was done) or the kind of the error.
        how: String,
    },
    /// A `lockfast run` started its command.
    RunStarted {
        /// Which acquisition.
        claim: u64,
        /// The command's process id.
        pid: u32,
    },
    /// The command of a `lockfast run` was seen to have ended.
    RunEnded {
        /// Which acquisition.
        claim: u64,
    },
    /// What is left when all workers have ended and all leases must have: nothing.
    Left {
        /// Locks that somebody still holds, by the store.
        held: Vec<String>,
        /// Locks that somebody still waits for, by the store.
        waited_for: Vec<String>,
        /// Processes that a `lockfast run` left behind.
        processes: Vec<u32>,
    },
    /// The run is over. The last line of a history.
    End,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_recorded_and_whom_it_is_about_are_told_apart() {
        for what in [
            What::WorkerStarted { worker: 2, pid: 7 },
            What::WorkerKilled { worker: 2 },
            What::WorkerEnded { worker: 2, code: None },
        ] {
            for worker in [None, Some(1)] {
                let event = Event { at: 5, worker, what: what.clone() };
                let line = serde_json::to_string(&event).unwrap();
                assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
            }
        }
    }
}
