//! Redis: one server that keeps its data, several of them that do not know each other, and one with
//! a replica that takes over without the last grants.

use std::io;
use std::thread;
use std::time::Duration;

use lockfast_faults::redis::topology::{cut_off, promote, wait_for_sync};
use lockfast_faults::redis::{Redis, Setup};
use lockfast_faults::server::Server as _;
use lockfast_faults::signpost::Signpost;
use lockfast_faults::wait::wait_until;

use super::host::{Host, Single, unknown};
use super::need::{From, Need};
use super::{CLOCK, KILL, MAJORITY, PAUSE, Planned, RESTART, Rig, RigOptions, Row, ServerFault};

/// How long a replica may take to follow.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(60);

const NEEDS: &[Need] = &[
    Need { program: "redis-server", from: From::Package("redis-server") },
    Need { program: "redis-cli", from: From::Package("redis-tools") },
];

pub(super) const SINGLE: Row = Row {
    name: "redis",
    about: "one Redis server that has every write on disk before it answers",
    schemes: &["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"],
    needs: NEEDS,
    servers: 1,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE, CLOCK],
    start: start_single,
};

/// A replica takes over that does not have the last grants: they are forgotten, and granted again.
const PROMOTION: ServerFault = ServerFault {
    name: "server-promotion",
    about: "replication stops, and shortly after it the replica takes over",
    outage: true,
    beyond: true,
};

pub(super) const FAILOVER: Row = Row {
    name: "redis-failover",
    about: "a Redis server with a replica that takes over, where overlaps are to be expected",
    schemes: &[],
    needs: NEEDS,
    servers: 1,
    proxied: true,
    faults: &[PROMOTION],
    start: start_failover,
};

/// The replica stands still, so that no grant is confirmed.
const REPLICA: ServerFault = ServerFault {
    name: "server-replica",
    about: "the replica is stopped (SIGSTOP), and continues",
    outage: true,
    beyond: false,
};

pub(super) const REPLICATED: Row = Row {
    name: "redis-replicas",
    about: "a Redis server with a replica that must have every grant (min_replicas=1)",
    schemes: &[],
    needs: NEEDS,
    servers: 1,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE, REPLICA],
    start: start_replicated,
};

/// How many nodes: the fewest of which one may be out of reach.
const NODES: u32 = 3;

pub(super) const REDLOCK: Row = Row {
    name: "redlock",
    about: "three Redis servers that do not know each other, each of which keeps its data",
    schemes: &["redlock"],
    needs: NEEDS,
    servers: NODES,
    proxied: true,
    faults: &[
        ServerFault { outage: false, ..KILL },
        ServerFault { outage: false, ..RESTART },
        ServerFault { outage: false, ..PAUSE },
        CLOCK,
        MAJORITY,
    ],
    start: start_redlock,
};

fn setup(options: &RigOptions) -> Setup {
    let setup = Setup::new().append_always();
    if options.clock { setup.clock() } else { setup }
}

fn start_single(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let server = setup(options).start();
    let url = server.url();
    Ok(Box::new(Single::new(server, url, options.ttl)))
}

#[derive(Debug)]
struct Nodes(Vec<Host<Redis>>);

fn start_redlock(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let nodes = (0..NODES).map(|_| Host::new(setup(options).start(), options.ttl));
    Ok(Box::new(Nodes(nodes.collect())))
}

impl Nodes {
    fn node(&mut self, planned: &Planned) -> io::Result<&mut Host<Redis>> {
        self.0.get_mut(planned.server as usize).ok_or_else(|| unknown(planned))
    }

    /// Most of the nodes, without the one that the fault names.
    fn majority(&self, planned: &Planned) -> impl Iterator<Item = &Redis> {
        let nodes = self.0.iter().enumerate();
        let but = planned.server as usize;
        nodes.filter(move |(at, _)| *at != but).map(|(_, node)| &node.server)
    }
}

impl Rig for Nodes {
    fn url(&self) -> String {
        let places: Vec<_> = self.0.iter().map(|it| it.server.address().to_string()).collect();
        // A busy machine is not a node that is gone.
        format!("redlock://{}?node_timeout=300ms", places.join(","))
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == MAJORITY.name {
            self.majority(planned).for_each(Redis::pause);
            return Ok(());
        }
        self.node(planned)?.begin(planned)
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == MAJORITY.name {
            self.majority(planned).for_each(Redis::resume);
            return Ok(());
        }
        self.node(planned)?.heal(planned)
    }
}

#[derive(Debug)]
struct Replicated {
    serving: Host<Redis>,
    replica: Redis,
}

fn start_replicated(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let serving = setup(options).start();
    let replica = Setup::new().append_always().replica_of(&serving).start();
    wait_for_sync(&serving, &replica);
    Ok(Box::new(Replicated { serving: Host::new(serving, options.ttl), replica }))
}

/// Waits until a replica follows its master again, which may be in use.
fn wait_until_linked(replica: &Redis) {
    wait_until("the replica follows", FOLLOW_TIME_MAX, || {
        replica.info("master_link_status") == "up"
    });
}

impl Rig for Replicated {
    fn url(&self) -> String {
        format!("{}?min_replicas=1", self.serving.server.url())
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == REPLICA.name {
            self.replica.pause();
            return Ok(());
        }
        self.serving.begin(planned)
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == REPLICA.name {
            self.replica.resume();
        } else {
            self.serving.heal(planned)?;
        }
        wait_until_linked(&self.replica);
        Ok(())
    }
}

#[derive(Debug)]
struct Failover {
    /// Where clients connect to: whoever serves now is behind it.
    signpost: Signpost,
    serving: Redis,
    replica: Redis,
    ttl: Duration,
}

fn start_failover(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let serving = Setup::new().append_always().start();
    let replica = Setup::new().append_always().replica_of(&serving).start();
    wait_for_sync(&serving, &replica);
    let signpost = Signpost::to(serving.address());
    Ok(Box::new(Failover { signpost, serving, replica, ttl: options.ttl }))
}

impl Rig for Failover {
    fn url(&self) -> String {
        self.serving.url_at(self.signpost.address())
    }

    /// The replica hears nothing until all that it knows of has ended, and then takes over: what was
    /// granted last is then free to whoever asks.
    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name != PROMOTION.name {
            return Err(unknown(planned));
        }
        cut_off(&self.replica);
        thread::sleep(self.ttl.mul_f64(1.1 + (planned.chance % 1_000) as f64 / 1_000.0));
        promote(&self.replica);
        self.signpost.turn_to(self.replica.address());
        std::mem::swap(&mut self.serving, &mut self.replica);
        Ok(())
    }

    /// Who served before is now a replica.
    fn heal(&mut self, _: &Planned) -> io::Result<()> {
        self.replica.cli(&["REPLICAOF", "127.0.0.1", &self.serving.port().to_string()]);
        wait_until_linked(&self.replica);
        Ok(())
    }
}
