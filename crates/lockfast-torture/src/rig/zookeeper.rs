//! ZooKeeper: one server, and an ensemble of three that decide together.

use std::io;
use std::time::Duration;

use lockfast_faults::server::Server as _;
use lockfast_faults::zookeeper::{Ensemble, MEMBERS, Setup, ZooKeeper};

use super::host::{Single, unknown};
use super::need::{From, Need};
use super::{CLOCK, KILL, MAJORITY, PAUSE, Planned, RESTART, Rig, RigOptions, Row, ServerFault};

/// The member cannot reach the others, while clients still reach it.
const PARTITION: ServerFault = ServerFault {
    name: "server-partition",
    about: "a server is cut off from the others, while clients still reach it, and joins them again",
    outage: true,
    beyond: false,
};

const NEEDS: &[Need] = &[
    Need { program: "java", from: From::Package("default-jre-headless") },
    Need { program: "zookeeper", from: From::Java("libzookeeper-java") },
];

pub(super) const SINGLE: Row = Row {
    name: "zookeeper",
    about: "one ZooKeeper server",
    schemes: &["zookeeper", "zookeepers"],
    needs: NEEDS,
    servers: 1,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE, CLOCK],
    start: start_single,
};

pub(super) const ENSEMBLE: Row = Row {
    name: "zookeeper-ensemble",
    about: "three ZooKeeper servers that decide together",
    schemes: &["zookeeper", "zookeepers"],
    needs: NEEDS,
    servers: MEMBERS as u32,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE, PARTITION, MAJORITY],
    start: start_ensemble,
};

/// With a longer one, members of an ensemble keep the sessions of the dead for longer than P9 allows.
const TICK: Duration = Duration::from_millis(400);

/// Every change is on disk before it is answered, and sessions may last as long as any ttl.
fn setup(options: &RigOptions) -> Setup {
    let setup = Setup::new().durable().tick(TICK).line("maxSessionTimeout=100000000");
    if options.clock { setup.clock() } else { setup }
}

fn start_single(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let server = setup(options).start();
    let url = server.url();
    Ok(Box::new(Single::new(server, url, options.ttl)))
}

#[derive(Debug)]
struct Members(Ensemble);

fn start_ensemble(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    Ok(Box::new(Members(Ensemble::start_of(|| setup(options)))))
}

impl Members {
    /// All but one.
    fn majority(&self, but: usize) -> impl Iterator<Item = &ZooKeeper> {
        let members = self.0.members.iter().enumerate();
        members.filter(move |(at, _)| *at != but).map(|(_, member)| member)
    }
}

impl Rig for Members {
    fn url(&self) -> String {
        // It cannot be told from sessions that may last so long.
        format!("{}?tick={}ms", self.0.url(), TICK.as_millis())
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        let place = planned.server as usize;
        match planned.fault.name {
            "server-kill" => self.0.members[place].kill(),
            "server-restart" => self.0.members[place].shut_down(),
            "server-pause" => self.0.members[place].pause(),
            "server-partition" => self.0.cut_off(place),
            "server-majority" => self.majority(place).for_each(ZooKeeper::pause),
            _ => return Err(unknown(planned)),
        }
        Ok(())
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        let place = planned.server as usize;
        match planned.fault.name {
            "server-kill" | "server-restart" => self.0.restart(place),
            "server-pause" => self.0.members[place].resume(),
            "server-partition" => self.0.join(place),
            "server-majority" => self.majority(place).for_each(ZooKeeper::resume),
            _ => return Err(unknown(planned)),
        }
        self.0.wait_until_all_serve();
        Ok(())
    }
}
