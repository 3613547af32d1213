//! What is modelled: how many of what, and which freedoms the world has.

/// The most nodes a model can have.
pub const NODES_MAX: usize = 5;
/// The most clients a model can have.
pub const CLIENTS_MAX: usize = 3;
/// The most proposals and renewals that one client can send.
pub const SENDS_MAX: usize = 4;

/// When a node may let a grant go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At any moment: nothing is assumed about any clock.
    Anytime,
    /// Only after its holder stopped counting on it: Redlock's timing assumption.
    AfterValidity,
}

/// How the data that the lock guards are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// There are no such data in the model.
    Absent,
    /// Every write is taken: what plain Redlock leaves one with.
    Unchecked,
    /// A write is refused if a greater fence was seen; holders just read before they write.
    Checked,
    /// The same, and a holder first raises the fence at the gate, then reads, then writes.
    Opened,
}

/// A rule that is broken on purpose, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// All rules hold.
    None,
    /// A node grants without looking at fences: plain Redlock.
    NoFences,
    /// A free node grants a proposal that equals the fence that it has.
    EqualFences,
    /// A client adds up grants of different proposals.
    MixedCount,
    /// An undo takes any grant of its holder back, also that of a later proposal.
    BlindUndo,
    /// A request of the holder that arrives late sets the grant's end back to its own.
    Shortening,
    /// A client takes what it finds that it has, also what it has told nodes to undo.
    UndoneAdopted,
    /// A renewal counts every grant of its holder, also that of a proposal above its hold.
    BlindRenewal,
    /// A renewal takes the lock where it is free.
    CreatingRenewal,
}

/// One model: its size and its rules.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many must grant.
    pub quorum: usize,
    /// How many acquisitions there are, each with a holder id of its own.
    pub clients: usize,
    /// How often one client may propose.
    pub proposals: usize,
    /// How often one holder may renew.
    pub renewals: usize,
    /// Fences are proposed from 1 to this. Only their order matters, so that as many as there are
    /// proposals of all clients stand for any numbers whatever.
    pub fence_max: u8,
    /// How many different nodes may forget everything, each as often as it likes.
    pub forgetful: usize,
    /// When grants may end.
    pub expiry: Expiry,
    /// Whether clients give up, undo and try again, and release what they hold. Without a timing
    /// assumption this adds nothing that expiry cannot do, so that it can be left out there.
    pub undo: bool,
    /// Whether a client may begin anew without undoing, and take what it finds that it has.
    pub adopt: bool,
    /// Whether a holder that has renewed locks nodes again that have forgotten it.
    pub relock: bool,
    /// What is guarded.
    pub gate: Gate,
    /// Which rule is broken.
    pub flaw: Flaw,
    /// Whether states that differ only in the names of nodes and clients count as one.
    pub symmetric: bool,
}

impl Setup {
    /// Nodes with a quorum, two clients with two proposals each, and nothing assumed about time.
    pub fn new(nodes: usize, quorum: usize) -> Self {
        Self {
            nodes,
            quorum,
            clients: 2,
            proposals: 2,
            renewals: 0,
            fence_max: 4,
            forgetful: 0,
            expiry: Expiry::Anytime,
            undo: false,
            adopt: false,
            relock: false,
            gate: Gate::Absent,
            flaw: Flaw::None,
            symmetric: true,
        }
    }

    /// The same under Redlock's timing assumption, with undo, retries and releases.
    pub fn timed(nodes: usize, quorum: usize) -> Self {
        Self { expiry: Expiry::AfterValidity, undo: true, ..Self::new(nodes, quorum) }
    }

    /// How many nodes may forget without harm: two quorums share at least 2q − N nodes, and one of
    /// these must remember. Nothing if the quorum is no majority: then two may share no node.
    pub fn forgetful_bound(&self) -> Option<usize> {
        (2 * self.quorum).checked_sub(self.nodes + 1)
    }

    /// Whether the model can be built, with what is wrong if it cannot.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, given: usize, least: usize, most: usize| {
            if (least..=most).contains(&given) {
                Ok(())
            } else {
                Err(format!("{what} is {given}; allowed are {least} to {most}"))
            }
        };
        within("the number of nodes", self.nodes, 1, NODES_MAX)?;
        within("the quorum", self.quorum, 1, self.nodes)?;
        within("the number of clients", self.clients, 1, CLIENTS_MAX)?;
        within("the number of proposals", self.proposals, 1, SENDS_MAX)?;
        within("the number of renewals", self.renewals, 0, SENDS_MAX - self.proposals)?;
        within("the greatest fence", usize::from(self.fence_max), 1, 7)?;
        within("the number of forgetful nodes", self.forgetful, 0, self.nodes)
    }
}
