//! The guard: a small process between `lockfast run` and its command that outlives both.
//!
//! ```text
//! lockfast run (the wrapper: holds and renews the lease)
//!   └─ lockfast __guard (knows the deadline, owns the process tree)
//!        └─ the command, in a process group of its own, and what it starts
//! ```
//!
//! The wrapper tells the guard each new deadline. When the wrapper is stopped, the guard ends the
//! command before the deadline; when the wrapper dies, the guard ends the command and then lets go
//! of the lock. When the guard dies, the kernel kills the command, and the wrapper ends the rest.
//! URL and holder id travel over the socket between the two, never in arguments or environment.

mod link;
mod schedule;
mod supervisor;
mod warden;

use std::ffi::OsString;
use std::time::Duration;

use lockfast::Moment;
use serde::{Deserialize, Serialize};

use crate::args::OnLost;

pub(crate) use supervisor::{Job, Supervisor, Verdict};
pub(crate) use warden::main;

/// The hidden command that runs a guard.
pub(crate) const COMMAND: &str = "__guard";

/// How often to look again for processes that must die.
const SWEEP_PAUSE: Duration = Duration::from_millis(2);
/// The same for processes that may not be signalled and can only be waited for.
const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// What the wrapper tells the guard.
#[derive(Serialize, Deserialize)]
enum ToGuard {
    /// What to do; sent once.
    Start(Box<Start>),
    /// The guard's witness counts now and the lease is held: start the command.
    Go,
    /// The lease was renewed.
    Deadline {
        /// As in [`Moment::host_ns`].
        host_ns: u64,
    },
    /// Pass a signal on to the command.
    Signal {
        /// Its number.
        number: i32,
    },
    /// The command has its grace from now on, and not longer.
    Stop,
    /// The lease is lost.
    Lost,
    /// The lock was let go; nothing is left to do.
    Released,
}

/// What the guard tells the wrapper.
#[derive(Serialize, Deserialize)]
enum FromGuard {
    /// The guard stands in for the wrapper from now on.
    Ready,
    /// The command runs as this process and group.
    Started {
        /// Its process id.
        pid: i32,
    },
    /// The command could not be started.
    CannotStart {
        /// Why.
        message: String,
    },
    /// The terminal stopped the command.
    Stopped,
    /// The guard has begun to stop the command for the sake of the lease.
    Stopping,
    /// The command ended but left processes behind, which are being stopped.
    Leftovers {
        /// How many.
        count: usize,
    },
    /// Processes that must end may not be signalled.
    Stuck {
        /// Which.
        pids: Vec<i32>,
    },
    /// The command and everything below it has ended.
    Ended {
        /// How the command ended.
        status: Ending,
        /// Whether it was stopped because the lease was ending.
        for_lease: bool,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// Everything that a guard must know. It has no `Debug`, because it holds secrets.
#[derive(Serialize, Deserialize)]
struct Start {
    url: String,
    name: String,
    holder: String,
    /// The file whose being open keeps the lease alive in a store that watches processes.
    witness: Option<OsString>,
    lease: LeaseTerms,
    once: Option<OnceTimes>,
    path: OsString,
    /// The command as typed, with its arguments.
    argv: Vec<OsString>,
    set: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    /// Whether standard input is our terminal.
    terminal: bool,
    /// Whether the command gets the terminal when it starts.
    foreground: bool,
    /// The wrapper's process group, which gets the terminal back.
    wrapper_group: i32,
}

/// How long the lock of a job that runs once is held.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OnceTimes {
    /// The length of the lease.
    pub(crate) at_most: Duration,
    /// From the start of the job on.
    pub(crate) at_least: Duration,
    /// The start of the job, as in [`Moment::host_ns`].
    pub(crate) started_ns: u64,
}

/// What is known about the lease, and what to do when it ends.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct LeaseTerms {
    deadline_ns: u64,
    ttl: Duration,
    grace: Duration,
    on_lost: OnLost,
}

impl LeaseTerms {
    /// How long before the deadline everything must have been killed: killing takes a moment.
    fn margin(&self) -> Duration {
        (self.ttl / 10).clamp(Duration::from_millis(20), Duration::from_millis(500))
    }

    fn deadline(&self) -> Moment {
        Moment::from_host_ns(self.deadline_ns)
    }
}
