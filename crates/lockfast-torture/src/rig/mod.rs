//! Servers that are started for a run and broken during it, one row a store.
//!
//! Workers reach them by the URL of the rig, through proxies of their own where that is possible,
//! so a rig breaks servers and what is between them, not the way of a worker.

mod embedded;
mod etcd;
mod host;
mod mysql;
mod need;
mod postgres;
mod redis;
mod zookeeper;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use need::{From, Need};

/// What can be done to a rig's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFault {
    /// As in `--faults`; it starts with `server-`.
    pub name: &'static str,
    /// What it does, in one sentence for people.
    pub about: &'static str,
    /// Whether no lock can be granted to anybody while it lasts.
    pub outage: bool,
    /// Whether the guarantee of the store does not cover it, so that locks may be granted twice.
    pub beyond: bool,
}

/// One fault of a rig that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which, one of its row's.
    pub fault: ServerFault,
    /// To which server, below its row's `servers`.
    pub server: u32,
    /// For whatever else is left to chance, such as by how much a clock steps.
    pub chance: u64,
}

/// Running servers. Dropping it ends them and removes what they stored.
///
/// All calls may block, and are made one after the other on a thread that may be blocked. A panic
/// counts as an error.
pub trait Rig: Send + fmt::Debug {
    /// What workers connect to, for as long as the rig runs.
    fn url(&self) -> String;

    /// Begins a fault. No other is under way.
    ///
    /// # Errors
    /// When it cannot be done; the run then ends.
    fn begin(&mut self, planned: &Planned) -> io::Result<()>;

    /// Ends the fault that was begun, and returns when the servers work again.
    ///
    /// # Errors
    /// When they do not; the run then ends.
    fn heal(&mut self, planned: &Planned) -> io::Result<()>;
}

/// How a rig is to be set up.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// An empty directory, for what its servers store and log.
    pub directory: PathBuf,
    /// The ttl of the leases, by which the steps of clocks are measured.
    pub ttl: Duration,
    /// Whether servers have a clock that can be stepped, for which a compiler is needed.
    pub clock: bool,
}

/// A kind of rig.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As in `--with`.
    pub name: &'static str,
    /// What is started, in one sentence for people.
    pub about: &'static str,
    /// The schemes of the stores that it stands for.
    pub schemes: &'static [&'static str],
    /// The programs that it starts.
    pub needs: &'static [Need],
    /// How many servers it has, so that a schedule can be made without starting them.
    pub servers: u32,
    /// Whether workers can reach them through proxies, which servers that name each other's
    /// addresses to clients do not allow.
    pub proxied: bool,
    /// What can be done to them.
    pub faults: &'static [ServerFault],
    /// Starts them. It may block.
    pub start: fn(&RigOptions) -> io::Result<Box<dyn Rig>>,
}

/// The process dies, and is started again with what it had stored.
const KILL: ServerFault = ServerFault {
    name: "server-kill",
    about: "a server is killed (SIGKILL), and started again",
    outage: true,
    beyond: false,
};

/// The process ends in order, and is started again.
const RESTART: ServerFault = ServerFault {
    name: "server-restart",
    about: "a server is shut down in order, and started again",
    outage: true,
    beyond: false,
};

/// The process stands still.
const PAUSE: ServerFault = ServerFault {
    name: "server-pause",
    about: "a server is stopped (SIGSTOP), and continues",
    outage: true,
    beyond: false,
};

/// The wall clock of a server steps back, by less or more than the ttl. A step ahead ends leases
/// before their holders know, and no store promises anything else; so there is none.
pub(crate) const CLOCK: ServerFault = ServerFault {
    name: "server-clock",
    about: "the clock of a server is set back, by a quarter of the ttl to one and a half",
    outage: true,
    beyond: false,
};

/// Of several servers so many stand still that the others can decide nothing.
const MAJORITY: ServerFault = ServerFault {
    name: "server-majority",
    about: "most of the servers are stopped (SIGSTOP), and continue",
    outage: true,
    beyond: false,
};

/// All rigs.
pub const ROWS: &[Row] = &[
    embedded::ROW,
    redis::SINGLE,
    redis::REPLICATED,
    redis::FAILOVER,
    redis::REDLOCK,
    postgres::ROW,
    mysql::MARIADB,
    mysql::MYSQL,
    etcd::SINGLE,
    etcd::CLUSTER,
    zookeeper::SINGLE,
    zookeeper::ENSEMBLE,
];

/// The rig of this name.
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

impl Row {
    /// Finds out whether all that it needs is there, before anything is touched.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] with what is missing and how to get it.
    pub fn check(&self) -> io::Result<()> {
        need::check(self.name, self.needs)
    }
}
