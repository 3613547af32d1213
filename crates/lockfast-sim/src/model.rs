//! Fenced Redlock as a model that stateright can search: what each step does to a state.

use stateright::{Model, Property, Representative};

use crate::invariant::Invariant;
use crate::rule::Answer;
use crate::setup::{Expiry, Flaw, Gate, Setup};
use crate::state::{Node, Phase, Stage, State};
use crate::step::{self, Step};

/// A setup, and the invariant that is looked for in it.
#[derive(Clone, Copy, Debug)]
pub struct Redlock {
    /// What is modelled.
    pub setup: Setup,
    /// What must hold in every state.
    pub invariant: Invariant,
}

impl Model for Redlock {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.setup)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        step::collect(&self.setup, state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = *last;
        self.apply(&mut next, step);
        if next == *last {
            None
        } else if self.setup.symmetric {
            Some(next.representative())
        } else {
            Some(next)
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(self.invariant.name, |model, state| (model.invariant.holds)(state))]
    }
}

impl Redlock {
    fn apply(&self, state: &mut State, step: Step) {
        match step {
            Step::Propose { client, fence } => self.propose(state, client, fence),
            Step::Adopt { client, fence } => {
                self.propose(state, client, fence);
                state.clients[client].adopting |= 1 << state.clients[client].sends;
            }
            Step::Arrive { client, send, node } => self.arrive(state, client, send, node),
            Step::GiveUp { client } => {
                let own = &mut state.clients[client];
                own.phase = Phase::GaveUp;
                own.undone |= 1 << own.sends;
                state.clear_answers(client);
            }
            Step::Hold { client, fence } => self.hold(state, client, fence),
            Step::Release { client } => {
                let own = &mut state.clients[client];
                own.phase = Phase::Released;
                own.undone |= 1 << own.sends;
                state.clear_answers(client);
            }
            Step::Undo { client, send, node } => self.undo(state, client, send, node),
            Step::Renew { client } => renew(state, client),
            Step::ArriveRenewal { client, send, node } => {
                self.arrive_renewal(state, client, send, node);
            }
            Step::Renewed { client } => {
                state.revived |= state.clients[client].outdated;
                state.clients[client].valid = state.clients[client].sends;
            }
            Step::End { client } => state.clients[client].ended += 1,
            Step::Expire { node } => {
                state.nodes[node].lock.expire();
                state.nodes[node].since = 0;
            }
            Step::Forget { node } => {
                state.nodes[node].lock.forget();
                state.nodes[node].since = 0;
                state.nodes[node].forgot = true;
            }
            Step::Open { client } => open(state, client),
            Step::Read { client } => {
                state.clients[client].stage = Stage::Writing;
                state.clients[client].read = state.guarded.shown;
            }
            Step::Write { client } => self.write(state, client),
        }
    }

    fn propose(&self, state: &mut State, client: usize, fence: u8) {
        if self.setup.flaw == Flaw::MixedCount {
            let old = state.nodes.iter_mut().filter(|node| node.answered[client] != 0);
            old.for_each(|node| node.answered[client] = fence);
        } else {
            state.clear_answers(client);
        }
        let own = &mut state.clients[client];
        own.fences[usize::from(own.sends)] = fence;
        own.sends += 1;
        own.phase = Phase::Trying;
    }

    fn arrive(&self, state: &mut State, client: usize, send: u8, node: usize) {
        let holder = client as u8;
        let own = state.clients[client];
        let seen = &mut state.nodes[node];
        let is_adopting = own.adopting & (1 << send) != 0 && seen.lock.has(holder);
        let fence = if is_adopting { seen.lock.fence } else { own.fence_of(send) };
        let is_free = seen.lock.holder.is_none();
        match self.setup.flaw {
            Flaw::NoFences if is_free => seen.lock.fence = 0,
            Flaw::EqualFences if is_free && seen.lock.fence == fence => seen.lock.fence -= 1,
            _ => {}
        }
        if seen.lock.acquire(holder, fence) != Answer::Granted {
            return;
        }
        self.set_end(seen, send);
        let is_mixed = self.setup.flaw == Flaw::MixedCount;
        if own.phase == Phase::Trying && (send == own.sends || is_mixed) {
            seen.answered[client] = if is_mixed { own.fence_of(own.sends) } else { fence };
        }
    }

