//! One state of the whole: nodes, clients and the gate. Small and plain, because a search keeps
//! millions of them.
//!
//! There is no list of messages in flight. What was sent once can arrive at any later moment, any
//! number of times or never; so it is enough to know what each client has sent. An answer can
//! likewise reach its client whenever it likes, so it is enough to know who has answered.

use std::hash::{Hash, Hasher};

use stateright::Representative;

use crate::rule;
use crate::setup::{CLIENTS_MAX, NODES_MAX, SENDS_MAX, Setup};

/// One node: what it knows of the lock, and what the model has to know of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The lock here.
    pub lock: rule::Node<u8, u8>,
    /// Which of its holder's sends the grant's time counts from, 1 for the first.
    pub since: u8,
    /// The fence with which this node has granted each client's current send; 0 where it has not.
    pub answered: [u8; CLIENTS_MAX],
    /// Whether it has ever forgotten everything.
    pub forgot: bool,
}

// Hashing is most of a search's work; one number is hashed far quicker than its bytes one by one.
impl Hash for Node {
    fn hash<S: Hasher>(&self, hasher: &mut S) {
        let holder = self.lock.holder.map_or(u8::MAX, |holder| holder);
        let [first, second, third] = self.answered;
        let forgot = u8::from(self.forgot);
        let bytes = [holder, self.lock.fence, self.since, first, second, third, forgot, 0];
        hasher.write_u64(u64::from_le_bytes(bytes));
    }
}

/// How far a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has not asked yet.
    #[default]
    Idle,
    /// It has proposed and counts answers.
    Trying,
    /// It has given the last proposal up and undoes it; it may try again.
    GaveUp,
    /// It got its quorum.
    Holding,
    /// It has released.
    Released,
}

/// How far a holder is with the data that the lock guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// It has done nothing yet.
    #[default]
    Fresh,
    /// It has raised the fence at the gate.
    Opened,
    /// It has read, and its write is on the way: it may arrive at any moment and repeatedly.
    Writing,
    /// The gate has seen a greater fence.
    Refused,
}

/// One acquisition, with a holder id of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// How far it is.
    pub phase: Phase,
    /// How many proposals and renewals it has sent.
    pub sends: u8,
    /// The fence of each send.
    pub fences: [u8; SENDS_MAX],
    /// The sends, as bits, that are renewals.
    pub renewals: u8,
    /// The sends, as bits, that ask for what the holder may have already, and raise nothing.
    pub adopting: u8,
    /// The sends, as bits, whose undo was sent.
    pub undone: u8,
    /// The fence of its hold, also after that has ended; 0 if it never held.
    pub held: u8,
    /// The send from which its hold's validity counts.
    pub valid: u8,
    /// How many of its sends are so old that their validity is over.
    pub ended: u8,
    /// Whether its current renewal began after somebody got a hold with a greater fence.
    pub outdated: bool,
    /// How far it is at the gate.
    pub stage: Stage,
    /// The updates, as bits, that it saw when it read.
    pub read: u8,
}

impl Hash for Client {
    fn hash<S: Hasher>(&self, hasher: &mut S) {
        let [first, second, third, fourth] = self.fences;
        let bytes = [
            self.phase as u8,
            self.stage as u8,
            u8::from(self.outdated),
            self.sends,
            first,
            second,
            third,
            fourth,
            self.renewals,
            self.adopting,
            self.undone,
            self.held,
            self.valid,
            self.ended,
            self.read,
            0,
        ];
        hasher.write_u128(u128::from_le_bytes(bytes));
    }
}

impl Client {
    /// The fence of a send, 1 for the first.
    pub fn fence_of(&self, send: u8) -> u8 {
        send.checked_sub(1)
            .and_then(|at| self.fences.get(usize::from(at)))
            .map_or(0, |fence| *fence)
    }

    /// Whether a send is a renewal.
    pub fn is_renewal(&self, send: u8) -> bool {
        self.renewals & (1 << send) != 0
    }

    /// Whether it believes to hold now, by its own clock.
    pub fn is_alive(&self) -> bool {
        self.phase == Phase::Holding && self.valid > self.ended
    }
}

/// The data that the lock guards: the set of updates that they show, and what the gate has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guarded {
    /// The greatest fence that the gate has seen.
    pub seen: u8,
    /// The greatest fence of a write that was taken.
    pub written: u8,
    /// The updates, as bits of their clients, that the data show.
    pub shown: u8,
    /// The updates that were taken.
    pub taken: u8,
    /// Whether a write was taken after one with a greater fence.
    pub older_written: bool,
}

/// Everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The nodes; those that the setup does not have stay as they began.
    pub nodes: [Node; NODES_MAX],
    /// The clients, likewise.
    pub clients: [Client; CLIENTS_MAX],
    /// The data behind the gate.
    pub guarded: Guarded,
    /// Whether somebody became holder with a smaller fence than somebody before.
    pub fell: bool,
    /// Whether a renewal that began after a greater hold was a success.
    pub revived: bool,
    /// How many nodes and clients there are: the rest is not to be permuted.
    size: (u8, u8),
}

const ORDERS: [&[[u8; CLIENTS_MAX]]; CLIENTS_MAX + 1] = [
    &[[0, 1, 2]],
    &[[0, 1, 2]],
    &[[0, 1, 2], [1, 0, 2]],
    &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
];

impl State {
    /// The beginning: nobody has anything.
    pub fn new(setup: &Setup) -> Self {
        let size = (setup.nodes.min(NODES_MAX) as u8, setup.clients.min(CLIENTS_MAX) as u8);
        Self { size, ..Self::default() }
    }

    /// How many nodes have answered `client` that it has the lock there with this fence.
    pub fn count_answers(&self, client: usize, fence: u8) -> usize {
        self.nodes.iter().filter(|node| node.answered[client] == fence).count()
    }

    /// Drops the answers to what `client` asked before: it counts them no more.
    pub fn clear_answers(&mut self, client: usize) {
        for node in &mut self.nodes {
            node.answered[client] = 0;
        }
    }

    /// The same state with client `c` called `names[c]`, and the nodes in order.
    fn renamed(&self, names: &[u8; CLIENTS_MAX]) -> Self {
        let bits =
            |old: u8| (0..CLIENTS_MAX).fold(0, |new, at| new | (((old >> at) & 1) << names[at]));
        let mut new = *self;
        for (at, client) in self.clients.iter().enumerate() {
            new.clients[usize::from(names[at])] = Client { read: bits(client.read), ..*client };
        }
        for node in &mut new.nodes {
            node.lock.holder = node.lock.holder.map(|holder| names[usize::from(holder)]);
            let answered = node.answered;
            for (at, fence) in answered.into_iter().enumerate() {
                node.answered[usize::from(names[at])] = fence;
            }
        }
        new.nodes[..usize::from(self.size.0)].sort_unstable();
        new.guarded.shown = bits(self.guarded.shown);
        new.guarded.taken = bits(self.guarded.taken);
        new
    }
}

impl Representative for State {
    /// The least of all states that differ from this one only in the names of nodes and clients.
    fn representative(&self) -> Self {
        ORDERS[usize::from(self.size.1)]
            .iter()
            .map(|names| self.renamed(names))
            .min()
            .unwrap_or(*self)
    }
}
