//! Three servers that decide together, and reach each other over a network of ours.

use std::sync::Arc;
use std::time::Duration;

use super::{Etcd, Setup};
use crate::network::Network;
use crate::server::Server as _;
use crate::wait::wait_until;

/// How many members: the fewest of which one may fail.
const MEMBERS: usize = 3;

/// Elections take seconds on a busy machine, and members try again and again.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);

/// Running members. Dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Etcd>,
    network: Arc<Network>,
}

impl Cluster {
    /// Starts three members and waits until they have a leader.
    pub fn start() -> Self {
        Self::start_as(&Setup::new())
    }

    /// The same, each set up so.
    pub fn start_as(setup: &Setup) -> Self {
        let network = Arc::new(Network::new());
        let names = (0..MEMBERS).map(|number| format!("member{number}"));
        let mut members: Vec<Etcd> = names.map(|name| Etcd::prepare(setup.clone(), name)).collect();
        for (number, member) in members.iter_mut().enumerate() {
            member.advertised = network.entry(number, member.peer_address());
            member.place = Some(super::Place { number, network: Arc::clone(&network) });
        }
        let all: Vec<String> =
            members.iter().map(|it| format!("{}=http://{}", it.name, it.advertised)).collect();
        for member in &mut members {
            member.members = all.join(",");
            member.spawn();
        }
        members.iter_mut().for_each(Etcd::wait_until_it_answers);
        let cluster = Self { members, network };
        cluster.settle();
        cluster
    }

    /// A member.
    pub fn member(&self, number: usize) -> &Etcd {
        &self.members[number]
    }

    /// A member, to kill and restart.
    pub fn member_mut(&mut self, number: usize) -> &mut Etcd {
        &mut self.members[number]
    }

    /// All members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The URL of a client without a user.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.members.iter().map(|it| it.address().to_string()).collect();
        format!("etcd://{}", places.join(","))
    }

    /// Who leads; waits until exactly one says so.
    ///
    /// # Panics
    /// When nobody does for too long.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("one leads", SETTLE_TIME_MAX, || {
            let leading: Vec<usize> =
                (0..MEMBERS).filter(|number| self.members[*number].leads()).collect();
            leader = (leading.len() == 1).then(|| leading[0]);
            leader.is_some()
        });
        leader.expect("waited for")
    }

    /// Who leads while that one does not count, because it is cut off and does not know; waits for it.
    ///
    /// # Panics
    /// When nobody does for too long.
    pub fn leader_besides(&self, but: usize) -> usize {
        let mut leader = None;
        wait_until("another leads", SETTLE_TIME_MAX, || {
            leader = (0..MEMBERS).find(|number| *number != but && self.members[*number].leads());
            leader.is_some()
        });
        leader.expect("waited for")
    }

    /// Who does not lead, in order.
    ///
    /// # Panics
    /// When nobody leads for too long.
    pub fn followers(&self) -> [usize; MEMBERS - 1] {
        let leader = self.leader();
        let others: Vec<usize> = (0..MEMBERS).filter(|number| *number != leader).collect();
        others.try_into().expect("all but one")
    }

    /// Cuts a member off from the others; clients still reach it.
    pub fn cut_off(&self, number: usize) {
        self.network.cut_off(number);
    }

    /// Lets it reach the others again.
    pub fn rejoin(&self, number: usize) {
        self.network.rejoin(number);
    }

    /// Waits until all members that run serve.
    ///
    /// # Panics
    /// When they do not for too long.
    pub fn settle(&self) {
        for member in self.members.iter().filter(|member| member.process().is_some()) {
            wait_until("a member serves", SETTLE_TIME_MAX, || member.is_healthy());
        }
    }
}
