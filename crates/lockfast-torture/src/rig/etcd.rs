//! etcd: one server, and three of which the one that leads is broken. No clock of theirs is stepped:
//! leases follow the monotonic one.

use std::io;

use lockfast_faults::etcd::{Cluster, Etcd, Setup};
use lockfast_faults::server::Server as _;

use super::host::{Single, unknown};
use super::need::{From, Need};
use super::{KILL, MAJORITY, PAUSE, Planned, RESTART, Rig, RigOptions, Row, ServerFault};

const NEEDS: &[Need] = &[Need { program: "etcd", from: From::Package("etcd-server") }];

pub(super) const SINGLE: Row = Row {
    name: "etcd",
    about: "one etcd that has every write on disk before it answers",
    schemes: &["etcd", "etcds"],
    needs: NEEDS,
    servers: 1,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE],
    start: start_single,
};

/// The leader goes on for itself, and the others choose another.
const PARTITION: ServerFault = ServerFault {
    name: "server-partition",
    about: "the server that leads is cut off from the others, and comes back",
    outage: false,
    beyond: false,
};

pub(super) const CLUSTER: Row = Row {
    name: "etcd-cluster",
    about: "three etcd that decide together, of which the one that leads is broken",
    schemes: &[],
    needs: NEEDS,
    // Whichever leads.
    servers: 1,
    proxied: true,
    faults: &[
        ServerFault { outage: false, ..KILL },
        ServerFault { outage: false, ..RESTART },
        ServerFault { outage: false, ..PAUSE },
        PARTITION,
        MAJORITY,
    ],
    start: start_cluster,
};

fn start_single(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let server = Setup::new().durable().start();
    let url = server.url();
    Ok(Box::new(Single::new(server, url, options.ttl)))
}

#[derive(Debug)]
struct Members {
    cluster: Cluster,
    /// Who led when the fault began.
    broken: usize,
}

fn start_cluster(_: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let cluster = Cluster::start_as(&Setup::new().durable());
    Ok(Box::new(Members { cluster, broken: 0 }))
}

impl Members {
    /// The member that is broken, and another.
    fn majority(&self) -> [&Etcd; 2] {
        let other = usize::from(self.broken == 0);
        [self.broken, other].map(|number| self.cluster.member(number))
    }
}

impl Rig for Members {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        self.broken = self.cluster.leader();
        let leader = self.cluster.member_mut(self.broken);
        match planned.fault.name {
            "server-kill" => leader.kill(),
            "server-restart" => leader.shut_down(),
            "server-pause" => leader.pause(),
            "server-partition" => self.cluster.cut_off(self.broken),
            "server-majority" => self.majority().into_iter().for_each(Etcd::pause),
            _ => return Err(unknown(planned)),
        }
        Ok(())
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        let leader = self.cluster.member_mut(self.broken);
        match planned.fault.name {
            "server-kill" | "server-restart" => leader.restart(),
            "server-pause" => leader.resume(),
            "server-partition" => self.cluster.rejoin(self.broken),
            "server-majority" => self.majority().into_iter().for_each(Etcd::resume),
            _ => return Err(unknown(planned)),
        }
        self.cluster.settle();
        Ok(())
    }
}