    /// Lets a grant last until its holder's `send` is over, or longer if it does already. Where
    /// no time is assumed nothing depends on it, and leaving it out makes fewer states.
    fn set_end(&self, node: &mut Node, send: u8) {
        if self.setup.expiry == Expiry::AfterValidity {
            let least = if self.setup.flaw == Flaw::Shortening { 0 } else { node.since };
            node.since = least.max(send);
        }
    }

    fn hold(&self, state: &mut State, client: usize, fence: u8) {
        state.clear_answers(client);
        let greatest = state.clients.iter().map(|other| other.held).max().unwrap_or(0);
        let own = &mut state.clients[client];
        own.phase = Phase::Holding;
        own.held = fence;
        own.valid = own.sends;
        if self.setup.expiry == Expiry::AfterValidity {
            state.fell |= own.held <= greatest;
        }
    }

    fn undo(&self, state: &mut State, client: usize, send: u8, node: usize) {
        let fence = match self.setup.flaw {
            Flaw::BlindUndo => u8::MAX,
            _ => state.clients[client].fence_of(send),
        };
        let seen = &mut state.nodes[node];
        let before = seen.lock.fence;
        if seen.lock.undo(client as u8, fence) {
            seen.since = 0;
        }
        if self.setup.flaw == Flaw::BlindUndo {
            seen.lock.fence = before;
        }
    }

    fn arrive_renewal(&self, state: &mut State, client: usize, send: u8, node: usize) {
        let holder = client as u8;
        let own = state.clients[client];
        let has_quorum = own.valid >= send;
        let seen = &mut state.nodes[node];
        if self.setup.flaw == Flaw::CreatingRenewal && seen.lock.holder.is_none() {
            seen.lock.holder = Some(holder);
        }
        let is_blind = matches!(self.setup.flaw, Flaw::BlindRenewal | Flaw::CreatingRenewal);
        if seen.lock.renew(holder, own.held) || (is_blind && seen.lock.has(holder)) {
            self.set_end(seen, send);
            if own.phase == Phase::Holding && send == own.sends && own.valid < send {
                seen.answered[client] = own.held;
            }
        } else if self.setup.relock && has_quorum {
            // Locking again is a proposal of the same fence: a node that only let the grant go
            // has that fence still and refuses. It does not count for the renewal.
            if seen.lock.acquire(holder, own.held) == Answer::Granted {
                self.set_end(seen, send);
            }
        }
    }

    fn write(&self, state: &mut State, client: usize) {
        let own = state.clients[client];
        let guarded = &mut state.guarded;
        if self.setup.gate != Gate::Unchecked {
            if own.held < guarded.seen {
                state.clients[client].stage = Stage::Refused;
                return;
            }
            guarded.seen = own.held;
        }
        guarded.older_written |= own.held < guarded.written;
        guarded.written = guarded.written.max(own.held);
        guarded.taken |= 1 << client;
        guarded.shown = own.read | 1 << client;
    }
}

fn renew(state: &mut State, client: usize) {
    state.clear_answers(client);
    let greatest = state.clients.iter().map(|other| other.held).max().unwrap_or(0);
    let own = &mut state.clients[client];
    own.fences[usize::from(own.sends)] = own.held;
    own.sends += 1;
    own.renewals |= 1 << own.sends;
    own.outdated = greatest > own.held;
}

fn open(state: &mut State, client: usize) {
    let own = &mut state.clients[client];
    if own.held < state.guarded.seen {
        own.stage = Stage::Refused;
    } else {
        own.stage = Stage::Opened;
        state.guarded.seen = own.held;
    }
}
